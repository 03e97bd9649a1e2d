"""Run as a program: stages on a cluster of two GPUs that Ray only believes in; prints which process was given which of them, and
what of the node's kind of GPU was reserved meanwhile."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.submissions import Submission
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderSpec, Task
from sentdist.plan.stages import Scores
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore

SEEN = Path("seen")


def where_it_runs(stage: Any, submission: Any, sink: Any) -> Any:
    """In place of a stage's body."""
    import time

    with (submission.context.data_root / SEEN).open("a") as seen:
        of_kind = ray.get_runtime_context().get_assigned_resources().get("accelerator_type:T4", 0)
        seen.write(json.dumps([stage.kind, os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES"), of_kind]) + "\n")
    time.sleep(0.5)  # so that two run at once
    with submission.context.store.staged() as folder:
        (folder / "data").write_text("")
        return submission.context.store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})


def main(folder: str) -> None:
    ray.init(
        num_cpus=4, num_gpus=2, resources={"accelerator_type:T4": 1}, include_dashboard=False, _temp_dir=folder, object_store_memory=80 * 2**20,
        logging_level="ERROR", log_to_driver=False,
    )  # fmt: skip
    store = ArtifactStore(Path(folder) / "store")
    runtime = Runtime(engine="torch", gpus_per_worker=1, cpus_per_worker=0.5, gpu_type="T4")
    context = Context(store=store, data_root=Path(folder), runtime=runtime)
    encoder = EncoderSpec(checkpoint="toy", revision="1")
    stages = [Scores(encoder=encoder, tasks=(Task(name=f"toy-{number}", kind="sts", source="toy", revision="1"),)) for number in range(7)]
    board = BoardClient(Submission(context=context, trainings_at_once=2), where_it_runs)
    without = BoardClient(Submission(context=replace(context, runtime=Runtime(engine="torch", cpus_per_worker=4))), where_it_runs)
    both = Runtime(engine="torch", gpus_per_worker=2, cpus_per_worker=0.5)
    with_both = BoardClient(Submission(context=replace(context, runtime=both)), where_it_runs)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(board.build, stages[:6]))
    without.build(RowsCorpus(source="toy", source_revision="1"))
    with_both.build(stages[6])  # so that the workers with one GPU go
    for client in (with_both, without, board):
        client.leave()
    print(json.dumps([json.loads(line) for line in (Path(folder) / SEEN).read_text().splitlines()]))
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
