"""Objectives by name on embeddings of one's own: the equations, and refusals of what embeddings alone cannot give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import sentdist
from sentdist import DataError, RecipeError
from sentdist.inference.embedding_loss import EmbeddingLoss
from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.rcl import regulators
from sentdist.objectives.supmpn import supmpn
from sentdist.recipe.objectives import OBJECTIVES
from sentdist.recipe.stage import Json

B, D, N = 6, 5, 2
CLOSE = {"rtol": 1e-12, "atol": 1e-12}  # float64, sums of a few dozen terms of size 1


def _columns(number: int, *shape: int, seed: int = 0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(*(shape or (B, D)), dtype=torch.float64, generator=draw) for _ in range(number)]


def test_a_contrastive_loss_is_its_equation_with_hard_negatives_and_without() -> None:
    anchors, positives, negatives = _columns(3)
    anchors.requires_grad_()
    loss = sentdist.objective("info_nce", temperature=0.1)(anchors, positives, negatives)
    expected = info_nce(anchors, torch.cat([positives, negatives]), first_row=0, temperature=0.1)
    torch.testing.assert_close(loss, expected, **CLOSE)
    gradients = [torch.autograd.grad(one, anchors)[0] for one in (loss, expected)]
    torch.testing.assert_close(*gradients, **CLOSE)
    alone = info_nce(anchors, positives, first_row=0, temperature=0.1)
    torch.testing.assert_close(sentdist.objective("info_nce", temperature=0.1)(anchors, positives), alone, **CLOSE)
    without = sentdist.objective("info_nce", temperature=0.1, hard_negatives=False)
    torch.testing.assert_close(without(anchors, positives, negatives), alone, **CLOSE)
    torch.testing.assert_close(
        sentdist.objective("entropy", phi=0.3)(anchors, positives),
        entropy_info_nce(anchors, positives, first_row=0, temperature=1.0, phi=0.3),
        **CLOSE,
    )


def test_several_positives_and_a_sum() -> None:
    anchors, first, second, negatives = _columns(4)
    plain = supmpn(anchors, torch.stack([first, second], 1), negatives[:, None], first_row=0, temperature=0.05)
    torch.testing.assert_close(sentdist.objective("supmpn")(anchors, first, second, negatives, num_positives=2), plain, **CLOSE)
    augmented = _columns(3, N, B, D, seed=5)
    terms: Json = [{"objective": {"name": "supmpn"}}, {"weight": 0.1, "objective": {"name": "regulators", "temperature": 0.3}}]
    found = sentdist.objective("sum", terms=terms)(anchors, first, second, negatives, num_positives=2, augmented=augmented)
    sides = [
        regulators(column, side, first_row=0, temperature=0.3) for column, side in zip((anchors, first, second), augmented, strict=True)
    ]
    torch.testing.assert_close(found, plain + 0.1 * (sides[0] + (sides[1] + sides[2]) / 2), **CLOSE)


TENSORS = _columns(3)
MSE: dict[str, Json] = {"loss": "mse", "label_range": [0, 5]}


def _regression(**values: Json) -> EmbeddingLoss:
    return sentdist.objective("regression", width=D, **({"slope": 2.0, "threshold": 0.25, "label_range": [0, 5]} | values))


def _called(name: str, *tensors: object, **given: object) -> object:
    needs = {"rse": {"width": D, "relations": ["a", "b"]}, "regression": {"width": D, **MSE, "spacing": 1}}
    loss = sentdist.objective(name, **needs.get(name, {})).double()  # type: ignore[arg-type]
    return loss(*(tensors or TENSORS[:2]), **given)  # type: ignore[arg-type]


def test_what_has_no_meaning_is_refused() -> None:
    for make, said in [
        (lambda: sentdist.objective("info_nse"), 'Did you mean "info_nce"'),
        (lambda: sentdist.objective("info_nce", temprature=1), 'did you mean "temperature"'),
        (lambda: sentdist.objective("info_nce", relations=["a"]), "1 names"),
        (lambda: sentdist.objective("mlm"), "embeddings alone; expected also the encoder itself"),
        (lambda: sentdist.objective("rse", width=D), "0 names"),
        (lambda: sentdist.objective("regression", **MSE), "Give width=D"),
        (lambda: sentdist.objective("regression", loss="mse", width=D), "label_range: found nothing"),
        (lambda: _regression(), "labels that are not rounded"),
        (lambda: _regression(spacing=0.25), "threshold 0.25 for labels 0.25 apart"),
        (lambda: _called("info_nce", labels=torch.ones(B)), "graded pairs"),
        (lambda: _called("info_nce", *TENSORS, num_positives=2), "2 positives per anchor"),
        (lambda: _called("regression"), "rows without labels"),
        (lambda: _called("rcl", TENSORS[0]), "1 tensors"),
        (lambda: _called("rcl", TENSORS[0], TENSORS[1][:3]), "anchors, positives and perhaps hard negatives"),
        (lambda: _called("rcl", *TENSORS[:2], torch.ones(B)), "by name: labels="),
        (lambda: _called("rcl"), "augmented: found tensors of shapes []"),
        (lambda: _called("rcl", augmented=_columns(1, N, B, D)), "augmented: found tensors"),
        (lambda: _called("info_nce", augmented=_columns(2, N, B, D)), "augmented: found tensors"),
        (lambda: _called("regression", labels=torch.tensor([0.0, 6.0, 1.0, 2.0, 6.0, 5.0])), "label 6 in row 1"),
        (lambda: _called("regression", labels=torch.tensor([0.0, 0.5, 1.0, 2.0, 3.0, 5.0])), "label 0.5 in row 1"),
        (lambda: _called("cosent", labels=torch.rand(B, 1)), "labels: found a tensor of shape (6, 1); expected (6,)"),
        (lambda: _called("rse", relations=torch.zeros(B, 1, dtype=torch.int64)), "relations: found a tensor of shape (6, 1)"),
    ]:
        with pytest.raises((RecipeError, DataError)) as caught:
            make()
        assert said in str(caught.value)


NOT_FROM_EMBEDDINGS = {"auxiliary", "mlm", "regulators", "sum"}  # needs more than embeddings, or another term
VALUES: dict[str, dict[str, Json]] = {"entropy": {"phi": 0.1}, "regression": {"loss": "mse", "label_range": [0, 5]}}


def test_rows_that_are_not_refused_have_a_loss() -> None:
    """What is not refused by the shape of the rows, as while planning, is no error once a training has begun."""
    for negatives in [0, 2]:
        for positives in [1, 2]:
            for name in sorted(OBJECTIVES.keys() - NOT_FROM_EMBEDDINGS):
                needs = OBJECTIVES[name].needs
                loss = sentdist.objective(name, width=D, relations=["a", "b"] if needs.relations else (), **VALUES.get(name, {})).double()
                given: dict[str, object] = {"num_positives": positives}
                given |= {"labels": torch.arange(B) % 6 / 1.0} if needs.labels == "needed" else {}
                given |= {"relations": torch.arange(B) % 2} if needs.relations else {}
                given |= {"augmented": _columns(1 + positives, N, B, D)} if needs.bank else {}
                columns = _columns(1 + positives + negatives)
                try:
                    assert loss(*columns, **given).isfinite()  # type: ignore[arg-type]
                except RecipeError as refusal:
                    assert any(word in str(refusal) for word in ("positives per anchor", "hard negative")), refusal
