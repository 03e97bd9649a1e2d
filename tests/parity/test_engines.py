"""Engines, ZeRO stages and world sizes move the parameters equally; a resumed training equals one that was not interrupted, and one whose
checkpoint cannot be written trains on."""

from __future__ import annotations

import errno
import gc
import itertools
import math
import os
import weakref
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sentdist.errors import StoreError, TrainingDiverged
from sentdist.learning import engine as engine_module
from sentdist.learning.checkpoint import Progress
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import Objective
from sentdist.learning.optimization import Optimization
from sentdist.recipe.stages import Train
from sentdist.run import deepspeed_engine
from sentdist.run.checkpoints import RunningFolder
from sentdist.run.deepspeed_engine import DeepSpeedEngine
from sentdist.stages.train_setup import ranks_here
from sentdist.store.store import ArtifactStore
from tests.parity.processes import run_in_processes
from tests.parity.toy import ToyBank, ToyEncoder, toy_batches
from tests.support import make
from tests.support.planning import plan_of, small_recipe

pytestmark = pytest.mark.parity

NUM_STEPS = 20


# clip_norm below the gradient's norm in some steps, so that clipping takes part. Weight decay and warm-up likewise.
OPTIMIZATION = Optimization(num_steps=NUM_STEPS, lr=1e-3, warmup_fraction=0.1, weight_decay=0.1, clip_norm=1.5)


# float32 sums in another order differ by about 1e-7 of a parameter of size 1, and AdamW divides gradients by their own size,
# so what it adds up in 20 steps of 1e-3 stays within 20 · 1e-3 · 1e-4 (a gradient known to four digits).
TOLERANCE = 2e-6


ENGINES = ("torch", 0, 3)


def make_engine(kind: str | int, *, dropout: float = 0.0, optimization: Optimization = OPTIMIZATION) -> Engine:
    encoder = ToyEncoder(dropout=dropout).eval()  # as transformers loads a model
    engine = TorchEngine(encoder, optimization) if kind == "torch" else DeepSpeedEngine(encoder, optimization, zero_stage=int(kind))
    assert all(part.training for part in engine.learner.modules()), f"{kind}: dropout is on"
    return engine


def train_toy(
    rank: int, world_size: int, kinds: tuple[str | int, ...]
) -> dict[str | int, tuple[list[float], list[float], dict[str, Tensor]]]:
    """(losses, gradient norms, weights) after NUM_STEPS steps of RCL with two regulator pairs, by engine."""
    results = {}
    for kind in kinds:
        engine = make_engine(kind)
        batches = toy_batches(NUM_STEPS, rank=rank, world_size=world_size)
        steps = train_steps(engine, make.rcl(bank=ToyBank(2)), batches, vote=lambda: rank + 1.0)
        reports = list(itertools.islice(steps, 10))
        evaluate_toy(engine, batches[0])
        reports += steps
        assert {report.votes for report in reports} == {world_size * (world_size + 1) / 2}, f"{kind}: a rank's vote is lost"
        results[kind] = ([report.loss for report in reports], [report.grad_norm for report in reports], engine.weights())
    return results


def evaluate_toy(engine: Engine, batch: Batch) -> None:
    """Embed in the middle of a training, as dev scores do: it must leave no trace."""
    engine.learner.eval()
    with torch.no_grad():
        embeddings = engine.encode(batch.tokens)
    engine.learner.train()
    assert not embeddings.requires_grad
    assert embeddings.isfinite().all()


@pytest.fixture(scope="module")
def reference() -> tuple[list[float], list[float], dict[str, Tensor]]:
    return train_toy(0, 1, ("torch",))["torch"]


@pytest.mark.parametrize(("world_size", "kinds"), [(1, ENGINES), (2, ENGINES)])
def test_engines_and_world_sizes_agree_after_20_steps(
    world_size: int, kinds: tuple[str | int, ...], reference: tuple[list[float], list[float], dict[str, Tensor]]
) -> None:
    losses, norms, weights = reference
    results = run_in_processes(train_toy, world_size, kinds)
    for kind in kinds:
        found_losses, found_norms, found_weights = results[0][kind]
        assert found_losses == pytest.approx(losses, rel=1e-5), kind
        assert found_norms == pytest.approx(norms, rel=1e-4), kind
        assert found_weights.keys() == weights.keys()
        for name, weight in weights.items():
            torch.testing.assert_close(
                found_weights[name], weight, atol=TOLERANCE, rtol=0, msg=lambda text, at=(kind, name): f"{at}: {text}"
            )
        assert all(results[rank][kind][2] == {} for rank in range(1, world_size))
    assert min(norms) < OPTIMIZATION.clip_norm < max(norms), "clipping should take part in some steps, not in all"


