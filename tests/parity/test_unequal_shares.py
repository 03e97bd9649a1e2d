"""Ranks that do not divide the batch: shares differ by a row, value and gradient are those of the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError
from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.gather import gather_rows, local_rows
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import word_batches
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, Outcome, made_objective, on, two_steps

pytestmark = pytest.mark.parity

RANKS = 3
M = 8  # 3, 3 and 2 rows, as the batches of `two_steps`
HIDING = ("mlm", "sum")  # each rank draws for itself which words it hides; test_masked_lm.py compares fixed ones


def _rows_and_gradient(rank: int, world_size: int) -> tuple[Tensor, Tensor, str]:
    """What is gathered; the gradient of this rank's rows where each rank weights the rows otherwise; what is said of wrong shares."""
    rows_MD = torch.arange(M * 2, dtype=torch.float64).reshape(M, 2)
    own = local_rows(M, rank=rank, world_size=world_size)
    own_BD = rows_MD[own.start : own.stop].requires_grad_()
    gathered_MD = gather_rows(own_BD, of=M)
    (gathered_MD * rows_MD * 10**rank).sum().backward()
    assert own_BD.grad is not None
    with pytest.raises(DataError) as refused:
        gather_rows(rows_MD[:1], of=M)
    return gathered_MD.detach(), own_BD.grad, str(refused.value)


def test_rows_come_in_rank_order_and_their_gradient_comes_back_summed() -> None:
    rows_MD = torch.arange(M * 2, dtype=torch.float64).reshape(M, 2)
    found = run_in_processes(_rows_and_gradient, RANKS)
    assert all(torch.equal(gathered, rows_MD) for gathered, _, _ in found)
    assert torch.equal(torch.cat([gradient for _, gradient, _ in found]), rows_MD * 111)
    assert "found 1 rows on rank 2 of 3; expected its 2 of 8" in found[2][2]


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
MICRO_BATCHES = {"info_nce": (6, 1), "mlm": (6, 1)}  # two passes where one would do; nine passes of six sentences


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
