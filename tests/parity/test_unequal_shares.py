"""Every objective learns the same on one rank, on ranks that do not divide the batch, and on a GPU, which is pretended here."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from sentdist.run.deepspeed_engine import DeepSpeedEngine
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import word_batches
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, Outcome, made_objective, on, step_within, two_steps
from tests.support.pretend_gpu import nobody_waits, pretended_gpu

pytestmark = [
    pytest.mark.parity, pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'"),
]  # fmt: skip

RANKS = 3


HIDING = ("mlm", "sum")  # each rank draws for itself which words it hides; test_masked_lm.py compares fixed ones


def _steps_on_rank(rank: int, world_size: int, folder: Path) -> dict[str, Outcome]:
    torch.set_num_threads(1)
    return {name: two_steps(name, folder, on("cpu"), rank=rank, world_size=world_size) for name in NAMES if name not in HIDING}


@pytest.mark.usefixtures("one_thread")
def test_every_objective_learns_what_it_learns_on_one_rank(tmp_path: Path) -> None:
    folder = maskable_encoder(tmp_path)
    found, *_ = run_in_processes(_steps_on_rank, RANKS, folder)
    for name, outcome in found.items():
        expected = two_steps(name, folder, on("cpu"))
        assert outcome.losses == pytest.approx(expected.losses, rel=1e-5), name  # sums in another order
        assert outcome.distance(expected) < 1e-5, name


ROWS = 5  # of triplets, on two ranks: 9 and 6 sentences


MICRO_BATCHES = {"info_nce": (1,), "mlm": (6,)}  # nine passes of six sentences; two passes where one would do


def _losses_on_rank(rank: int, world_size: int, folder: Path, zero_stages: tuple[int | None, ...]) -> list[list[float]]:
    """Of two steps by objective and micro-batch, for each of these engines; None: torch's."""
    torch.set_num_threads(1)
    found = []
    for zero_stage in zero_stages:
        for name, micro_batch in ((name, size) for name, sizes in MICRO_BATCHES.items() for size in sizes):
            torch.manual_seed(0)
            encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
            objective = made_objective(name, encoder, "fp32", micro_batch)
            learner, how = Learner(encoder, objective), Optimization(num_steps=2, lr=1e-3)
            engine: Engine = TorchEngine(learner, how) if zero_stage is None else DeepSpeedEngine(learner, how, zero_stage=zero_stage)
            batches = word_batches(encoder, 2, rank=rank, world_size=world_size, num_rows=ROWS)
            torch.manual_seed(1 + rank)
            found.append([report.loss for report in train_steps(engine, objective, batches, micro_batch=micro_batch)])
    return found


@pytest.mark.usefixtures("one_thread")
def test_ranks_run_equally_many_micro_batches(tmp_path: Path) -> None:
    """ZeRO stage 3 gathers parameters in each: with another number of them on another rank it waited forever."""
    folder = maskable_encoder(tmp_path)
    by_torch, by_zero = (run_in_processes(_losses_on_rank, 2, folder, (engine,)) for engine in (None, 3))
    for found, expected in zip(by_zero, by_torch, strict=True):
        assert found == [pytest.approx(losses, rel=1e-5) for losses in expected]
    alone = _losses_on_rank(0, 1, folder, (None,))[: len(MICRO_BATCHES["info_nce"])]
    assert by_zero[0][: len(alone)] == [pytest.approx(losses, rel=1e-5) for losses in alone]


CROSSING = ("info_nce", "rcl", "sum")  # with a head, adversaries and hidden words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))


@pytest.mark.usefixtures("plain_layers")
@pytest.mark.parametrize("name", NAMES)
def test_every_objective_learns_there_what_it_learns_here(name: str, folder: Path) -> None:
    here = two_steps(name, folder, on("cpu"), micro_batch=5)
    there = two_steps(name, folder, pretended_gpu(), micro_batch=5)
    assert here.gradients and any(gradient.abs().max() > 1e-4 for gradient in here.gradients.values())
    # The same operations, by the same processor.
    assert there.losses == pytest.approx(here.losses, rel=1e-6)
    assert there.gradients.keys() == here.gradients.keys()
    assert there.distance(here) < 1e-6
    for weight_name, weight in here.weights.items():
        torch.testing.assert_close(there.weights[weight_name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_within_a_step_nobody_waits(name: str, folder: Path) -> None:
    """No number is read, no shape learnt, and copies come out of pinned memory."""
    step_within(nobody_waits, name, folder, pretended_gpu(), micro_batch=5)


@pytest.mark.parametrize("family", ["mpnet"])
def test_a_family_whose_attention_has_no_kernel_there_learns_the_same(family: str, tmp_path: Path) -> None:
    folder = maskable_encoder(tmp_path, family)
    here, there = (two_steps("info_nce", folder, device) for device in (on("cpu"), pretended_gpu()))
    assert there.losses == pytest.approx(here.losses, rel=1e-5) and there.distance(here) < 1e-5
    step_within(nobody_waits, "info_nce", folder, pretended_gpu(), micro_batch=None)


def there(rank: int, world_size: int, folder: Path) -> list[Outcome]:
    torch.set_num_threads(1)
    with warnings.catch_warnings(action="ignore"):
        return [two_steps(name, folder, pretended_gpu(), rank=rank, world_size=world_size) for name in CROSSING]


def test_what_crosses_ranks_in_a_step_lies_on_the_gpu(folder: Path) -> None:
    """The pretended GPU's collectives serve nothing else but flags, as those of NCCL would; the loss is that of the whole batch."""
    for name, outcome in zip(CROSSING, run_in_processes(there, 2, folder)[0], strict=True):
        if name != "sum":  # ranks hide words each by itself
            assert outcome.losses == pytest.approx(two_steps(name, folder, on("cpu")).losses, rel=1e-5)  # sums in another order
