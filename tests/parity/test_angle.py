"""AnglE equals a loop in complex numbers and sentence-transformers' AnglELoss, value and gradient, on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError, RecipeError
from sentdist.objectives.angle import AnglE, angle_similarity
from tests.parity.ranks import FLOAT64, assert_ranks_agree, made, toy_batch, toy_embeddings
from tests.parity.test_cosent import assert_same, loop_ranking
from tests.parity.wiring.declared import Reference, cases_of
from tests.support.planning import plan_of, small_recipe

pytestmark = pytest.mark.parity

REFERENCE = Reference(
    objective="angle",
    defaults={"temperature": 0.05},
    loss=lambda columns, values, rows, heads: loop_angle(columns, rows.labels.tolist(), values["temperature"]),
    cases=cases_of("angle", {"temperature": (0.05, 0.3)}, family="graded", cls="AnglE"),
)


def loop_angle(columns_CMD: Sequence[Tensor], labels: list[float], temperature: float) -> Tensor:
    """By the quotient of complex numbers, z / w, without the quotient of their lengths."""
    similarities = []
    for z, w in zip(*(torch.cat([side, side.new_zeros(len(side), side.shape[1] % 2)], dim=1) for side in columns_CMD), strict=True):
        half, length = len(z) // 2, w.square().sum()
        real = sum((z[i] * w[i] + z[half + i] * w[half + i]) / length for i in range(half))
        imaginary = sum((z[half + i] * w[i] - z[i] * w[half + i]) / length for i in range(half))
        similarities.append(((real + imaginary) * w.norm() / z.norm()).abs())
    return loop_ranking(similarities, labels, temperature)


def test_it_equals_a_loop() -> None:
    temperature = 0.3
    columns_CMD, batch = toy_embeddings(2).requires_grad_(), toy_batch(2)
    assert batch.labels is not None
    found = made(AnglE(temperature=temperature))(columns_CMD.flatten(0, 1), batch)
    assert_same(found, loop_angle(columns_CMD, batch.labels.tolist(), temperature), columns_CMD, **FLOAT64)


def test_it_equals_that_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import AnglELoss

    columns_CMD, batch = toy_embeddings(2).requires_grad_(), toy_batch(2)
    theirs = AnglELoss(SentenceTransformer(modules=[torch.nn.Identity()]), scale=20.0)
    expected = theirs.compute_loss_from_embeddings(list(columns_CMD), batch.labels)
    assert_same(made(AnglE())(columns_CMD.flatten(0, 1), batch), expected, columns_CMD, atol=1e-10, rtol=1e-10)


def test_value_and_gradient_do_not_depend_on_the_number_of_ranks() -> None:
    assert_ranks_agree(AnglE(), num_columns=2, world_size=2)


def test_its_range_is_that_of_its_docstring() -> None:
    one = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    turned = torch.tensor(
        [[math.cos(0.75 * math.pi), math.sin(0.75 * math.pi)], [math.cos(-math.pi / 4), math.sin(-math.pi / 4)]], dtype=torch.float64
    )
    assert angle_similarity(one, turned).tolist() == pytest.approx([math.sqrt(2), math.sqrt(2)])
    assert angle_similarity(turned, one).tolist() == pytest.approx([0.0, 0.0], abs=1e-12), "not symmetric"


def test_what_it_cannot_rank_is_refused() -> None:
    with pytest.raises(DataError, match="3 columns"):
        made(AnglE())(toy_embeddings(3).flatten(0, 1), toy_batch(3))
    with pytest.raises(RecipeError, match="labels"):
        plan_of(small_recipe(methods={"base": {}, "new": {"objective": {"name": "angle"}}}))
