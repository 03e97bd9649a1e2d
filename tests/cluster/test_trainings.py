"""Trainings on a cluster: one that loses a worker, is stopped and finds a damaged checkpoint; stages of every kind, for two jobs at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import SweepStopped
from sentdist.objectives.entropy import Entropy
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stage import Json, Stage
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.trained import assert_same_parameters
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


def test_a_training_that_loses_a_worker_or_is_stopped_goes_on_from_its_checkpoint(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    import ray

    from sentdist.execution.board.client import BoardClient
    from sentdist.execution.board.submission import Submission
    from sentdist.execution.build_stage import build_stage
    from sentdist.execution.stop_sweeps import StoppedSweep, stop_sweeps

    data = write_data(tmp_path / "data")
    long: Json = {
        "objective": {"name": "info_nce", "temperature": 0.05}, "regularizers": {"attention_dropout": 0.0, "hidden_dropout": 0.0}, "select": False,
        "training": {"epochs": 20, "learning_rate": 1e-5},
    }  # fmt: skip
    values = tiny_values(tiny_encoder_dir, methods={"long": long}, baseline=None)
    values["runtime"] = {"workers": 2, "zero_stage": 2, "checkpoint_every_s": 0.2, "max_failures": 1}
    plan, on_ray = tiny_plan(values, data=data, store=tmp_path / "on-ray")
    _, here = tiny_plan(values, data=data, store=tmp_path / "here")
    stage = plan.trials[0].scores.encoder
    assert isinstance(stage, Train)
    first = BoardClient(Submission(context=on_ray, sweep="long"), build_stage)
    steps_after: list[int] = []
    killed_at = None
    with ThreadPoolExecutor(1) as pool, pytest.raises(SweepStopped):
        for event in first.follow(stage):
            if event.what != "step" or event.step is None:
                continue
            if killed_at is None and event.step >= 36:
                cluster.kill_train_worker()
                killed_at = event.step
            elif killed_at is not None:
                steps_after.append(event.step)
                if len(steps_after) == 2:
                    stopping = pool.submit(stop_sweeps, "long")
    assert killed_at is not None and min(steps_after) > 12, "it began again instead of going on"  # 12: the first step that is spoken of
    assert stopping.result() == [StoppedSweep(sweep="long", num_ended=1)]
    wait_for(lambda: ray.available_resources().get("CPU") == 2, what="the workers' CPUs")
    assert not on_ray.store.has(stage)
    first.leave()
    older, newest = sorted((tmp_path / "on-ray" / "running" / stage.key).iterdir())
    damaged = max((path for path in newest.rglob("*rank_1*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    second = BoardClient(Submission(context=on_ray, sweep="long"), build_stage)
    events = list(second.follow(stage))
    second.leave()
    reported = [event for event in events if event.what == "resumed"]
    assert f"step {int(newest.name)} is of no use" in reported[0].line and damaged.name in reported[0].line
    assert reported[1].step == int(older.name)
    steps = [event.step for event in events if event.what == "step" and event.step is not None]
    assert min(steps) == (int(older.name) // 12 + 1) * 12, "the first step that is spoken of after that checkpoint"
    for needed in (stage.corpus, stage):
        build_here(needed, here)
    assert_same_parameters(stage, here, on_ray)


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
    from sentdist.execution.board.submission import Submission
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
