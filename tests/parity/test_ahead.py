"""A training that runs ahead of its device, and tokens that ranks make together: equal to what one does step by step, alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sentdist.execution.training.rank import _make_tokens
from sentdist.learning.engine import TorchEngine
from sentdist.learning.optimization import Optimization
from sentdist.plan.stage import Json
from sentdist.plan.stages import Tokens, Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import load_start_tokenizer, ranks_here, tokens_of
from tests.parity.processes import run_in_processes
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.parity


def _training(values: dict[str, Json], data: Path, store: Path) -> tuple[Train, Context]:
    plan, context = tiny_plan(values, data=data, store=store)
    return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is not None and not stage.banks), context


def _points(session: TrainSession) -> list[dict[str, Json]]:
    return [{name: value for name, value in point.items() if name not in ("at", "sentences_per_s")} for point in session.history]


def _ahead(encoder: nn.Module, optimization: Optimization) -> TorchEngine:
    engine = TorchEngine(encoder, optimization)
    engine.runs_ahead = True  # as on a GPU
    return engine


@pytest.mark.usefixtures("one_thread")
def test_a_training_that_is_read_now_and_then_is_the_same_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Dropout on, two epochs, dev scores between: weights, curve and scores to the last bit; a checkpoint is of what was read."""
    values = tiny_values(
        tiny_encoder_dir,
        training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20},
        runtime={"engine": "torch", "log_every": 2},
    )
    stage, context = _training(values, write_data(tmp_path / "data"), tmp_path / "store")
    build_here(stage.corpus, context)
    found: list[Any] = []
    for make_engine in (TorchEngine, _ahead):
        session = TrainSession(stage, context, make_engine=make_engine, bank=None)
        kinds = [type(event).__name__ for event in session.events()]
        found.append((kinds, _points(session), session.progress, session.engine.weights()))
    assert found[0][:3] == found[1][:3] and found[0][0].count("DevScore") >= 2
    assert all(torch.equal(weight, found[1][3][name]) for name, weight in found[0][3].items())

    stopped = TrainSession(stage, context, make_engine=_ahead, bank=None)
    events = stopped.events()
    while stopped.progress.step < 4:
        next(events)
    with pytest.raises(RuntimeError, match="another one has begun"):
        stopped.save(tmp_path / "checkpoint")  # the fourth has a point of the curve, which is read a step late
    stopped.hold()
    next(events)
    assert stopped.progress.step == 5
    stopped.save(tmp_path / "checkpoint")
    events.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "batches"]
    resumed = TrainSession(stage, context, make_engine=_ahead, bank=None)
    resumed.load(tmp_path / "checkpoint")
    list(resumed.events())
    assert all(torch.equal(weight, resumed.engine.weights()[name]) for name, weight in found[0][3].items())
    assert _points(resumed) == found[0][1], "one point is of a step before the checkpoint and one behind it"


class _Counted(TorchEngine):
    """As on a GPU; counts the steps that it has begun."""

    def __init__(self, encoder: nn.Module, optimization: Optimization) -> None:
        super().__init__(encoder, optimization)
        self.runs_ahead, self.num_steps = True, 0

    def step_unread(self, loss: Tensor, *, vote: float = 0.0) -> Tensor | None:
        self.num_steps += 1
        return super().step_unread(loss, vote=vote)


@pytest.mark.usefixtures("one_thread")
def test_a_training_waits_for_its_device_at_points_of_the_curve_and_at_the_end_alone(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Six steps, a point after each fourth and after the first: by a step's report so many steps have begun, one more than it needs."""
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "log_every": 4})
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    stage = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is None)
    build_here(stage.corpus, context)
    session = TrainSession(stage, context, make_engine=_Counted, bank=None)
    engine = session.engine
    assert isinstance(engine, _Counted)
    found = [(event.step, engine.num_steps) for event in session.events()]
    assert found == [(0, 2), (1, 5), (2, 5), (3, 5), (4, 6), (5, 6)]


def _made_on_rank(rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path) -> int:
    stage, context = _training(values, data, store)
    _make_tokens(stage, context, ranks_here())
    _make_tokens(stage, context, ranks_here())  # there is nothing more to do
    return len(list(context.store.artifacts(Tokens.kind)))


def test_ranks_make_the_tokens_of_a_corpus_together(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Each makes its shards of seven sentences; what lies in the store is what one process makes."""
    data = write_data(tmp_path / "data")
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "workers": 2, "rows_per_shard": 7})
    tables = []
    for name in ("together", "alone"):
        stage, context = _training(values, data, tmp_path / name)
        build_here(stage.corpus, context)
        if name == "together":
            assert run_in_processes(_made_on_rank, 2, values, data, tmp_path / name) == [1, 1]
        tables.append(tokens_of(stage, context, load_start_tokenizer(stage, context)))
        assert len(list(context.store.artifacts(Tokens.kind))) == 1
    assert all((getattr(tables[0], name) == getattr(tables[1], name)).all() for name in ("ids", "bounds"))
