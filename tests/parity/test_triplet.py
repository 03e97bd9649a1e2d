"""The triplet margin loss equals torch's and sentence-transformers', value and gradient, on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError, RecipeError
from sentdist.objectives.triplet import TripletMargin
from tests.parity.ranks import FLOAT64, assert_ranks_agree, made, toy_batch, toy_embeddings
from tests.parity.wiring.declared import Reference, cases_of
from tests.support.planning import plan_of, small_recipe

pytestmark = pytest.mark.parity

REFERENCE = Reference(
    objective="triplet",
    defaults={"margin": 1.0, "distance": "euclidean"},
    loss=lambda columns, values, rows, heads: loop(columns, values["distance"], values["margin"]),
    cases=(
        *cases_of("triplet", {"margin": (1.0, 3.0), "distance": ("euclidean", "manhattan")}, cls="TripletMargin"),
        *cases_of("triplet", {"distance": ("cosine", "euclidean")}, cls="TripletMargin"),
    ),
)
SETTINGS = [
    TripletMargin(margin=0.3),
    TripletMargin(distance="manhattan", margin=2.0),
    TripletMargin(distance="cosine", margin=0.2),
]


def named(values: TripletMargin) -> str:
    return f"{values.distance}-{values.margin:g}"


def loop(columns_CMD: Sequence[Tensor], distance: str, margin: float) -> Tensor:
    total = columns_CMD[0].new_zeros(())
    for a, p, n in zip(*columns_CMD, strict=True):
        near, far = (
            {"euclidean": (a - x).norm(), "manhattan": (a - x).abs().sum(), "cosine": 1 - a @ x / (a.norm() * x.norm())}[distance]
            for x in (p, n)
        )
        total = total + (near - far + margin).clamp(min=0) / len(columns_CMD[0])
    return total


def of_torch(columns: list[Tensor], values: TripletMargin) -> Tensor:
    distance = {
        "euclidean": torch.nn.PairwiseDistance(2),
        "manhattan": torch.nn.PairwiseDistance(1),
        "cosine": lambda a, b: 1 - torch.cosine_similarity(a, b),
    }[values.distance]
    return torch.nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=values.margin)(*columns)


def of_sentence_transformers(columns: list[Tensor], values: TripletMargin) -> Tensor:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss

    model = SentenceTransformer(modules=[torch.nn.Identity()])
    metric = getattr(TripletDistanceMetric, values.distance.upper())
    loss: Tensor = TripletLoss(model, distance_metric=metric, triplet_margin=values.margin).compute_loss_from_embeddings(columns, None)
    return loss


@pytest.mark.parametrize("reference", [of_torch, of_sentence_transformers])  # the latter keeps its norms away from 0: 2e-7
@pytest.mark.parametrize("values", SETTINGS, ids=named)
def test_it_equals_that_of_others(values: TripletMargin, reference: object) -> None:
    columns_CMD = toy_embeddings(3).requires_grad_()
    found = made(values)(columns_CMD.flatten(0, 1), toy_batch(3))
    expected = reference(list(columns_CMD), values)  # type: ignore[operator]
    close = FLOAT64 if reference is of_torch else {"atol": 1e-6, "rtol": 1e-6}
    torch.testing.assert_close(found, expected, **close)
    torch.testing.assert_close(torch.autograd.grad(found, columns_CMD), torch.autograd.grad(expected, columns_CMD), **close)


def test_value_and_gradient_do_not_depend_on_the_number_of_ranks() -> None:
    assert_ranks_agree(TripletMargin(), num_columns=3, world_size=2)


def test_pairs_without_a_negative_and_a_margin_that_no_cosine_reaches_are_refused() -> None:
    with pytest.raises(DataError, match="2 columns"):
        made(TripletMargin())(toy_embeddings(2).flatten(0, 1), toy_batch(2))
    pairs = {"source": "nli/pairs", "columns": ["one", "two"]}
    with pytest.raises(RecipeError, match="hard negatives"):
        plan_of(small_recipe(corpus=pairs, methods={"base": {}, "new": {"objective": {"name": "triplet"}}}))
    with pytest.raises(RecipeError, match="margin"):
        small_recipe(methods={"base": {}, "new": {"objective": {"name": "triplet", "distance": "cosine", "margin": 5}}})
