"""SupMPN's loss equals obvious loops over anchors, positives and candidates in float64, value and gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning import grad_cache as anchor_blocks
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.objectives.supmpn import Masked, SupMPN, supmpn
from tests.parity.processes import run_in_processes
from tests.support import make

pytestmark = pytest.mark.parity

M, D = 5, 4
# Sums of a few dozen float64 terms of size e²⁰ at most, seen through a logarithm.
FLOAT64 = {"atol": 1e-12, "rtol": 1e-11}


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())


def loop_supmpn(anchors: Tensor, positives: Tensor, negatives: Tensor, temperature: float, masked: Masked, phi: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    num_positives, num_negatives = positives.shape[1], negatives.shape[1]
    for i in range(len(anchors)):
        others = [
            torch.exp(cosine(anchors[i], positives[j, k]) / temperature)
            for j in range(len(positives))
            for k in range(num_positives)
            if j != i
        ]
        others += [
            torch.exp(cosine(anchors[i], negatives[j, k]) / temperature) for j in range(len(negatives)) for k in range(num_negatives)
        ]
        for k in range(num_positives):
            own = torch.exp(cosine(anchors[i], positives[i, k]) / temperature)
            denominator = own + sum(others)
            if masked == "zero":
                for other in range(num_positives):
                    if other != k:
                        denominator = denominator + math.exp(0)
            total = total - torch.log(own / denominator) / num_positives
            for other_candidate in others:
                share = other_candidate / denominator
                total = total - phi * share * torch.log(share) / num_positives
    return total / len(anchors)


def random_columns(num_positives: int, num_negatives: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = [(M, D), (M, num_positives, D), (M, num_negatives, D)]
    return [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("phi", [0.0, 0.04, -0.3])
@pytest.mark.parametrize("masked", ["excluded", "zero"])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize(("num_positives", "num_negatives"), [(1, 0), (1, 1), (1, 4), (3, 0), (3, 2), (5, 5)])
def test_loss(num_positives: int, num_negatives: int, temperature: float, masked: Masked, phi: float) -> None:
    columns = random_columns(num_positives, num_negatives)
    found = supmpn(*columns, first_row=0, temperature=temperature, masked=masked, phi=phi)
    expected = loop_supmpn(*columns, temperature=temperature, masked=masked, phi=phi)
    torch.testing.assert_close(found, expected, **FLOAT64)
    inputs = columns if num_negatives else columns[:2]
    for ours, loops in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, loops, **FLOAT64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_are_scored_in_float32(dtype: torch.dtype) -> None:
    columns = [column.detach().to(dtype) for column in random_columns(3, 2)]
    found = supmpn(*columns, first_row=0, temperature=0.05, phi=0.04)
    assert found.dtype == torch.float32
    expected = loop_supmpn(*(column.double() for column in columns), temperature=0.05, masked="excluded", phi=0.04)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)  # float32 logits of size 20


def test_an_easy_row_keeps_its_small_loss() -> None:
    """−log σ(own − rivals) is not lost in the rounding of float32: own cosine 1, every rival −1 at τ = 0.05 gives 7·e^{−40}."""
    anchors = torch.ones(1, 1)
    positives, negatives = torch.full((4, 1, 1), -1.0), torch.full((4, 1, 1), -1.0)
    positives[0] = 1.0
    assert float(supmpn(anchors, positives, negatives, first_row=0, temperature=0.05)) == pytest.approx(7 * math.exp(-40), rel=1e-4)


OBJECTIVES = [SupMPN(), SupMPN(masked="zero", temperature=0.3), SupMPN(phi=0.04, temperature=1.0)]
NUM_ROWS, NUM_POSITIVES, NUM_NEGATIVES = 8, 3, 2


def inputs() -> tuple[Tensor, Tensor]:
    """(C, M, D) sentences column by column, and the (D, D) weights of a linear encoder."""
    generator = torch.Generator().manual_seed(4)
    columns = torch.randn(1 + NUM_POSITIVES + NUM_NEGATIVES, NUM_ROWS, D, dtype=torch.float64, generator=generator)
    return columns, torch.randn(D, D, dtype=torch.float64, generator=generator)


def loss_and_gradient(rank: int, world_size: int) -> list[tuple[float, Tensor]]:
    """Of each objective over embeddings X·W: the loss averaged over ranks and the gradient of W averaged over ranks."""
    columns_CMD, start = inputs()
    rows = local_rows(NUM_ROWS, rank=rank, world_size=world_size)
    lengths = (1,) * (len(columns_CMD) * len(rows))
    tokens = TokenBatch(
        token_ids=torch.ones(len(lengths), dtype=torch.int64), boundaries=torch.arange(len(lengths) + 1, dtype=torch.int32), lengths=lengths
    )
    ids_CM = np.arange(len(columns_CMD) * NUM_ROWS).reshape(len(columns_CMD), NUM_ROWS)
    batch = Batch(tokens=tokens, num_columns=len(columns_CMD), first_row=rows.start, sentence_ids=ids_CM, num_positives=NUM_POSITIVES)
    results = []
    for objective in OBJECTIVES:
        weight = torch.nn.Parameter(start.clone())
        loss = make.made(objective)((columns_CMD[:, rows.start : rows.stop] @ weight).flatten(0, 1), batch)
        loss.backward()
        average_gradients([weight])
        results.append((loss.item(), weight.grad))
    return results


def loops() -> list[tuple[float, Tensor]]:
    columns_CMD, start = inputs()
    results = []
    for objective in OBJECTIVES:
        weight = start.clone().requires_grad_()
        anchors, *others = columns_CMD @ weight
        positives, negatives = torch.stack(others[:NUM_POSITIVES], dim=1), torch.stack(others[NUM_POSITIVES:], dim=1)
        loss = loop_supmpn(anchors, positives, negatives, objective.temperature, objective.masked, objective.phi)
        loss.backward()
        results.append((loss.item(), weight.grad))
    return results


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_batch_of_columns_over_any_number_of_ranks_equals_the_loops(world_size: int) -> None:
    ranks = [loss_and_gradient(0, 1)] if world_size == 1 else run_in_processes(loss_and_gradient, world_size)
    for k, (loss, gradient) in enumerate(loops()):
        assert math.isclose(sum(rank[k][0] for rank in ranks) / world_size, loss, rel_tol=1e-11)
        for rank in ranks:
            torch.testing.assert_close(rank[k][1], gradient, **FLOAT64)


def test_blocks_of_anchors_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loss_and_gradient(0, 1)
    monkeypatch.setattr(anchor_blocks, "LOGITS_AT_ONCE", 3 * NUM_ROWS * (NUM_POSITIVES + NUM_NEGATIVES))  # blocks of 3, 3 and 2 anchors
    for (loss, gradient), (whole_loss, whole_gradient) in zip(loss_and_gradient(0, 1), whole, strict=True):
        assert math.isclose(loss, whole_loss, rel_tol=1e-12)
        torch.testing.assert_close(gradient, whole_gradient, **FLOAT64)