def descend(rank: int, world_size: int, precision: str) -> dict[str | int, tuple[dict[str, Tensor], float]]:
    """By engine: what one step of plain descent at a rate of 1 takes off the weights, which is the averaged gradient; and its norm."""

    def plain(module: nn.Module, optimization: Optimization) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), lr=optimization.lr, fused=True)

    setattr(engine_module, "adamw", plain)  # noqa: B010 - this process is the test's own
    setattr(deepspeed_engine, "adamw", plain)  # noqa: B010
    optimization = Optimization(num_steps=10, lr=1.0, weight_decay=0.0, clip_norm=None, precision=precision)
    found = {}
    for kind in ENGINES:
        engine = make_engine(kind, optimization=optimization)
        before = engine.weights()
        (report,) = train_steps(engine, make.rcl(bank=ToyBank(2)), toy_batches(1, rank=rank, world_size=world_size))
        found[kind] = (
            {
                name: weight - engine_weights
                for (name, weight), engine_weights in zip(before.items(), engine.weights().values(), strict=True)
            },
            report.grad_norm,
        )
    return found


def test_every_engine_averages_gradients_in_float32_also_in_bf16() -> None:
    found = run_in_processes(descend, 2, "bf16")[0]
    expected, norm = found["torch"]
    assert norm > 0.1
    for kind, (gradient, its_norm) in found.items():
        off = math.sqrt(sum(float((gradient[name] - one).square().sum()) for name, one in expected.items()))
        # The weights are of size 1 and known to 6e-8 each; a sum rounded to bfloat16 was off by 2e-3.
        assert off / norm < 1e-5, (kind, off / norm)
        assert its_norm == pytest.approx(norm, rel=1e-5), kind


def train_and_resume(rank: int, world_size: int, folder: str, kinds: tuple[str | int, ...]) -> dict[str | int, tuple[dict, dict, int]]:
    """Weights of 12 steps at a stretch, and of 7 steps, a checkpoint, a new engine and 5 more."""
    results = {}
    for kind in kinds:
        objective = make.rcl(bank=ToyBank(2))
        batches = toy_batches(12, rank=rank, world_size=world_size)
        place = Path(folder) / f"{kind}-{world_size}"

        torch.manual_seed(100 + rank)
        whole = make_engine(kind, dropout=0.3)
        steps = train_steps(whole, objective, batches)
        list(itertools.islice(steps, 7))
        whole.save(place, progress=Progress(step=7, epoch=0, step_in_epoch=7, best_score=81.5, best_step=5))
        list(steps)
        expected = whole.weights()

        torch.manual_seed(999)  # a fresh process knows nothing of the old one's random state
        resumed = make_engine(kind, dropout=0.3)
        progress = resumed.load(place)
        list(train_steps(resumed, objective, batches[progress.step_in_epoch :], start=progress.step))
        results[kind] = (expected, resumed.weights(), progress.step)
    return results


def held_after_training(rank: int, world_size: int) -> dict[str | int, list[str]]:
    """What of a training is still there after its engine is gone, by engine."""
    held: dict[str | int, list[str]] = {}
    linear = nn.functional.linear
    for kind in ENGINES:
        engine = make_engine(kind)
        list(train_steps(engine, make.rcl(bank=ToyBank(2)), toy_batches(3, rank=rank, world_size=world_size)))
        optimizer = engine._optimizer if isinstance(engine, TorchEngine) else engine._engine.optimizer  # type: ignore[attr-defined]
        parts = {"encoder": weakref.ref(engine.learner), "optimizer": weakref.ref(optimizer)}
        del engine, optimizer
        gc.collect()  # the engine itself, which lets go
        gc.collect()
        held[kind] = [name for name, part in parts.items() if part() is not None]
        held[kind] += ["linear"] if nn.functional.linear is not linear else []
    return held


def test_a_process_that_trains_one_encoder_after_another_keeps_none() -> None:
    """On a GPU each would leave its weights, and what the optimizer holds, to the next one's; and stage 3 its products to all after it."""
    assert run_in_processes(held_after_training, 1) == [{kind: [] for kind in ENGINES}]


def test_resumed_equals_uninterrupted_with_dropout(tmp_path: Path) -> None:
    results = run_in_processes(train_and_resume, 2, str(tmp_path), ENGINES)[0]
    for kind, (expected, resumed, step) in results.items():
        assert step == 7
        for name, weight in expected.items():
            # Bit for bit: same numbers, same order, same random state.
            assert torch.equal(resumed[name], weight), (kind, name)


