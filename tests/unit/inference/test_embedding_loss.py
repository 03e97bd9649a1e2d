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
from sentdist.objectives.rcl import rcl, regulators
from sentdist.objectives.rse import relational_info_nce
from sentdist.objectives.supmpn import supmpn
from sentdist.plan.objectives import OBJECTIVES
from sentdist.plan.stage import Json

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


def test_rcl_takes_the_augmented_embeddings_of_each_call() -> None:
    loss = sentdist.objective("rcl", temperature=0.2, regulator_temperature=0.3, regulator_weight=0.5)
    for seed in (1, 2):
        anchors, positives = _columns(2, seed=seed)
        augmented = _columns(2, N, B, D, seed=seed + 10)
        expected = rcl(
            anchors, positives, positives, *augmented, first_row=0, temperature=0.2, regulator_temperature=0.3, regulator_weight=0.5
        )
        torch.testing.assert_close(loss(anchors, positives, augmented=augmented), expected, **CLOSE)
    frozen = [one.requires_grad_() for one in augmented]
    loss(anchors.requires_grad_(), positives, augmented=frozen).backward()
    assert anchors.grad is not None and not any(one.grad is not None for one in frozen), "who embedded them learns nothing here"


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


def test_what_a_loss_learns_are_its_parameters() -> None:
    anchors, positives = _columns(2)
    which = torch.tensor([0, 1, 1, 0, 1, 0])
    loss = sentdist.objective("rse", width=D, relations=["entailment", "duplicate"]).double()
    (table,) = loss.parameters()
    assert table.shape == (2, D)
    expected = relational_info_nce(anchors, table[which], positives, first_row=0, temperature=0.05)
    torch.testing.assert_close(loss(anchors, positives, relations=which), expected, **CLOSE)

    head = sentdist.objective("regression", width=D, loss="mse", boundary="none", label_range=[0, 5])
    labels, (u, v) = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), (column.float() for column in (anchors, positives))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    losses = []
    for _ in range(50):
        losses.append(head(u, v, labels=labels))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0] / 2


TENSORS = _columns(3)


