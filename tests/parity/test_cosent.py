"""CoSENT equals a loop over pairs of pairs and sentence-transformers' CoSENTLoss, value and gradient, on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.tokens import Batch
from sentdist.objectives.cosent import CoSENT, cosent
from tests.parity.ranks import FLOAT64, M, assert_ranks_agree, made, toy_batch, toy_embeddings
from tests.parity.wiring.declared import Reference, cases_of
from tests.support.planning import plan_of, small_recipe

pytestmark = pytest.mark.parity

REFERENCE = Reference(
    objective="cosent",
    defaults={"temperature": 0.05},
    loss=lambda columns, values, rows, heads: loop_cosent(columns, rows.labels.tolist(), values["temperature"]),
    cases=cases_of("cosent", {"temperature": (0.05, 0.3)}, family="graded", cls="CoSENT"),
)


def loop_cosent(columns_CMD: Sequence[Tensor], labels: list[float], temperature: float) -> Tensor:
    cosines = [(a @ b) / (a.norm() * b.norm()) for a, b in zip(*columns_CMD, strict=True)]
    return loop_ranking(cosines, labels, temperature)


def loop_ranking(similarities: Sequence[Tensor], labels: list[float], temperature: float) -> Tensor:
    total = torch.ones((), dtype=torch.float64)
    for i, lower in enumerate(similarities):
        for j, higher in enumerate(similarities):
            if labels[i] < labels[j]:
                total = total + torch.exp((lower - higher) / temperature)
    return torch.log(total)


def assert_same(found: Tensor, expected: Tensor, inputs: Tensor, **close: float) -> None:
    torch.testing.assert_close(found, expected, **close)
    torch.testing.assert_close(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), **close)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_it_equals_a_loop(temperature: float) -> None:
    columns_CMD, batch = toy_embeddings(2).requires_grad_(), toy_batch(2)
    assert batch.labels is not None
    found = made(CoSENT(temperature=temperature))(columns_CMD.flatten(0, 1), batch)
    assert_same(found, loop_cosent(columns_CMD, batch.labels.tolist(), temperature), columns_CMD, **FLOAT64)


@pytest.mark.parametrize("seed", range(3))
def test_it_equals_that_of_sentence_transformers(seed: int) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    columns_CMD, batch = toy_embeddings(2, seed=seed).requires_grad_(), toy_batch(2)
    theirs = CoSENTLoss(SentenceTransformer(modules=[torch.nn.Identity()]), scale=20.0)
    expected = theirs.compute_loss_from_embeddings(list(columns_CMD), batch.labels)
    found = made(CoSENT())(columns_CMD.flatten(0, 1), batch)
    assert_same(found, expected, columns_CMD, atol=1e-10, rtol=1e-10)  # theirs sums in another order


@pytest.mark.parametrize("world_size", [2, 4])
def test_value_and_gradient_do_not_depend_on_the_number_of_ranks(world_size: int) -> None:
    assert_ranks_agree(CoSENT(), num_columns=2, world_size=world_size)


def test_equal_labels_ask_for_nothing_and_a_perfect_order_for_little() -> None:
    labels = torch.arange(M, dtype=torch.float64)
    cosines = labels / M
    assert cosent(cosines, torch.ones(M), temperature=0.05) == 0
    assert cosent(cosines, labels, temperature=0.001) < 1e-12
    assert cosent(cosines, labels.flip(0), temperature=0.05) > 1 / 0.05 * (M - 1) / M


def test_of_half_precision_it_is_computed_in_float32() -> None:
    assert made(CoSENT())(toy_embeddings(2).bfloat16().flatten(0, 1), toy_batch(2)).dtype == torch.float32


@pytest.mark.parametrize(("batch", "found"), [(toy_batch(3), "3 columns, labels")])
def test_rows_that_are_no_graded_pairs_are_refused(batch: Batch, found: str) -> None:
    with pytest.raises(DataError, match=found):
        made(CoSENT())(toy_embeddings(batch.num_columns).flatten(0, 1), batch)


def test_a_corpus_without_labels_is_refused_while_planning() -> None:
    with pytest.raises(RecipeError, match="rows without labels; expected graded pairs"):
        plan_of(small_recipe(methods={"base": {}, "new": {"objective": {"name": "cosent"}}}))
