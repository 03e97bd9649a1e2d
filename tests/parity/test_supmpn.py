"""SupMPN's loss equals obvious loops over anchors, positives and candidates in float64, value and gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sentdist.learning.objectives.supmpn import Masked, supmpn

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
    expected = loop_supmpn(*columns, temperature, masked, phi)
    torch.testing.assert_close(found, expected, **FLOAT64)
    inputs = columns if num_negatives else columns[:2]
    for ours, loops in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, loops, **FLOAT64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_are_scored_in_float32(dtype: torch.dtype) -> None:
    columns = [column.detach().to(dtype) for column in random_columns(3, 2)]
    found = supmpn(*columns, first_row=0, temperature=0.05, phi=0.04)
    assert found.dtype == torch.float32
    expected = loop_supmpn(*(column.double() for column in columns), 0.05, "excluded", 0.04)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)  # float32 logits of size 20


def test_an_easy_row_keeps_its_small_loss() -> None:
    """−log σ(own − rivals) is not lost in the rounding of float32: own cosine 1, every rival −1 at τ = 0.05 gives 7·e^{−40}."""
    anchors = torch.ones(1, 1)
    positives, negatives = torch.full((4, 1, 1), -1.0), torch.full((4, 1, 1), -1.0)
    positives[0] = 1.0
    assert float(supmpn(anchors, positives, negatives, first_row=0, temperature=0.05)) == pytest.approx(7 * math.exp(-40), rel=1e-4)