def _smooth_k2(**values: Json) -> EmbeddingLoss:
    return sentdist.objective("regression", width=D, slope=2.0, threshold=0.25, label_range=[0, 5], **values)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: sentdist.objective("info_nse"), 'Did you mean "info_nce"'),
        (lambda: sentdist.objective("info_nce", temprature=1), 'did you mean "temperature"'),
        (lambda: sentdist.objective("info_nce", temperature=0), "objective.temperature"),
        (lambda: sentdist.objective("mlm"), "embeddings alone; expected also the encoder itself"),
        (lambda: sentdist.objective("auxiliary", width=D), "expected also shares of tags and words"),
        (lambda: sentdist.objective("regression", loss="mse", label_range=[0, 5]), "Give width=D"),
        (lambda: sentdist.objective("regression", loss="mse", width=D), "label_range: found nothing"),
        (lambda: _smooth_k2(), "labels that are not rounded; expected labels on a grid for smooth_k2"),
        (lambda: _smooth_k2(spacing=0.25), "threshold 0.25 for labels 0.25 apart; expected at most 0.125"),
        (lambda: _smooth_k2(spacing=2), "found 0 to 5 in steps of 2; expected whole steps"),
        (lambda: sentdist.objective("rse", width=D), "0 names"),
        (lambda: sentdist.objective("info_nce", relations=["a"]), "1 names"),
        (lambda: sentdist.objective("info_nce")(*TENSORS[:2], labels=torch.ones(B)), "graded pairs"),
        (lambda: sentdist.objective("info_nce")(*TENSORS, num_positives=2), "2 positives an anchor"),
        (lambda: sentdist.objective("regression", loss="mse", label_range=[0, 5], width=D)(*TENSORS[:2]), "rows without labels"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(make: object, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        make()  # type: ignore[operator]


NOT_FROM_EMBEDDINGS = {"auxiliary", "mlm", "regulators", "sum"}  # needs more than embeddings, or another term
VALUES: dict[str, dict[str, Json]] = {"entropy": {"phi": 0.1}, "regression": {"loss": "mse", "label_range": [0, 5]}}


@pytest.mark.parametrize("negatives", [0, 1, 2])
@pytest.mark.parametrize("positives", [1, 2])
@pytest.mark.parametrize("name", sorted(OBJECTIVES.keys() - NOT_FROM_EMBEDDINGS))
def test_rows_that_are_not_refused_have_a_loss(name: str, positives: int, negatives: int) -> None:
    """What is not refused by the shape of the rows, as while planning, is no error once a training has begun."""
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
        assert any(word in str(refusal) for word in ("positives an anchor", "hard negative")), refusal


@pytest.mark.parametrize(
    ("tensors", "given", "sentence"),
    [
        (TENSORS[:1], {}, "1 tensors"),
        ([TENSORS[0], TENSORS[1][:3]], {}, "anchors, positives and perhaps hard negatives"),
        (TENSORS[:2], {}, "augmented: found nothing"),
        ([TENSORS[0], None], {}, "objective rcl: column 1: found a NoneType; expected a tensor"),
        ([*TENSORS[:2], torch.ones(B)], {}, "all else by its name: labels="),
        (TENSORS[:2], {"augmented": _columns(1, N, B, D)}, r"expected 2 tensors of shape \(N, 6, 5\)"),
        (TENSORS[:2], {"augmented": _columns(2, N, B, D + 1)}, r"expected 2 tensors of shape \(N, 6, 5\)"),
    ],
)
def test_tensors_of_other_shapes_are_refused(tensors: list[Tensor], given: dict[str, list[Tensor]], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        sentdist.objective("rcl")(*tensors, **given)
    with pytest.raises(DataError, match=r"augmented: found tensors.*expected nothing"):
        sentdist.objective("info_nce")(*TENSORS[:2], augmented=_columns(2, N, B, D))


@pytest.mark.parametrize(
    ("label", "spacing", "sentence"),
    [
        (6.0, 1.0, r"label 6 in row 1 \(2 such rows\); expected labels from 0 to 5 in steps of 1"),
        (0.5, 1.0, "label 0.5 in row 1"),
        (-0.1, 1.0, "label -0.1 in row 1"),
        (float("nan"), 1.0, "label nan in row 1"),
        (5.1, None, r"label 5.1 in row 1 .*expected labels from 0 to 5\. Round"),
    ],
)
def test_labels_that_do_not_fit_are_refused(label: float, spacing: float | None, sentence: str) -> None:
    """Cross-entropy would round them to the next class, without a word."""
    loss = sentdist.objective(
        "regression", loss="mse" if spacing is None else "cross_entropy", width=D, label_range=[0, 5], spacing=spacing
    ).double()
    with pytest.raises(DataError, match=sentence):
        loss(*TENSORS[:2], labels=torch.tensor([0.0, label, 1.0, 2.0, label, 5.0]))
    assert torch.isfinite(loss(*TENSORS[:2], labels=torch.tensor([0.0, 4.0, 1.0, 2.0, 3.0, 5.0])))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (torch.rand(B, 1), r"labels: found a tensor of shape \(6, 1\); expected \(6,\)"),
        (torch.rand(1), r"labels: found a tensor of shape \(1,\); expected \(6,\)"),
        (torch.tensor(1.0), r"labels: found a tensor of shape \(\); expected \(6,\)"),
        (torch.tensor([0.1, torch.nan, 0.3, 0.4, 0.5, 0.6]), "labels: found label nan in row 1; expected finite numbers"),
    ],
)
def test_labels_are_one_finite_number_a_row(labels: Tensor, sentence: str) -> None:
    """A column of a table is (B, 1): compared with (B,) cosines it gave another loss, without a word."""
    with pytest.raises(DataError, match=sentence):
        sentdist.objective("cosent")(*TENSORS[:2], labels=labels)


@pytest.mark.parametrize(
    ("relations", "sentence"),
    [
        (torch.zeros(B, 1, dtype=torch.int64), r"relations: found a tensor of shape \(6, 1\); expected \(6,\)"),
        (torch.zeros(B), "relations: found torch.float32; expected whole numbers from 0 to 1"),
        (torch.tensor([0, 1, 2, 0, 1, 0]), "relations: found 2 in row 2; expected whole numbers from 0 to 1"),
        (torch.tensor([0, -1, 1, 0, 1, 0]), "relations: found -1 in row 1"),
    ],
)
def test_relations_are_one_number_of_a_name_a_row(relations: Tensor, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        sentdist.objective("rse", width=D, relations=["a", "b"]).double()(*TENSORS[:2], relations=relations)


def test_augmented_embeddings_may_be_one_tensor() -> None:
    augmented = _columns(2, N, B, D)
    loss = sentdist.objective("rcl")
    torch.testing.assert_close(loss(*TENSORS[:2], augmented=torch.stack(augmented)), loss(*TENSORS[:2], augmented=augmented), **CLOSE)


def test_every_objective_is_offered_or_refused_with_its_reason() -> None:
    """One that comes later works by itself, or says here what it needs: nothing fails with another error."""
    values: dict[str, dict[str, Json]] = {"entropy": {"phi": 0.1}, "regression": {"loss": "mse", "label_range": [0, 5]}}
    relations = {name: ["a", "b"] if one.needs.relations else [] for name, one in OBJECTIVES.items()}
    for name, one in OBJECTIVES.items():
        try:
            loss = sentdist.objective(name, width=D, relations=relations[name], **values.get(name, {})).double()
        except RecipeError as error:
            assert "embeddings alone" in str(error)
            continue
        labels = torch.arange(6.0) if one.needs.labels == "needed" else None
        which = torch.arange(6) % 2 if one.needs.relations else None
        augmented = _columns(2, N, B, D) if one.needs.bank else None
        columns = TENSORS[: 2 + one.needs.negatives]
        assert torch.isfinite(loss(*columns, labels=labels, relations=which, augmented=augmented))
