"""What large stores and sweeps cost: `python -m tests.faults.load --artifacts 10000 30000 100000 --trials 50 200 --out
infra/benchmarks/load.md`.

A store of N artifacts is made up from a real plan (8 a seed): records as they are, with a file of a few bytes in place of the data.
Then commands of `sentdist` look at it, each in a process of its own. Trials are real and tiny, on a cluster of two hosts with a CPU each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from sentdist.plan.stage import Json, Stage
from sentdist.stages.planning.planned import planned
from sentdist.store.record import Record, checksum_of
from tests.cluster.hosts import RAY_PORT, ROOT, hosts
from tests.support.tiny_data import tiny_values, write_data

STAGES_PER_SEED = 8
CONTENT = b"content"
LOOK_EVERY_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a command took: processor and wall seconds, peak resident memory of its process."""

    command: str
    size: int
    cpu_s: float
    wall_s: float
    peak_mb: float


def main() -> None:
    """Measure what the arguments ask for and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.load", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--artifacts", type=int, nargs="*", default=[])
    parser.add_argument("--trials", type=int, nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sd-load-", dir="/tmp"))
    try:
        from tests.support.tiny_encoders import tiny_encoder  # torch takes seconds

        encoder, data = tiny_encoder(folder / "encoder", "bert"), write_data(folder / "data", num_rows=16)
        stores = [cost for size in asked.artifacts for cost in _store_costs(folder, size, encoder, data)]
        sweeps = [_sweep_cost(folder, size, encoder, data) for size in asked.trials]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    reported = page(stores, sweeps, machine=f"{os.cpu_count()} processors, load average {os.getloadavg()[1]:.0f}")
    print(reported)
    if asked.out:
        asked.out.write_text(reported)


def page(stores: Sequence[Cost], sweeps: Sequence[Cost], *, machine: str) -> str:
    """`infra/benchmarks/load.md`."""
    lines = ["# Load", "", f"`{' '.join(['python -m tests.faults.load', *sys.argv[1:]])}` on a machine of {machine}.", ""]
    for title, costs in (("## Stores: N artifacts", stores), ("## Sweeps: N tiny trials on two hosts with a CPU each", sweeps)):
        sizes = sorted({cost.size for cost in costs})
        lines += [title, "", "| command | " + " | ".join(f"N = {size:,}" for size in sizes) + " |", "|---" * (1 + len(sizes)) + "|"] * bool(
            costs
        )
        for command in dict.fromkeys(cost.command for cost in costs):
            lines.append(f"| {command} | " + " | ".join(_cell(cost) for cost in costs if cost.command == command) + " |")
        lines.append("")
    return "\n".join([*lines, "A cell: processor seconds / wall seconds / peak memory of the command's own process.", ""])


def _cell(cost: Cost) -> str:
    return f"{cost.cpu_s:.1f} s / {cost.wall_s:.1f} s / {cost.peak_mb:.0f} MB"


def _recipe(folder: Path, name: str, encoder: Path, *, num_seeds: int, **changes: Json) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tiny_values(encoder, name=name, seeds=list(range(num_seeds)), **changes)))
    return path


def _store_costs(folder: Path, size: int, encoder: Path, data: Path) -> Iterator[Cost]:
    recipe, store = _recipe(folder, f"store-{size}", encoder, num_seeds=-(-size // STAGES_PER_SEED)), folder / f"store-{size}"
    plan, _ = planned(recipe, overrides=(), store=str(store), data=data)
    for stage in plan.stages:
        _make_up(store, stage)
    num_made = sum(1 for _ in store.glob("*/*/record.json"))
    place = plan.stages[-1].place
    for command in (
        ["store", "list"],
        ["store", "show", place],
        ["store", "gc", "--dry-run", "--older-than-hours", "0"],
        ["store", "check"],
        ["plan", str(recipe), "--data", str(data)],
    ):
        with (folder / "output").open("wb") as output:
            shown = f"`sentdist {' '.join(command[:2] if command[0] == 'store' else command[:1])}`"
            yield _cost(shown, num_made, [sys.executable, "-m", "sentdist", *command, "--store", str(store)], output=output.fileno())
    shutil.rmtree(store)


def _make_up(store: Path, stage: Stage) -> None:
    folder = store / stage.place
    folder.mkdir(parents=True)
    (folder / "content").write_bytes(CONTENT)
    fact = checksum_of(folder / "content")
    record = Record(
        key=stage.key, kind=stage.kind, label=stage.label, place=stage.place, stage=stage.canonical(),
        inputs=tuple(needed.key for needed in stage.inputs), created_at="2026-01-01T00:00:00Z", seconds=12.5, runtime={"workers": 1},
        environment={"python": "3"}, results={"sentences_per_s": 400.0, "stsb": 80.0}, files={"content": fact.num_bytes},
        digests={"content": fact.sha256 or ""},
    )  # fmt: skip
    (folder / "record.json").write_text(record.model_dump_json(indent=1))


def _sweep_cost(folder: Path, size: int, encoder: Path, data: Path) -> Cost:
    """Trials of a few steps each, one a seed, on a fresh cluster."""
    still: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    methods: Json = {"fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}, "regularizers": still}}
    recipe = _recipe(folder, f"trials-{size}", encoder, num_seeds=size, methods=methods, runtime={"engine": "torch", "workers": 1})
    with hosts(PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", RAY_worker_niceness="0") as some:
        some.start_head(with_dashboard=False)
        some.join(1)
        command = ["run", str(recipe), "--store", str(folder / f"trials-{size}"), "--data", str(data)]
        address = f"RAY_ADDRESS={some.address(0)}:{RAY_PORT}"
        with (folder / "output").open("wb") as output:
            started = time.monotonic()
            driver = some.start(0, "env", address, sys.executable, "-m", "sentdist", *command, stdout=output)
            return _ended("`sentdist run`", size, driver, started)


def _cost(shown: str, size: int, command: list[str], *, output: int) -> Cost:
    started = time.monotonic()
    return _ended(shown, size, subprocess.Popen(command, stdout=output), started)


def _ended(shown: str, size: int, process: subprocess.Popen[str] | subprocess.Popen[bytes], started: float) -> Cost:
    peak_kb, status = 0, None
    while status is None:
        with suppress(OSError):  # it has just ended
            reported = Path(f"/proc/{process.pid}/status").read_text()
            peak_kb = max(peak_kb, *(int(line.split()[1]) for line in reported.splitlines() if line.startswith("VmHWM")), 0)
        pid, ended, used = os.wait4(process.pid, os.WNOHANG)
        status = ended if pid else None
        time.sleep(LOOK_EVERY_S)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{shown} with {size}: exit code {process.returncode}")
    # The kernel's own figure (ru_maxrss) begins with the memory of the process that started it.
    return Cost(
        command=shown, size=size, cpu_s=used.ru_utime + used.ru_stime, wall_s=time.monotonic() - started, peak_mb=peak_kb / 1024
    )  # fmt: skip


if __name__ == "__main__":
    main()
