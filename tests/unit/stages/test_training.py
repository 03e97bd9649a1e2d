"""Training steps: what a report says, what stops a run before the optimizer is touched, and the share of each rank."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from sentdist.errors import DataError, ResourceError, SentdistError, TrainingDiverged
from sentdist.learning.bank import HostBank
from sentdist.learning.checkpoint import Progress
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.gather import local_rows
from sentdist.learning.loop import StepReport, StepSeconds, train_steps
from sentdist.learning.objective import Objective
from sentdist.learning.optimization import Optimization, adamw
from sentdist.recipe.stages import Train
from sentdist.stages.local import build_here
from sentdist.stages.train import Curve
from sentdist.stages.train_setup import RankBatches, Ranks, load_start_tokenizer
from tests.parity.toy import ToyBank, ToyEncoder, toy_batches
from tests.support import make
from tests.support.rank_threads import on_ranks
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

OPTIMIZATION = Optimization(num_steps=10, lr=1e-2, warmup_fraction=0.2)


class PoisonedAfter(Objective):
    """An objective whose loss is `factor` times Eq. 1 from the given step on."""

    def __init__(self, step: int, factor: float) -> None:
        self.step, self.factor = step, factor

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        loss = make.info_nce()(embeddings, batch)
        self.step -= 1
        return loss if self.step >= 0 else loss * self.factor


class InfiniteGradient(Objective):
    """An objective with a finite value and a gradient that is not."""

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        return (embeddings * 0).sum().sqrt()


def frozen_state(engine: TorchEngine) -> list[Tensor]:
    parameters = list(engine.learner.parameters())
    return [tensor.clone() for parameter in parameters for tensor in (parameter, *engine._optimizer.state.get(parameter, {}).values())]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_loss_that_is_not_finite_stops_before_the_optimizer(tmp_path: Path) -> None:
    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    steps = train_steps(engine, PoisonedAfter(3, float("nan")), toy_batches(10))
    list(itertools.islice(steps, 3))
    engine.save(tmp_path / "step-3", progress=Progress(step=3))
    before = frozen_state(engine)
    with pytest.raises(TrainingDiverged, match=r"step 3, rows 0 to 7 of the batch") as caught:
        next(steps)
    assert_equal(frozen_state(engine), before)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    # The last good checkpoint is the way out.
    resumed = TorchEngine(ToyEncoder(seed=9), OPTIMIZATION)
    assert resumed.load(tmp_path / "step-3").step == 3
    assert_equal(frozen_state(resumed), before)


def test_a_gradient_that_is_not_finite_stops_before_the_optimizer() -> None:
    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    before = [parameter.clone() for parameter in engine.learner.parameters()]
    with pytest.raises(TrainingDiverged, match="step 5, gradient: found norm nan"):
        next(train_steps(engine, InfiniteGradient(), toy_batches(1), start=5))
    assert_equal(list(engine.learner.parameters()), before)


def test_shares_of_a_batch_cover_it_in_rank_order() -> None:
    for num_rows, shares in ((6, [2, 2, 2]), (8, [3, 3, 2]), (7, [3, 2, 2])):
        rows = [local_rows(num_rows, rank=rank, world_size=3) for rank in range(3)]
        assert [len(own) for own in rows] == shares and [row for own in rows for row in own] == list(range(num_rows))
    for num_rows, world_size in ((2, 4), (0, 2)):
        with pytest.raises(ResourceError, match=f"{num_rows} rows for {world_size} workers"):
            local_rows(num_rows, rank=0, world_size=world_size)


def test_options_out_of_range_are_refused() -> None:
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValidationError, match="temperature"):
            make.info_nce(temperature=wrong)
        with pytest.raises(ValidationError, match="temperature"):
            make.rcl(bank=ToyBank(1), regulator_temperature=wrong)
    with pytest.raises(ValidationError, match="phi"):
        make.entropy(phi=float("nan"))


def test_vectors_do_not_decay() -> None:
    encoder = ToyEncoder()
    decays = {id(parameter): group["weight_decay"] for group in adamw(encoder, OPTIMIZATION).param_groups for parameter in group["params"]}
    found = {name: decays[id(parameter)] for name, parameter in encoder.named_parameters()}
    assert found == {"tokens.weight": 0.01, "dense.weight": 0.01, "norm.weight": 0, "norm.bias": 0, "dense.bias": 0}


def test_a_point_of_a_curve_is_the_mean_of_the_steps_since_the_last() -> None:
    took = StepSeconds(data=0.0, forward=0.5, loss=0.0, backward=0.0, optimizer=0.0, waiting=0.0)
    reports = [
        StepReport(step=step, loss=loss, grad_norm=1.0, lr=0.1, num_sentences=10 + step, seconds=took)
        for step, loss in enumerate((8.0, 6.0, 4.0, 1.0))
    ]
    whole, before, after = (Curve(log_every=every) for every in (2, 4, 4))
    for report in reports:
        whole.add(report)
    points = [(point["step"], point["loss"], point["sentences_per_s"]) for point in whole.history]
    assert points == [(1, 8.0, 20.0), (2, 6.0, 22.0), (4, 2.5, 25.0)] and whole.summary()["sentences_per_s"] == 23.0
    for report in reports[:2]:
        before.add(report)
    after.go_on(before.since_last_point())
    for report in reports[2:]:
        after.add(report)
    assert (after.history[-1]["step"], after.history[-1]["loss"]) == (4, 11 / 3), "as if nothing had been between"


def _error(rank: int) -> DataError:
    return DataError(where=f"rank {rank}", found="nothing", expected="a row", remedy="Look there.")


@pytest.mark.parametrize("failing", [(0,), (1, 2)])
def test_the_first_error_of_a_rank_is_raised_on_all_and_what_follows_is_not_done(failing: tuple[int, ...]) -> None:
    done: list[int] = []

    def act(ranks: Ranks) -> None:
        with ranks.errors_on_all():
            if ranks.rank in failing:
                raise _error(ranks.rank)
        done.append(ranks.rank)

    errors = on_ranks(3, act)
    assert [error.where for error in errors if isinstance(error, SentdistError)] == [f"rank {failing[0]}"] * 3
    assert not done
    assert on_ranks(3, lambda ranks: ranks.from_first(lambda: f"made by {ranks.rank}")) == ["made by 0"] * 3
    assert on_ranks(3, lambda ranks: ranks.first_said(f"{ranks.rank}" if ranks.rank else None)) == ["1"] * 3


class NumberedBank(HostBank):
    """Two encoders: of sentence s the first says s, the second −s; in float16."""

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        ids = torch.from_numpy(np.asarray(sentence_ids).ravel()).half()
        return torch.stack([ids, -ids])[:, :, None].expand(-1, -1, 3)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> RankBatches:
    """Of two epochs of batches of 8."""
    values = tiny_values(tiny_encoder_dir, training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20})
    plan, context = tiny_plan(values, data=write_data(tmp_path_factory.mktemp("data")), store=tmp_path_factory.mktemp("store"))
    stage = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.num_columns == 3)
    build_here(stage.corpus, context)
    return RankBatches(stage, context, tokenizer=load_start_tokenizer(stage, context), bank=NumberedBank())


def _shares(batches: RankBatches, world_size: int) -> list[list[tuple[int, int, Batch]]]:
    return [list(batches.beginning_at(0, 0, rank=rank, world_size=world_size)) for rank in range(world_size)]


@pytest.mark.parametrize(("world_size", "sizes"), [(3, [3, 3, 2])])
def test_ranks_share_each_batch_and_each_looks_up_its_own_rows_alone(batches: RankBatches, world_size: int, sizes: list[int]) -> None:
    """Rows of a bank travel in the type that they are stored in: half of float32."""
    (whole,), shares = _shares(batches, 1), _shares(batches, world_size)
    assert len(whole) == 2 * whole[0][1] and {len(share) for share in shares} == {len(whole)}
    for (place, num_steps, one), *parts in zip(whole, *shares, strict=True):
        for (own_place, own_num_steps, own), first, size in zip(parts, np.cumsum([0, *sizes]), sizes, strict=False):
            assert (own_place, own_num_steps, own.first_row, own.num_rows) == (place, num_steps, first, size)
            assert np.array_equal(own.sentence_ids, one.sentence_ids)
            rows = [column * 8 + first + row for column in range(3) for row in range(size)]
            assert own.tokens.lengths == one.tokens.take(rows).lengths
            assert torch.equal(own.tokens.token_ids, one.tokens.take(rows).token_ids)
            assert own.augmented is not None and own.augmented.dtype == torch.float16
            ids_CB = torch.from_numpy(one.sentence_ids[:2, first : first + size]).half()
            assert torch.equal(own.augmented[..., 0], torch.stack([ids_CB, -ids_CB]))


def test_a_training_goes_on_where_it_stood(batches: RankBatches) -> None:
    (whole,) = _shares(batches, 1)
    left = list(batches.beginning_at(1, 2, rank=0, world_size=1))
    assert len(left) == whole[0][1] - 2 > 0
    for (place, _, one), (expected_place, _, expected) in zip(left, whole[-len(left) :], strict=True):
        assert place == expected_place and np.array_equal(one.sentence_ids, expected.sentence_ids)
