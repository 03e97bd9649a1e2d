"""A training on one worker: it goes on from its own checkpoints, and leaves none behind."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sentdist.errors import ResourceError
from sentdist.execution.board.submissions import Submission
from sentdist.execution.demand import Demand
from sentdist.execution.training import rank
from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.execution.training.rank import engine_of, train_as_first_rank, train_rank
from sentdist.learning.engine import TorchEngine
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train_setup import Ranks
from sentdist.tracking.tracker import NullRun
from tests.support.lost_training import HostLost, RecordingSink
from tests.support.rank_threads import on_ranks
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Any:
    """A training whose inputs are built, and a way to get a context with a store of its own."""
    data = write_data(tmp_path_factory.mktemp("data"))
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "checkpoint_every_s": 1e-9, "log_every": 1})

    def place(name: str, **changes: Any) -> tuple[Train, Context]:
        plan, context = tiny_plan(values | changes, data=data, store=tmp_path_factory.mktemp(name))
        train = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is not None and not stage.banks)
        build_here(train.corpus, context)
        return train, context

    return place


def _weights(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    artifact = context.store.get(stage)
    assert artifact is not None
    return load_file(context.store.folder(artifact) / "model.safetensors")


def test_a_lost_training_goes_on_and_ends_with_the_same_parameters(prepared: Any) -> None:
    stage, context = prepared("whole")
    train_as_first_rank(stage, Submission(context=context), RecordingSink(), NullRun())
    again, interrupted = prepared("interrupted")
    submission = Submission(context=interrupted)
    with pytest.raises(HostLost):
        train_as_first_rank(again, submission, RecordingSink(lost_at=4), NullRun())
    sink = RecordingSink()
    began = time.perf_counter()
    artifact = train_as_first_rank(again, submission, sink, NullRun())
    assert artifact.record.seconds > time.perf_counter() - began, "what the lost attempt took until its last checkpoint counts"
    assert sink.reported[0].line.endswith("goes on from step 3 of 6")
    assert min(event.step or 0 for event in sink.reported[1:]) >= 4  # it did not begin again
    expected, found = _weights(stage, context), _weights(again, interrupted)
    for name, weight in expected.items():
        # one machine, one engine, one number of threads, hence one order of sums: nothing may differ
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0)


def test_a_training_that_goes_on_reports_the_steps_that_it_would_have_reported(prepared: Any) -> None:
    training = {"batch_size": 8, "learning_rate": 1e-3, "max_length": 20, "epochs": 4}
    stage, context = prepared("reported", training=training)
    lost, after = RecordingSink(lost_at=6), RecordingSink()
    with pytest.raises(HostLost):
        train_as_first_rank(stage, Submission(context=context), lost, NullRun())
    train_as_first_rank(stage, Submission(context=context), after, NullRun())
    assert after.reported[0].line.endswith("goes on from step 5 of 24")
    assert [[event.step for event in sink.reported if event.what == "step"] for sink in (lost, after)] == [[2, 4, 6], list(range(6, 25, 2))]


def test_a_finished_training_leaves_no_checkpoint_behind(prepared: Any) -> None:
    stage, context = prepared("finished")
    train_as_first_rank(stage, Submission(context=context), RecordingSink(), NullRun())
    assert not (Path(context.store.root) / "running" / stage.key).exists()


def test_an_engine_is_made_as_the_runtime_says() -> None:
    for runtime, expected in (
        (Runtime(engine="torch"), (TorchEngine, {"device": "cuda:1"})),
        (Runtime(engine="deepspeed", zero_stage=2), (DeepSpeedEngine, {"device": "cuda:1", "zero_stage": 2})),
    ):
        made = engine_of(runtime, "cuda:1")
        assert isinstance(made, partial) and (made.func, made.keywords) == expected


def test_a_gpu_that_one_rank_cannot_use_is_reported_by_all(monkeypatch: pytest.MonkeyPatch, prepared: Any) -> None:
    """In a cluster of unlike GPUs; else the others would wait for it in a collective until the process group gives up."""
    stage, context = prepared("unlike")
    here = threading.local()

    def reserved(demand: Demand) -> None:
        if here.ranks.rank == 1:
            raise ResourceError(where="runtime.gpus_per_worker", found="Tesla V100", expected="a newer one", remedy="Take one.")

    def train(ranks: Ranks) -> object:
        here.ranks = ranks
        return train_rank(stage, context, RecordingSink(), NullRun())

    monkeypatch.setattr(rank, "ranks_here", lambda: here.ranks)
    monkeypatch.setattr(rank, "use_reserved", reserved)
    assert [str(error).partition(";")[0] for error in on_ranks(3, train)] == ["runtime.gpus_per_worker: found Tesla V100"] * 3
