"""How long a rebuild of MLflow takes, on a server of its own: `python -m tests.tracking_speed [TRIALS]`.
Figures: infra/benchmarks/tracking.md."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.search_runs import rebuild
from tests.support.mlflow_fixtures import MlflowServer, grid_sweep, make_up


def main(num_trials: int) -> None:
    """Made-up artifacts of a grid, each trial with a training of its own; then two rebuilds."""
    with tempfile.TemporaryDirectory(prefix="sentdist-", ignore_cleanup_errors=True) as scratch:
        plan, store = grid_sweep("grid", num_trials=num_trials), ArtifactStore(Path(scratch) / "store")
        save_sweep(store, sweep_record(plan))
        for stage in plan.stages:
            make_up(stage, store)
        server = MlflowServer(Path(scratch) / "mlflow")
        server.start()
        try:
            for which in ("first", "again"):
                before = time.monotonic(), time.process_time(), server.cpu_s, server.num_requests
                rebuild(store, server.uri, "grid")
                wall, own, of_server, requests = (
                    now - then
                    for now, then in zip((time.monotonic(), time.process_time(), server.cpu_s, server.num_requests), before, strict=True)
                )
                print(f"{which}: {wall:.1f} s, {own:.1f} CPU s here, {of_server:.1f} CPU s of the server, {requests} requests", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
