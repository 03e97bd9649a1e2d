"""Whether an objective gives one rank and several the same loss and gradient: for any objective, from its values in a recipe."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.gather import by_share, local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.learning.objective import Objective
from sentdist.objectives.objective_spec import Labels, LossInputs, ObjectiveSpec
from tests.parity.processes import run_in_processes

M, D = 12, 5
# Sums of a few dozen float64 terms of size 1.
FLOAT64 = {"atol": 1e-13, "rtol": 1e-12}


def made(values: ObjectiveSpec) -> Objective:
    """The loss behind these values for an encoder of width D, in float64."""
    rows = SimpleNamespace(label="toy", num_columns=3, num_positives=1, labels=Labels(top=5.0, spacing=1.0), relation_names=("a", "b"))
    torch.manual_seed(1)
    objective = values.make_loss(LossInputs(rows=rows, width=D))
    return objective.double() if isinstance(objective, nn.Module) else objective


def toy_embeddings(num_columns: int, *, num_rows: int = M, seed: int = 4) -> Tensor:
    """(C, M, D) in float64."""
    return torch.randn(num_columns, num_rows, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def toy_batch(num_columns: int, *, rank: int = 0, world_size: int = 1, num_rows: int = M) -> Batch:
    """A rank's rows of a batch with labels 0 … 5, some of them equal, and two relations."""
    rows = local_rows(num_rows, rank=rank, world_size=world_size)
    labels_M = torch.tensor([float(number * 7 % 6) for number in range(num_rows)])
    return Batch(
        tokens=collate([[1]] * (num_columns * len(rows))),
        num_columns=num_columns,
        first_row=rows.start,
        sentence_ids=np.random.default_rng(0).permutation(num_columns * num_rows).reshape(num_columns, num_rows),
        labels=labels_M[rows.start : rows.stop],
        relations=(labels_M[rows.start : rows.stop] % 2).long(),
    )


def loss_and_gradients(rank: int, world_size: int, values: ObjectiveSpec, num_columns: int) -> tuple[float, list[Tensor]]:
    """Over embeddings X·W: the loss of this rank; gradients of W and of what the objective learns, averaged over ranks."""
    objective = made(values)
    weight = nn.Parameter(torch.randn(D, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9)))
    batch = toy_batch(num_columns, rank=rank, world_size=world_size)
    own = slice(batch.first_row, batch.first_row + batch.num_rows)
    loss = by_share(objective((toy_embeddings(num_columns)[:, own] @ weight).flatten(0, 1), batch), batch.num_rows, of=M)
    loss.backward()
    parameters = [weight, *(objective.parameters() if isinstance(objective, nn.Module) else ())]
    average_gradients(parameters)
    return loss.item(), [parameter.grad for parameter in parameters if parameter.grad is not None]


def assert_ranks_agree(values: ObjectiveSpec, *, num_columns: int, world_size: int) -> None:
    """Mean of the losses and averaged gradients of `world_size` ranks are those of one that holds the whole batch."""
    loss, gradients = loss_and_gradients(0, 1, values, num_columns)
    assert any(gradient.abs().max() > 1e-3 for gradient in gradients)
    ranks = run_in_processes(loss_and_gradients, world_size, values, num_columns)
    assert math.isclose(sum(found for found, _ in ranks) / world_size, loss, rel_tol=1e-12)
    for _, found in ranks:
        for ours, expected in zip(found, gradients, strict=True):
            torch.testing.assert_close(ours, expected, **FLOAT64)