def save_checkpoints(rank: int, world_size: int, folder: str) -> None:
    for kind in ("torch", 0, 3):
        make_engine(kind).save(Path(folder) / str(kind), progress=Progress(step=3))


def load_checkpoints(rank: int, world_size: int, folder: str) -> list[str | int]:
    outcomes: list[str | int] = []
    for wrote, reads in (("torch", "torch"), (0, 0), (3, 3), ("torch", 0), (3, 0)):
        try:
            outcomes.append(make_engine(reads).load(Path(folder) / str(wrote)).step)
        except StoreError as error:
            outcomes.append(error.found)
    return outcomes


def test_whole_states_load_at_another_world_size_and_shares_are_refused(tmp_path: Path) -> None:
    run_in_processes(save_checkpoints, 2, str(tmp_path))
    outcomes = run_in_processes(load_checkpoints, 1, str(tmp_path))[0]
    torch_workers, zero_three = (
        "a checkpoint of the torch engine on 2 workers",
        "a checkpoint of the deepspeed engine, ZeRO stage 3 on 2 workers",
    )
    assert outcomes == [3, 3, zero_three, torch_workers, zero_three]


class BadOnRankOne(Objective):
    """Eq. 1 whose value, or only whose gradient, is not finite on rank 1."""

    def __init__(self, rank: int, *, only_gradient: bool) -> None:
        self.is_bad, self.only_gradient = rank == 1, only_gradient

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        loss = make.info_nce()(embeddings, batch)
        if not self.is_bad:
            return loss
        return loss + (embeddings * 0).sum().sqrt() if self.only_gradient else loss * math.inf


def stop_toy(rank: int, world_size: int) -> list[tuple[str | int, bool, str, bool]]:
    """(engine, whether only the gradient is bad, what was found, whether the weights stayed)."""
    outcomes = []
    for kind, only_gradient in itertools.product(ENGINES, (False, True)):
        engine = make_engine(kind)
        batches = toy_batches(4, rank=rank, world_size=world_size)
        list(train_steps(engine, make.info_nce(), batches[:3]))
        before = engine.weights()
        try:
            list(train_steps(engine, BadOnRankOne(rank, only_gradient=only_gradient), batches[3:], start=3))
            found = "nothing"
        except TrainingDiverged as error:
            found = error.where
        after = engine.weights()
        outcomes.append((kind, only_gradient, found, all(torch.equal(after[name], weight) for name, weight in before.items())))
    return outcomes


def test_what_is_not_finite_on_one_rank_stops_all_before_the_optimizer() -> None:
    for rank, outcomes in enumerate(run_in_processes(stop_toy, 2)):
        assert len(outcomes) == 2 * len(ENGINES)
        for kind, only_gradient, where, is_unmoved in outcomes:
            expected = "step 3, gradient" if only_gradient else f"step 3, rows {4 * rank} to {4 * rank + 3} of the batch"
            assert (where, is_unmoved) == (expected, True), (kind, only_gradient)


def save_on_a_full_disk(rank: int, world_size: int, folder: str, place: str) -> dict[str | int, tuple[str | None, int]]:
    """What `RunningFolder.save` says where the last rank finds no room at a place, and how many steps come after it."""
    stage = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    found: dict[str | int, tuple[str | None, int]] = {}
    for kind in ("torch", 1):
        engine = make_engine(kind)
        batches = toy_batches(2, rank=rank, world_size=world_size)
        list(train_steps(engine, make.rcl(bank=ToyBank(2)), batches[:1]))
        running = RunningFolder(ArtifactStore(f"{folder}/{kind}"), stage, ranks_here())

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.MonkeyPatch.context() as patched:
            if rank == world_size - 1:
                for owner in PLACES[place]:
                    patched.setattr(owner, full)
            problem = running.save(partial(engine.save, progress=Progress(step=1)), step=1)
        found[kind] = problem, len(list(train_steps(engine, make.rcl(bank=ToyBank(2)), batches[1:])))
    return found


PLACES = {
    "its random state": ("sentdist.run.deepspeed_engine.save_rng", "sentdist.learning.engine.save_rng"),
    "DeepSpeed's own files": ("deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine.TorchCheckpointEngine.save",),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_checkpoint_that_one_rank_cannot_write_is_said_on_all_and_training_goes_on(place: str, tmp_path: Path) -> None:
    for of_rank in run_in_processes(save_on_a_full_disk, 2, str(tmp_path), place):
        for kind, (problem, num_steps) in of_rank.items():
            writes_on_the_last_rank = kind == 1 or place != "DeepSpeed's own files"  # without ZeRO the first rank alone writes weights
            assert (problem is not None) is writes_on_the_last_rank and num_steps == 1, (kind, problem)
