"""Loss and gradient of any objective over toy embeddings in float64: from its values in a recipe, on one rank or on several."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.learning.bank import HostBank
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.gather import by_share, local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.learning.objective import Objective
from sentdist.objectives.learned.regression import RegressionLoss
from sentdist.objectives.objective_spec import Labels, LossInputs
from sentdist.recipe.checks import settled
from sentdist.recipe.recipe import objective_from_values

M, D, N = 12, 5, 2
# Sums of a few dozen float64 terms of size e²⁰ at most, seen through a logarithm.
FLOAT64 = {"atol": 1e-12, "rtol": 1e-11}


class ToyBank64(HostBank):
    """N encoders, in float64."""

    table = torch.randn(N, 6 * M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(8))

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        return self.table[:, torch.from_numpy(np.asarray(sentence_ids).ravel())]


def made(values: Mapping[str, Any], *, num_columns: int = 3, num_positives: int = 1, dtype: torch.dtype = torch.float64) -> Objective:
    """The loss behind these values for an encoder of width D."""
    rows: Any = SimpleNamespace(
        label="toy", num_columns=num_columns, num_positives=num_positives, labels=Labels(top=5.0, spacing=1.0), relation_names=("a", "b")
    )
    given = {name: value for name, value in values.items() if name != "name"}
    spec: Any = settled(objective_from_values(values["name"], given), rows, phi=None)
    torch.manual_seed(1)
    objective: Objective = spec.make_loss(LossInputs(rows=rows, width=D, bank=ToyBank64()))
    if isinstance(objective, RegressionLoss):  # predictions on both sides of the labels' range
        with torch.no_grad():
            objective.head.linear.weight *= 12.0
            objective.head.linear.bias += 2.5
    return objective.to(dtype) if isinstance(objective, nn.Module) else objective


def toy_embeddings(num_columns: int, *, seed: int = 4) -> Tensor:
    """(C, M, D) in float64."""
    return torch.randn(num_columns, M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def toy_batch(num_columns: int, *, rank: int = 0, world_size: int = 1, num_positives: int = 1) -> Batch:
    """A rank's rows of a batch with labels 0 … 5, some of them equal, and two relations."""
    rows = local_rows(M, rank=rank, world_size=world_size)
    labels_M = torch.tensor([float(number * 7 % 6) for number in range(M)])
    return Batch(
        tokens=collate([[1]] * (num_columns * len(rows))),
        num_columns=num_columns,
        first_row=rows.start,
        sentence_ids=np.random.default_rng(0).permutation(num_columns * M).reshape(num_columns, M),
        num_positives=num_positives,
        labels=labels_M[rows.start : rows.stop],
        relations=(labels_M[rows.start : rows.stop] % 2).long(),
    )


def loss_and_gradients(
    rank: int, world_size: int, values: Mapping[str, Any], num_columns: int, num_positives: int
) -> tuple[float, list[Tensor]]:
    """The loss of this rank; gradients of all embeddings and of what the objective learns, averaged over ranks."""
    objective = made(values, num_columns=num_columns, num_positives=num_positives)
    embeddings = nn.Parameter(toy_embeddings(num_columns))
    batch = toy_batch(num_columns, rank=rank, world_size=world_size, num_positives=num_positives)
    own = embeddings[:, batch.first_row : batch.first_row + batch.num_rows]
    loss = by_share(objective(own.flatten(0, 1), batch), batch.num_rows, of=M)
    loss.backward()
    parameters = [embeddings, *(objective.parameters() if isinstance(objective, nn.Module) else ())]
    average_gradients(parameters)
    return loss.item(), [parameter.grad for parameter in parameters if parameter.grad is not None]
