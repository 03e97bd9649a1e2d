"""RSE's loss equals obvious loops over triples in float64, value and gradient of heads, tails, hard negatives and relations,
for any number of ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.objectives.rse import relational_info_nce
from tests.parity.processes import run_in_processes
from tests.support import make

pytestmark = pytest.mark.parity

M, D, NUM_RELATIONS = 6, 5, 3
RELATION_OF = [0, 2, 2, 1, 0, 2]
# Sums of a few dozen float64 terms of size e²⁰ at most, seen through a logarithm.
FLOAT64 = {"atol": 1e-12, "rtol": 1e-11}


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())


def loop_relational(
    heads: Tensor, tails: Tensor, negatives: Tensor | None, table: Tensor, relation_of: list[int], temperature: float, phi: float
) -> Tensor:
    """Eq. 1 without negatives, Eq. 2 with them; plus phi times the entropy of all candidates but the own tail."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(heads)):
        shifted = heads[i] + table[relation_of[i]]
        own = torch.exp(cosine(shifted, tails[i]) / temperature)
        others = [torch.exp(cosine(shifted, tails[m]) / temperature) for m in range(len(tails)) if m != i]
        if negatives is not None:
            others += [torch.exp(cosine(shifted, negatives[m]) / temperature) for m in range(len(negatives))]
        denominator = own + sum(others)
        total = total - torch.log(own / denominator)
        for other in others:
            total = total - phi * other / denominator * torch.log(other / denominator)
    return total / len(heads)


def random_columns(num_columns: int, num_rows: int = M) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    columns = [torch.randn(num_rows, D, dtype=torch.float64, generator=generator) for _ in range(num_columns)]
    table = torch.randn(NUM_RELATIONS, D, dtype=torch.float64, generator=generator)
    return [tensor.requires_grad_() for tensor in (*columns, table)]


@pytest.mark.parametrize("phi", [0.0, 0.04, -0.3])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
@pytest.mark.parametrize("num_columns", [2, 3], ids=["eq-1", "eq-2"])
def test_loss(num_columns: int, temperature: float, phi: float) -> None:
    *columns, table = random_columns(num_columns)
    found = relational_info_nce(columns[0], table[RELATION_OF], torch.cat(columns[1:]), first_row=0, temperature=temperature, phi=phi)
    negatives = columns[2] if num_columns == 3 else None
    expected = loop_relational(columns[0], columns[1], negatives, table, RELATION_OF, temperature, phi)
    torch.testing.assert_close(found, expected, **FLOAT64)
    inputs = [*columns, table]
    for ours, loops in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, loops, **FLOAT64)


def loss_and_gradients(rank: int, world_size: int, num_columns: int) -> tuple[float, Tensor, Tensor]:
    """Of the objective over embeddings X·W: the loss of this rank, and the gradients of W and of the relations, averaged over ranks."""
    generator = torch.Generator().manual_seed(4)
    num_rows = 2 * M
    inputs_CMD = torch.randn(num_columns, num_rows, D, dtype=torch.float64, generator=generator)
    weight = torch.nn.Parameter(torch.randn(D, D, dtype=torch.float64, generator=generator))
    table = torch.randn(NUM_RELATIONS, D, dtype=torch.float64, generator=generator)
    objective = make.relational(relations=tuple("abcdefgh"[:NUM_RELATIONS]), width=D, temperature=0.1, phi=0.2).double()
    objective.table.vectors.weight.data.copy_(table)
    rows = local_rows(num_rows, rank=rank, world_size=world_size)
    lengths = (1,) * (num_columns * len(rows))
    batch = Batch(
        tokens=TokenBatch(
            token_ids=torch.ones(len(lengths), dtype=torch.int64),
            boundaries=torch.arange(len(lengths) + 1, dtype=torch.int32),
            lengths=lengths,
        ),
        num_columns=num_columns,
        first_row=rows.start,
        sentence_ids=np.arange(num_columns * num_rows).reshape(num_columns, num_rows),
        relations=torch.tensor((RELATION_OF * 2)[rows.start : rows.stop]),
    )
    loss = objective((inputs_CMD[:, rows.start : rows.stop] @ weight).flatten(0, 1), batch)
    loss.backward()
    relations = objective.table.vectors.weight
    average_gradients([weight, relations])
    assert weight.grad is not None and relations.grad is not None
    return loss.item(), weight.grad, relations.grad


@pytest.mark.parametrize("num_columns", [2, 3], ids=["eq-1", "eq-2"])
def test_the_objective_is_the_loss_for_one_rank_and_for_two(num_columns: int) -> None:
    generator = torch.Generator().manual_seed(4)
    inputs_CMD = torch.randn(num_columns, 2 * M, D, dtype=torch.float64, generator=generator)
    weight = torch.randn(D, D, dtype=torch.float64, generator=generator).requires_grad_()
    table = torch.randn(NUM_RELATIONS, D, dtype=torch.float64, generator=generator).requires_grad_()
    columns = inputs_CMD @ weight
    expected = loop_relational(columns[0], columns[1], columns[2] if num_columns == 3 else None, table, RELATION_OF * 2, 0.1, 0.2)
    gradients = torch.autograd.grad(expected, [weight, table])
    for ranks in ([loss_and_gradients(0, 1, num_columns)], run_in_processes(loss_and_gradients, 2, num_columns)):
        assert math.isclose(sum(rank[0] for rank in ranks) / len(ranks), expected.item(), rel_tol=1e-12)
        for rank in ranks:
            torch.testing.assert_close(rank[1], gradients[0], **FLOAT64)
            torch.testing.assert_close(rank[2], gradients[1], **FLOAT64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_are_scored_in_float32(dtype: torch.dtype) -> None:
    *columns, table = (tensor.detach() for tensor in random_columns(3))
    heads, tails, negatives = (column.to(dtype) for column in columns)
    found = relational_info_nce(heads, table[RELATION_OF].float(), torch.cat([tails, negatives]), first_row=0, temperature=0.05, phi=0.04)
    assert found.dtype == torch.float32
    expected = loop_relational(heads.double(), tails.double(), negatives.double(), table.float().double(), RELATION_OF, 0.05, 0.04)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)  # float32 logits of size 20
