"""Every kind of stage at once with every other, for two jobs, on a cluster that can carry one training: all of them end."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from sentdist.objectives.entropy import Entropy
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stage import Json, Stage
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

WITHIN_S = 400.0  # a minute or two; what hangs hangs forever


def _context(encoder: Path, folder: Path, runtime: dict[str, Json]) -> tuple[Context, dict[str, list[Any]]]:
    """A store in which all inputs are finished, and stages of each kind that have nothing left to wait for but the cluster."""
    values = tiny_values(
        encoder, selection=None, runtime={"engine": "torch", "rows_per_shard": 20, "bank_in_object_store": False} | runtime
    )
    values |= {"targets": {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12}, "evaluation": {"tasks": ["stsb"], "probes": {}}}
    plan, context = tiny_plan(values, data=write_data(folder / "data", num_rows=32), store=folder / "store")
    banks = [stage for stage in plan.stages if isinstance(stage, Bank)]
    (targets,) = (stage for stage in plan.stages if isinstance(stage, Targets))
    for stage in plan.stages:
        if isinstance(stage, RowsCorpus) or (isinstance(stage, Train) and isinstance(stage.objective, Entropy)):
            build_here(stage, context)
    (base,) = (stage for stage in plan.stages if isinstance(stage, Train) and isinstance(stage.objective, InfoNCE))
    scores = next(stage for stage in plan.stages if isinstance(stage, Scores) and isinstance(stage.encoder, Train))
    return context, {
        "bank": banks,
        "targets": [_changed(targets, num_words=5)],
        "train": [base],
        "scores": [_changed(scores, encoder=banks[0].encoder, targets=None, probes=None)],
        "corpus": [_changed(base.corpus, limit=10)],
    }


def _changed(stage: Stage, **fields: object) -> Stage:
    return type(stage).model_validate({name: getattr(stage, name) for name in type(stage).model_fields} | fields)


def test_every_kind_of_stage_ends_beside_every_other(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    import ray

    from sentdist.execution.board.client import BoardClient
    from sentdist.execution.board.submissions import Submission
    from sentdist.execution.build_stage import build_stage

    boards, asked = [], []
    for workers in (2, 1):  # in groups and pools, and each in a task
        context, stages = _context(tiny_encoder_dir, tmp_path / str(workers), {"workers": workers})
        boards.append(BoardClient(Submission(context=context, trainings_at_once=9), build_stage))  # no board keeps anything waiting
        asked += [(boards[-1], stage) for of_kind in stages.values() for stage in of_kind[:workers]]
    assert len(asked) == 6 + 5
    started = time.monotonic()
    with ThreadPoolExecutor(len(asked)) as pool:
        building = [pool.submit(board.build, stage) for board, stage in asked]
        done, waiting = wait(building, timeout=WITHIN_S)
        unfinished = [asked[building.index(future)][1].kind for future in waiting]
        for board in boards:
            board.leave()  # ends what hangs, so that the threads end too
    assert not unfinished, f"after {time.monotonic() - started:.0f} s"
    for future in done:
        future.result()
    wait_for(lambda: ray.available_resources().get("CPU") == 2, what="free CPUs")
