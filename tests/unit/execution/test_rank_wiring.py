"""What each worker of a training does beside training: who speaks, who keeps time, what is reported, reserved, given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from sentdist.execution.demand import stage_demand
from sentdist.execution.training import rank
from sentdist.execution.training import rank as reporter
from sentdist.execution.training.rank import ProgressReporter
from sentdist.learning.loop import StepReport
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.train_setup import ALONE, Ranks
from sentdist.store.store import ArtifactStore
from tests.support.every_stage import one_of_each


class Worker:
    """One of `world_size` workers; its session has three events, at each of which a checkpoint is due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, number: int, world_size: int) -> None:
        self.calls, self.sink, self.run = Mock(), Mock(), Mock()
        self.heartbeats, self.clock, self.reporter = Mock(), Mock(), Mock()
        self.events: list[Any] = ["first", "second", "third"]
        self.error: Exception | None = None
        self.context = Context(store=ArtifactStore(folder), runtime=Runtime(engine="torch", workers=world_size))
        self.stage = one_of_each()["train"]
        self.session = session = SimpleNamespace(progress=SimpleNamespace(step=0), votes=0.0, hold=Mock())
        resumed = SimpleNamespace(session=session, note=None, step=None)
        ranks = Ranks(rank=number, world_size=world_size, exchange=lambda said: [said], gather=lambda said: [said])
        self.clock.return_value.is_due.return_value = True
        self.calls.begin_or_resume.return_value = session
        for name, stand_in in {
            "ranks_here": lambda: ranks,
            "from_rung": lambda *_, **__: resumed,
            "events_until": self._events,
            "Heartbeats": self._beating,
            "CheckpointClock": self.clock,
            "ProgressReporter": self.reporter,
        }.items():
            monkeypatch.setattr(rank, name, stand_in)
        for name in ("use_reserved", "let_freed_memory_go", "_make_tokens", "begin_or_resume", "save_checkpoint", "publish_training"):
            monkeypatch.setattr(rank, name, getattr(self.calls, name))

    @contextmanager
    def _beating(self, stage: Any, sink: Any, *, worker: str) -> Iterator[Any]:
        self.calls.beating(worker)
        yield self.heartbeats

    def _events(self, stage: Any, session: Any, *, vote: Any) -> Iterator[Any]:
        assert vote is self.clock.return_value.vote
        yield from self.events
        if self.error is not None:
            raise self.error

    def train(self) -> None:
        assert isinstance(self.stage, Train)
        rank.train_rank(self.stage, self.context, self.sink, self.run)


@pytest.mark.parametrize(("number", "world_size", "name"), [(0, 1, ""), (0, 2, "rank 0"), (1, 2, "rank 1")])
def test_each_worker_is_known_by_its_number_and_the_first_one_speaks(
    number: int, world_size: int, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = Worker(monkeypatch, tmp_path, number, world_size)
    worker.train()
    worker.calls.beating.assert_called_once_with(name)
    speaks = worker.sink if number == 0 else None
    assert worker.calls.begin_or_resume.call_args.args[3] is speaks
    assert [call.args[3] for call in worker.calls.save_checkpoint.call_args_list] == [speaks] * 3
    assert worker.reporter.called == (number == 0), "or each step would stand on the run once for each worker"
    assert [call.args[0] for call in worker.reporter.return_value.on_event.call_args_list] == (worker.events if number == 0 else [])


@pytest.mark.parametrize("number", [0, 1])
def test_the_clock_knows_whose_it_is_and_whether_the_host_leaves_and_begins_again_at_a_checkpoint(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = Worker(monkeypatch, tmp_path, number, 2)
    worker.train()
    worker.clock.assert_called_once_with(worker.context.runtime, rank=number, is_leaving=worker.heartbeats.is_leaving)
    assert worker.clock.return_value.restart.call_count == worker.calls.save_checkpoint.call_count == 3


@pytest.mark.parametrize("is_owed", [False, True])
def test_where_a_checkpoint_is_owed_the_session_is_held(is_owed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = Worker(monkeypatch, tmp_path, 0, 2)
    worker.clock.return_value.is_due.return_value, worker.clock.return_value.is_owed = False, is_owed
    worker.train()
    assert worker.session.hold.call_count == (3 if is_owed else 0)
    assert not worker.calls.save_checkpoint.called


@pytest.mark.parametrize("error", [None, RuntimeError("a peer is gone")])
def test_a_training_keeps_to_what_it_has_reserved_and_gives_back_what_it_held(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = Worker(monkeypatch, tmp_path, 0, 2)
    worker.error = error
    if error is None:
        worker.train()
    else:
        with pytest.raises(RuntimeError):
            worker.train()
    worker.calls.use_reserved.assert_called_once_with(stage_demand(worker.stage, worker.context.runtime))
    worker.calls.let_freed_memory_go.assert_called_once_with()
    worker.reporter.return_value.close.assert_called_once_with()
    assert worker.calls.publish_training.called == (error is None)


def test_the_first_worker_tells_of_steps_speed_and_machine_and_of_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reporter, "add", lambda metric, amount, **labels: counted.append((metric, amount, labels)))
    sink, run, heartbeats = Mock(), Mock(), Mock()
    history = [{"step": 5, "loss": 0.5}]  # of an attempt before it went on from a checkpoint
    session: Any = SimpleNamespace(history=history, progress=SimpleNamespace(step=5), schedule=SimpleNamespace(num_steps=20))
    reported = ProgressReporter(one_of_each()["train"], session, sink, run, heartbeats)  # type: ignore[arg-type]
    run.watch_system.assert_called_once_with()
    heartbeats.report_step.assert_called_once_with(5, 20), "where it is, before its next step"
    history.append({"step": 6, "loss": 0.25})
    session.progress.step = 6
    step = Mock(spec=StepReport, step=5, num_sentences=24, loss=0.25, seconds=Mock(total=2.0))
    reported.on_event(step)
    assert [(call.args, call.kwargs) for call in run.metrics.call_args_list] == [(({"loss": 0.25},), {"step": 6})]
    assert counted == [(reporter.SENTENCES, 24, {"kind": "train"})]
    assert heartbeats.report_step.call_args.args == (6, 20)
    event = sink.post.call_args.args[0]
    assert (event.what, event.step, event.sentences_per_s) == ("step", 6, 12.0)
    reported.close()
    run.close.assert_called_once_with()


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
