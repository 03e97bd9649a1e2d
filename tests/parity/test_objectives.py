"""Eq. 1, 2 and 3 equal obvious loops over samples in float64, value and gradient, for one rank and for several."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning.bank import HostBank
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.learning.objective import Objective
from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.rcl import rcl
from tests.parity.processes import run_in_processes
from tests.parity.ranks import toy_batch, toy_embeddings
from tests.support import make

pytestmark = pytest.mark.parity

M, D, N = 6, 5, 3
# Sums of a few dozen float64 terms of size 1.
FLOAT64 = {"atol": 1e-13, "rtol": 1e-12}


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())


def shares(anchor: Tensor, candidates: Tensor, temperature: float) -> list[Tensor]:
    """s_ij of one anchor, term by term."""
    exponentials = [torch.exp(cosine(anchor, candidate) / temperature) for candidate in candidates]
    return [exponential / sum(exponentials) for exponential in exponentials]


def loop_info_nce(anchors: Tensor, candidates: Tensor, temperature: float) -> Tensor:
    return sum(-torch.log(shares(anchors[i], candidates, temperature)[i]) for i in range(len(anchors))) / len(anchors)


def loop_entropy(anchors: Tensor, candidates: Tensor, temperature: float, phi: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(anchors)):
        s = shares(anchors[i], candidates, temperature)
        total = total - torch.log(s[i])
        for j in range(len(candidates)):
            if j != i:
                total = total - phi * s[j] * torch.log(s[j])
    return total / len(anchors)


def loop_rcl(
    anchors: Tensor,
    positives: Tensor,
    candidates: Tensor,
    bank_q: Tensor,
    bank_ind: Tensor,
    *,
    main: float,
    regulator: float,
    weight: float,
) -> Tensor:
    total = loop_info_nce(anchors, candidates, main)
    for n in range(len(bank_q)):
        total = total + weight * loop_info_nce(anchors, bank_q[n], regulator)
        total = total + weight * loop_info_nce(positives, bank_ind[n], regulator)
    return total


def random_columns(num_columns: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(M, D, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(num_columns)]


def assert_same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, **FLOAT64)
    for ours, loops in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, loops, **FLOAT64)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("num_columns", [2, 3], ids=["positives", "hard-negatives"])
def test_eq_1(num_columns: int, temperature: float) -> None:
    columns = random_columns(num_columns)
    candidates = torch.cat(columns[1:])
    found = info_nce(columns[0], candidates, first_row=0, temperature=temperature)
    assert_same(found, loop_info_nce(columns[0], candidates, temperature), columns)


@pytest.mark.parametrize("phi", [0.04, -0.7, 0.0])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("num_columns", [2, 3], ids=["positives", "hard-negatives"])
def test_eq_2(num_columns: int, temperature: float, phi: float) -> None:
    columns = random_columns(num_columns)
    candidates = torch.cat(columns[1:])
    found = entropy_info_nce(columns[0], candidates, first_row=0, temperature=temperature, phi=phi)
    assert_same(found, loop_entropy(columns[0], candidates, temperature, phi), columns)


@pytest.mark.parametrize("num_columns", [2, 3], ids=["positives", "hard-negatives"])
@pytest.mark.parametrize(("main", "regulator", "weight"), [(1.0, 1.0, 1.0), (0.05, 0.3, 0.5)])
def test_eq_3(num_columns: int, main: float, regulator: float, weight: float) -> None:
    columns = random_columns(num_columns)
    candidates = torch.cat(columns[1:])
    bank_q, bank_ind = torch.randn(2, N, M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    found = rcl(
        columns[0], columns[1], candidates, bank_q, bank_ind,
        first_row=0, temperature=main, regulator_temperature=regulator, regulator_weight=weight,
    )  # fmt: skip
    assert_same(
        found, loop_rcl(columns[0], columns[1], candidates, bank_q, bank_ind, main=main, regulator=regulator, weight=weight), columns
    )


def test_logit_gradient_of_eq_2_is_the_closed_form() -> None:
    """∂J_i/∂z_m = (p_m − 1[m=i]) − φ p_m (1[m≠i](log p_m + 1) − A), A = Σ_{j≠i} p_j (log p_j + 1)."""
    phi = -0.3
    # Orthonormal candidates turn an anchor of length 1 into its own cosines: logits are the anchor's components, up to the normalisation.
    anchors = torch.nn.functional.normalize(
        torch.randn(M, M, dtype=torch.float64, generator=torch.Generator().manual_seed(2)), dim=1
    ).requires_grad_()
    (found,) = torch.autograd.grad(
        entropy_info_nce(anchors, torch.eye(M, dtype=torch.float64), first_row=0, temperature=1.0, phi=phi) * M, anchors
    )
    z = anchors.detach()
    p = torch.softmax(z, dim=1)
    own = torch.eye(M, dtype=torch.float64)
    inner = (1 - own) * (p.log() + 1)
    expected = (p - own) - phi * p * (inner - (p * inner).sum(dim=1, keepdim=True))
    # The normalisation takes away the part along the anchor.
    expected = expected - (expected * z).sum(dim=1, keepdim=True) * z
    torch.testing.assert_close(found, expected, **FLOAT64)


class FixedBank(HostBank):
    """A float64 bank whose rows depend on the sentence id only."""

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        table = torch.randn(N, 3 * M * 2, D, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
        return table[:, torch.from_numpy(np.asarray(sentence_ids).ravel())]


OBJECTIVES: list[Objective] = [
    make.info_nce(temperature=0.3),
    make.entropy(phi=0.04),
    make.entropy(phi=-0.5, temperature=0.1),
    make.rcl(bank=FixedBank(), temperature=0.05, regulator_temperature=0.3, regulator_weight=0.5),
]


def test_regulators_without_a_temperature_have_that_of_the_main_term() -> None:
    embeddings, batch = toy_embeddings(2).flatten(0, 1), toy_batch(2)
    printed, written_out = (make.rcl(bank=FixedBank(), temperature=0.3, **values) for values in ({}, {"regulator_temperature": 0.3}))
    assert printed(embeddings, batch) == written_out(embeddings, batch)


def loss_and_gradient(rank: int, world_size: int, num_columns: int) -> list[tuple[float, Tensor]]:
    """Of each objective over embeddings X·W: the loss averaged over ranks and the gradient of W averaged over ranks."""
    generator = torch.Generator().manual_seed(4)
    num_rows = 2 * M
    inputs_CMD = torch.randn(num_columns, num_rows, D, dtype=torch.float64, generator=generator)
    start = torch.randn(D, D, dtype=torch.float64, generator=generator)
    rows = local_rows(num_rows, rank=rank, world_size=world_size)
    lengths = (1,) * (num_columns * len(rows))
    tokens = TokenBatch(
        token_ids=torch.ones(len(lengths), dtype=torch.int64), boundaries=torch.arange(len(lengths) + 1, dtype=torch.int32), lengths=lengths
    )
    ids_CM = np.random.default_rng(0).permutation(num_columns * num_rows).reshape(num_columns, num_rows)
    batch = Batch(tokens=tokens, num_columns=num_columns, first_row=rows.start, sentence_ids=ids_CM)
    results = []
    for objective in OBJECTIVES:
        weight = torch.nn.Parameter(start.clone())
        loss = objective((inputs_CMD[:, rows.start : rows.stop] @ weight).flatten(0, 1), batch)
        loss.backward()
        average_gradients([weight])
        results.append((loss.item(), weight.grad))
    return results


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("num_columns", [2, 3], ids=["positives", "hard-negatives"])
def test_value_and_gradient_do_not_depend_on_the_number_of_ranks(num_columns: int, world_size: int) -> None:
    single = loss_and_gradient(0, 1, num_columns)
    ranks = run_in_processes(loss_and_gradient, world_size, num_columns)
    for k, (loss, gradient) in enumerate(single):
        assert math.isclose(sum(rank[k][0] for rank in ranks) / world_size, loss, rel_tol=1e-12)
        for rank in ranks:
            torch.testing.assert_close(rank[k][1], gradient, **FLOAT64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_of_half_precision_embeddings_are_computed_in_float32(dtype: torch.dtype) -> None:
    anchors, candidates = (column.detach().to(dtype) for column in random_columns(2))
    found = entropy_info_nce(anchors, candidates, first_row=0, temperature=0.05, phi=0.04)
    assert found.dtype == torch.float32
    expected = loop_entropy(anchors.double(), candidates.double(), 0.05, 0.04)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)  # float32 logits of size 20
