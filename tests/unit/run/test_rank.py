"""A training on its workers: it goes on from its own checkpoints, who keeps time, what is told, and on which GPU it computes."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport, StepSeconds
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Train
from sentdist.run import losses, rank
from sentdist.run import rank as reporter
from sentdist.run.losses import LeaveNotice
from sentdist.run.rank import CheckpointClock, train_as_first_rank
from sentdist.run.submissions import Submission
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train_setup import ALONE
from sentdist.tracking.tracker import Run
from tests.support.every_stage import one_of_each
from tests.support.lost_training import HostLost, RecordingSink
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("one_thread")


def _weights(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    artifact = context.store.get(stage)
    assert artifact is not None
    return load_file(context.store.folder(artifact) / "model.safetensors")


SECONDS = StepSeconds(data=0, forward=0, loss=0, backward=0, optimizer=0, waiting=0)


def report(step: int, *, is_latest: bool = True) -> StepReport:
    return StepReport(step=step, loss=1.0, grad_norm=1.0, lr=1.0, num_sentences=8, seconds=SECONDS, is_latest=is_latest)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Any:
    """A training whose inputs are built, and a way to get a context with a store of its own."""
    data = write_data(tmp_path_factory.mktemp("data"))
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "checkpoint_every_s": 1e-9, "log_every": 1})

    def place(name: str) -> tuple[Train, Context]:
        plan, context = tiny_plan(values, data=data, store=tmp_path_factory.mktemp(name))
        train = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is not None and not stage.banks)
        build_here(train.corpus, context)
        return train, context

    return place


def test_a_lost_training_goes_on_and_ends_with_the_same_parameters(prepared: Any) -> None:
    stage, context = prepared("whole")
    train_as_first_rank(stage, Submission(context=context), RecordingSink(), Run())
    assert not (Path(context.store.root) / "running" / stage.key).exists(), "a finished training leaves no checkpoint behind"
    again, interrupted = prepared("interrupted")
    submission = Submission(context=interrupted)
    with pytest.raises(HostLost):
        train_as_first_rank(again, submission, RecordingSink(lost_at=4), Run())
    sink = RecordingSink()
    began = time.perf_counter()
    artifact = train_as_first_rank(again, submission, sink, Run())
    assert artifact.record.seconds > time.perf_counter() - began, "what the lost attempt took until its last checkpoint counts"
    assert sink.reported[0].line.endswith("goes on from step 3 of 6")
    assert min(event.step or 0 for event in sink.reported[1:]) >= 4  # it did not begin again
    expected, found = _weights(stage, context), _weights(again, interrupted)
    for name, weight in expected.items():
        # one machine, one engine, one number of threads, hence one order of sums: nothing may differ
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0)


def test_the_first_worker_tells_of_steps_speed_and_machine_and_of_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reporter, "add", lambda metric, amount, **labels: counted.append((metric, amount, labels)))
    sink, run = Mock(), Mock()
    history = [{"step": 5, "loss": 0.5}]  # of an attempt before it went on from a checkpoint
    session: Any = SimpleNamespace(history=history, progress=SimpleNamespace(step=5), schedule=SimpleNamespace(num_steps=20))
    history.append({"step": 6, "loss": 0.25})
    session.progress.step = 6
    step = Mock(spec=StepReport, step=5, num_sentences=24, loss=0.25, seconds=Mock(total=2.0))
    reporter.report(step, one_of_each()["train"], session, sink, run)  # type: ignore[arg-type]
    run.follow.assert_called_once_with(history)
    assert counted == [(reporter.SENTENCES, 24, {"kind": "train"})]
    event = sink.post.call_args.args[0]
    assert (event.what, event.step, event.sentences_per_s) == ("step", 6, 12.0)


def test_a_rank_computes_on_the_gpu_that_ray_train_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the first one that it sees: workers of a host see the GPUs of all of them."""
    monkeypatch.setattr("ray.train.torch.get_device", lambda: torch.device("cuda", 2))
    runtime = Runtime(engine="torch", workers=4, gpus_per_worker=1)
    engines, places = Mock(), Mock()
    monkeypatch.setattr(rank, "engine_of", engines)
    monkeypatch.setattr(rank, "placed", places)
    monkeypatch.setattr(rank, "TrainSession", Mock())
    monkeypatch.setattr(rank, "bank_of", Mock())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for is_a_rank, device in ((True, "cuda:2"), (False, "cuda")):
        monkeypatch.setattr(rank.dist, "is_initialized", lambda is_a_rank=is_a_rank: is_a_rank)
        rank._start_session(Mock(), Mock(runtime=runtime), ALONE)
        assert engines.call_args.args == (runtime, device)
        assert places.call_args.args[-1] == torch.device(device), "and has its bank there"


def test_the_votes_at_the_event_decide() -> None:
    for passed_s, steps_done, at_score, is_due in (
        (99.0, 5, False, False),
        (100.0, 5, False, True),
        (9.0, 5, True, False),
        (10.0, 7, True, True),  # a dev score comes at any step
        (1e9, 7, False, False),  # between two looks at the clock
    ):
        clock = CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5))
        event = DevScore(step=steps_done, score=80.0) if at_score else report(steps_done - 1)
        assert clock.is_due(event, votes=passed_s) == is_due


def test_the_first_ranks_clock_is_the_one_that_is_read() -> None:
    first, second = (CheckpointClock(Runtime(checkpoint_every_s=100.0), rank=rank) for rank in (0, 1))
    assert first.vote() > 0 and second.vote() == 0
    began = time.monotonic()
    first.restart()
    assert 0 <= first.vote() <= time.monotonic() - began
    assert math.isinf(CheckpointClock(Runtime(), rank=1, is_leaving=lambda: True).vote())


def test_a_host_that_gets_notice_is_seen_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "NOTICE_S", 0.01)
    monkeypatch.setattr(losses.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(losses.ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "aa"))
    draining = {"bb"}
    with LeaveNotice(is_draining=draining.__contains__) as notice:
        time.sleep(0.05)
        assert not notice.is_leaving()
        draining.add("aa")
        wait_for(notice.is_leaving, what="the notice")


def test_a_host_that_is_about_to_leave_makes_one_checkpoint_due_at_once() -> None:
    """Of an engine that is ahead, one is due after the step that it has begun."""
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5))
    said = [(clock.is_due(report(step, is_latest=step == 5), votes=100.0), clock.is_owed) for step in (3, 4, 5, 6)]
    assert said == [(False, False), (False, True), (True, False), (False, False)]
    leaving = [False]
    runtime = Runtime(checkpoint_every_s=100.0, log_every=5)
    clocks = [CheckpointClock(runtime, rank=rank, is_leaving=lambda rank=rank: leaving[0] and rank == 1) for rank in (0, 1)]  # type: ignore[misc]

    def are_due() -> list[bool]:
        votes = sum(clock.vote() for clock in clocks)
        return [clock.is_due(report(4), votes=votes) for clock in clocks]

    assert are_due() == [False, False]
    leaving[0] = True
    assert are_due() == are_due() == [True, True], "still owed: none was written"
    for clock in clocks:
        clock.restart()
    assert are_due() == [False, False]
