"""What holds for RSE's loss whatever the embeddings are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.batch import Batch, collate
from tests.support import make

M, D = 7, 5


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"relation {number}" for number in range(count))


def batch_of(relations: list[int] | None, *, num_columns: int = 3, num_positives: int = 1) -> Batch:
    ids = np.arange(num_columns * M).reshape(num_columns, M)
    return Batch(
        tokens=collate([[1]] * ids.size),
        num_columns=num_columns,
        first_row=0,
        sentence_ids=ids,
        num_positives=num_positives,
        relations=None if relations is None else torch.tensor(relations),
    )


def test_descending_learns_the_shift_that_a_relation_is() -> None:
    """Two relations with two planted shifts, embeddings fixed:
    each vector turns to its own shift, away from what the other relation's tails share."""
    torch.manual_seed(0)
    planted = torch.nn.functional.normalize(torch.randn(2, 16), dim=1)
    objective = make.relational(relations=names(2), width=16, temperature=0.05)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=0.05)
    relation_of = [row % 2 for row in range(M)]
    batch = batch_of(relation_of, num_columns=2)
    for step in range(200):
        heads = torch.nn.functional.normalize(torch.randn(M, 16, generator=torch.Generator().manual_seed(step)), dim=1)
        loss = objective(torch.cat([heads, heads + planted[relation_of]]), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    cosines = torch.nn.functional.normalize(objective.table.vectors.weight.detach(), dim=1) @ planted.T
    assert bool((cosines.diagonal() > 0.5).all())
    assert bool((cosines.diagonal() > cosines.flip(0).diagonal() + 0.5).all())


def test_a_table_starts_small_and_has_a_rate_of_its_own() -> None:
    torch.manual_seed(0)
    objective = make.relational(relations=names(50), width=400)
    table = objective.table
    assert float(table.vectors.weight.detach().std()) == pytest.approx(0.02, rel=0.02)  # 20,000 draws: the error of a std is 0.5 %
    (own,) = objective.own_rates()
    assert (own.learning_rate, own.weight_decay) == (1e-2, 0.0)
    assert own.parameters == (table.vectors.weight,)


def test_rows_that_are_no_triples_and_values_without_a_meaning_are_refused() -> None:
    for batch in (batch_of(None), batch_of([0] * M, num_positives=2)):
        with pytest.raises(DataError):
            make.relational(relations=names(1), width=D)(torch.randn(3 * M, D), batch)
    for field, value in (("temperature", 0.0), ("phi", float("nan")), ("relation_learning_rate", 0.0)):
        with pytest.raises(ValidationError, match=field):
            make.relational(relations=names(2), width=D, **{field: value})
    with pytest.raises(RecipeError, match=r"relational\.relations"):
        make.relational(relations=(), width=D)
