"""What holds for RSE's loss whatever the embeddings are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.rse import relational_info_nce
from tests.support import make

seeds = st.integers(0, 2**31)
temperatures = st.sampled_from([1.0, 0.3, 0.05])
CLOSE = {"rtol": 1e-10, "atol": 1e-10}  # float64; cosines to 1e-15, divided by temperatures down to 0.05
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


@given(seeds, temperatures, st.sampled_from([0.0, 0.3]))
def test_relations_of_length_zero_are_no_relations(seed: int, temperature: float, phi: float) -> None:
    heads, candidates, none = randn(seed, M, D), randn(seed + 1, 2 * M, D), torch.zeros(M, D, dtype=torch.float64)
    found = relational_info_nce(heads, none, candidates, first_row=0, temperature=temperature, phi=phi)
    plain = (
        entropy_info_nce(heads, candidates, first_row=0, temperature=temperature, phi=phi)
        if phi
        else info_nce(heads, candidates, first_row=0, temperature=temperature)
    )
    torch.testing.assert_close(found, plain, **CLOSE)


@given(seeds, st.integers(1, 3))
def test_a_table_of_zeros_turns_the_objective_into_info_nce(seed: int, num_relations: int) -> None:
    objective = make.relational(relations=names(num_relations), width=D, temperature=0.05)
    torch.nn.init.zeros_(objective.table.vectors.weight)
    embeddings = randn(seed, 3 * M, D)
    batch = batch_of([row % num_relations for row in range(M)])
    torch.testing.assert_close(objective(embeddings, batch), make.info_nce(temperature=0.05)(embeddings, batch), **CLOSE)


@given(seeds, st.integers(0, M - 1))
def test_the_relation_of_a_row_shifts_that_row_alone(seed: int, row: int) -> None:
    """The other heads' losses do not see it: neither their own shift nor their candidates change."""
    heads, relations, candidates = randn(seed, M, D), randn(seed + 1, M, D), randn(seed + 2, 2 * M, D)
    changed = relations.clone()
    changed[row] += 1.0
    for i in range(M):
        before, after = (
            relational_info_nce(heads[i : i + 1], table[i : i + 1], candidates, first_row=i, temperature=0.3)
            for table in (relations, changed)
        )
        assert bool(before == after) is (i != row)


@given(seeds, st.integers(0, 4), st.sampled_from([0.0, 0.3]))
def test_rows_of_a_batch_average_to_the_batch(seed: int, first: int, phi: float) -> None:
    heads, relations, candidates, cut = randn(seed, 6, D), randn(seed + 1, 6, D), randn(seed + 2, 12, D), first + 1

    def loss(start: int, stop: int) -> Tensor:
        return relational_info_nce(heads[start:stop], relations[start:stop], candidates, first_row=start, temperature=0.3, phi=phi)

    torch.testing.assert_close((cut * loss(0, cut) + (6 - cut) * loss(cut, 6)) / 6, loss(0, 6), **CLOSE)


@given(seeds)
def test_a_common_rotation_changes_nothing(seed: int) -> None:
    parts = randn(seed, M, D), randn(seed + 1, M, D), randn(seed + 2, 2 * M, D)
    rotation, _ = torch.linalg.qr(randn(seed + 3, D, D))
    rotated = relational_info_nce(*(part @ rotation for part in parts), first_row=0, temperature=0.05)
    torch.testing.assert_close(rotated, relational_info_nce(*parts, first_row=0, temperature=0.05), **CLOSE)


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


@pytest.mark.parametrize(
    ("batch", "found"), [(batch_of(None), "rows without a relation"), (batch_of([0] * M, num_positives=2), "2 positives a row")]
)
def test_rows_that_are_no_triples_are_refused(batch: Batch, found: str) -> None:
    with pytest.raises(DataError, match=found):
        make.relational(relations=names(1), width=D)(torch.randn(3 * M, D), batch)


@pytest.mark.parametrize(
    ("values", "field"),
    [({"temperature": 0.0}, "temperature"), ({"phi": float("nan")}, "phi"), ({"relation_learning_rate": 0.0}, "relation_learning_rate")],
)
def test_values_without_a_meaning_are_refused(values: dict[str, float], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        make.relational(relations=names(2), width=D, **values)


def test_rows_without_a_relation_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"relational\.relations"):
        make.relational(relations=(), width=D)
