"""Regression on graded pairs: Translated ReLU and Smooth K2 of the STS regression paper (arXiv 2406.05326), and its baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.heads import load_heads
from sentdist.learning.objectives.objective import Objective, OwnRate, split_columns

BUFFERED = ("translated_relu", "smooth_k2")  # the losses with a slope and a buffer zone
LOSSES = (*BUFFERED, "l1", "mse", "cross_entropy")
BOUNDARIES = ("none", "left_mask", "clamp", "one_sided")
VECTORS_PER_FEATURE = {"uv": 2, "diff": 1, "uv_diff": 3}
ON_GRID = 1e-4  # of a spacing: labels are float32


def translated_relu(errors_B: Tensor, *, slope: float, threshold: float) -> Tensor:
    """f(x) = 0 for x < x0,  k (x − x0) for x ≥ x0.

    Optimizes: predictions nearer to their label than x0; farther ones are pulled back with one force k.
        Its slope at exactly x = x0 is k, as in the released code (torch.clamp); 0 would be a subgradient too.
    Shapes: errors x = |p − y| ≥ 0, (B,). Units and reduction: k times label units, mean over B. x0 = 0 and k = 1: the L1 loss.
    Source: arXiv 2406.05326, Eq. 1.
    """
    return (slope * torch.clamp(errors_B - threshold, min=0.0)).mean()


def smooth_k2(errors_B: Tensor, *, slope: float, threshold: float) -> Tensor:
    """g(x) = 0 for x < x0,  k (x − x0)² for x ≥ x0.

    Optimizes: as `translated_relu`, but the force grows with the error: 2k (x − x0).
    Shapes: errors x = |p − y| ≥ 0, (B,). Units and reduction: k times squared label units, mean over B. x0 = 0 and k = 1:
    mean squared error.
    Source: arXiv 2406.05326, Eq. 2, printed as k (x² − 2 x0 x + x0²). Factored here: expanded, it loses all digits near x0 (float32) and
        becomes negative (bfloat16).
    """
    return (slope * torch.clamp(errors_B - threshold, min=0.0).square()).mean()


def l1(errors_B: Tensor) -> Tensor:
    """Mean absolute error in label units: Translated ReLU without a buffer zone."""
    return errors_B.mean()


def mse(errors_B: Tensor) -> Tensor:
    """Mean squared error in squared label units: Smooth K2 without a buffer zone."""
    return errors_B.square().mean()


def prediction_errors(predictions_B: Tensor, labels_B: Tensor, *, boundary: str, low: float, high: float) -> Tensor:
    """|p − y|, (B,), with predictions outside the labels' range [low, high] treated as `boundary` says.

    none: as they are. left_mask: those below low count as low (the released code).
    clamp: those on either side are moved to the boundary (the paper). Both take away the gradient of every prediction outside,
    also of wrong ones. one_sided: the error is 0 only beyond the boundary that is the pair's own label;
    all other predictions keep error and gradient. DataError unless both are (B,): (B, 1) − (B,) would quietly be (B, B).
    Source: arXiv 2406.05326, Section 3, and its released training scripts; one_sided is ours.
    """
    if predictions_B.ndim != 1 or predictions_B.shape != labels_B.shape:
        raise _shape(predictions_B, labels_B, "(B,) both")
    labels_B = labels_B.to(predictions_B.dtype)
    if boundary == "left_mask":
        predictions_B = predictions_B.clamp(min=low)
    if boundary == "clamp":
        predictions_B = predictions_B.clamp(min=low, max=high)
    errors_B = (predictions_B - labels_B).abs()
    if boundary != "one_sided":
        return errors_B
    near = ON_GRID * (high - low)
    beyond_low = (predictions_B < low) & (labels_B < low + near)
    beyond_high = (predictions_B > high) & (labels_B > high - near)
    return errors_B.masked_fill(beyond_low | beyond_high, 0.0)


def cross_entropy(logits_BV: Tensor, labels_B: Tensor, *, low: float, spacing: float) -> Tensor:
    """The paper's classification baseline: V-way softmax, label low + c · spacing being class c. Nats, mean over B.

    DataError unless logits are (B, V) and labels (B,).
    """
    if logits_BV.ndim != 2 or labels_B.shape != logits_BV.shape[:1]:
        raise _shape(logits_BV, labels_B, "(B, V) and (B,)")
    return F.cross_entropy(logits_BV, torch.round((labels_B - low) / spacing).long())


@dataclass(frozen=True, kw_only=True)
class LabelGrid:
    """The labels there can be: low, low + spacing, …, high; every number of [low, high] where spacing is None.

    RecipeError for a range that is empty or that the spacing does not divide.
    """

    low: float
    high: float
    spacing: float | None = 1.0

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        _require(
            finite and self.low < self.high, "label_range", f"{self.low:g} to {self.high:g}", "two numbers, the lower first", "NLI: 0 to 2."
        )
        if self.spacing is None:
            return
        _require(0 < self.spacing < math.inf, "spacing", self.spacing, "a finite number above 0", "Integer labels are 1 apart.")
        steps = (self.high - self.low) / self.spacing
        fits = abs(steps - round(steps)) < ON_GRID and steps > 0.5
        _require(
            fits, "label_range", f"{self.low:g} to {self.high:g} in steps of {self.spacing:g}", "whole steps", "Correct range or spacing."
        )

    @property
    def num_classes(self) -> int:
        """V, the number of labels; of a range without spacing there is none."""
        assert self.spacing is not None, "only a grid has classes"
        return round((self.high - self.low) / self.spacing) + 1

    def check(self, labels: np.ndarray, *, where: str) -> None:
        """DataError, naming the first row, for a label outside the range or off the grid.
        Once over a corpus: on a GPU each step would wait."""
        values = np.asarray(labels, dtype=np.float64)
        slack = ON_GRID * (self.spacing or (self.high - self.low))
        wrong = ~((values >= self.low - slack) & (values <= self.high + slack))
        expected = f"labels from {self.low:g} to {self.high:g}"
        if self.spacing is not None:
            places = (values - self.low) / self.spacing
            wrong |= ~(np.abs(places - np.round(places)) <= ON_GRID)
            expected += f" in steps of {self.spacing:g}"
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                where=where,
                found=f"label {values[row]:g} in row {row} ({int(wrong.sum())} such rows)",
                expected=expected,
                remedy="Round or map the labels in the corpus section, or correct label_range and spacing of the objective.",
            )


class RegressionHead(nn.Module):
    """w · [u; v; |u − v|] + b: (B,) predictions from two embeddings (B, D), or (B, V) class logits.

    features: "uv_diff" as the paper has it, "uv" or "diff" as its ablation (Table 5).
    No activation; not used at evaluation, which is by cosine. RecipeError for other features.
    Source: arXiv 2406.05326, Figure 1; the classifier is Sentence-BERT's (arXiv 1908.10084).
    """

    def __init__(self, width: int, *, features: str = "uv_diff", num_classes: int | None = None) -> None:
        super().__init__()
        _one_of("features", features, tuple(VECTORS_PER_FEATURE))
        self.features = features
        self.is_classifier = num_classes is not None
        self.linear = nn.Linear(VECTORS_PER_FEATURE[features] * width, num_classes or 1)

    def forward(self, u_BD: Tensor, v_BD: Tensor) -> Tensor:
        vectors = [u_BD, v_BD] if self.features in ("uv", "uv_diff") else []
        if self.features in ("diff", "uv_diff"):
            vectors.append((u_BD - v_BD).abs())
        outputs: Tensor = self.linear(torch.cat(vectors, dim=-1))
        return outputs if self.is_classifier else outputs.squeeze(-1)


class Regression(nn.Module, Objective):
    """The paper's objective: a head reads the two embeddings of a pair, a loss compares with the pair's label.
    Mean over this rank's B pairs.

    width: D of the encoder. labels: which labels there are. loss: one of LOSSES;
    slope k > 0 and threshold 0 ≤ x0 ≤ spacing / 2 belong to the two with a buffer zone. boundary: see `prediction_errors`;
    the classification baseline has none. learning_rate: of the
    head, which starts random beside an encoder that is pretrained: one that lags behind pulls the embeddings out of shape;
    None: the encoder's, as the release has it. keeps_head: go on with the head of the encoder that training starts from.
    RecipeError for values out of range, and for values that have no effect with the loss.
    """

    def __init__(
        self,
        *,
        width: int,
        labels: LabelGrid,
        loss: str,
        slope: float | None = None,
        threshold: float | None = None,
        boundary: str = "left_mask",
        features: str = "uv_diff",
        learning_rate: float | None = None,
        keeps_head: bool = False,
    ) -> None:
        super().__init__()
        check_regression(loss=loss, slope=slope, threshold=threshold, boundary=boundary, spacing=labels.spacing)
        self.loss, self.slope, self.threshold, self.boundary, self.labels = loss, slope, threshold, boundary, labels
        num_classes = labels.num_classes if loss == "cross_entropy" else None
        self.head = RegressionHead(width, features=features, num_classes=num_classes)
        self.learning_rate = learning_rate
        self.keeps_heads = keeps_head

    def own_rates(self) -> Iterator[OwnRate]:
        yield OwnRate(parameters=tuple(self.head.parameters()), learning_rate=self.learning_rate)

    def start_from(self, folder: Path, *, where: str) -> None:
        if self.keeps_heads:
            load_heads(self, folder, where=f"{where}: keep_head")

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (2·B, D) embeddings of `batch.tokens`: DataError for more columns, and for pairs without a label."""
        columns_CBD = split_columns(embeddings, batch)
        if len(columns_CBD) != 2 or batch.labels is None:
            raise DataError(
                where="batch",
                found=f"{len(columns_CBD)} columns, {'no labels' if batch.labels is None else 'labels'}",
                expected="two columns and a label for every row",
                remedy="Regression learns from a graded corpus (kind: graded).",
            )
        outputs = self.head(columns_CBD[0], columns_CBD[1])
        labels_B = batch.labels.to(outputs.device)
        if self.loss == "cross_entropy":
            assert self.labels.spacing is not None, "checked at construction"
            return cross_entropy(outputs, labels_B, low=self.labels.low, spacing=self.labels.spacing)
        errors_B = prediction_errors(outputs, labels_B, boundary=self.boundary, low=self.labels.low, high=self.labels.high)
        return self._loss_of(errors_B)

    def _loss_of(self, errors_B: Tensor) -> Tensor:
        if self.loss in ("l1", "mse"):
            return l1(errors_B) if self.loss == "l1" else mse(errors_B)
        assert self.slope is not None and self.threshold is not None, "checked at construction"
        buffered: Callable[..., Tensor] = translated_relu if self.loss == "translated_relu" else smooth_k2
        return buffered(errors_B, slope=self.slope, threshold=self.threshold)


def check_regression(*, loss: str, slope: float | None, threshold: float | None, boundary: str, spacing: float | None) -> None:
    """RecipeError unless the values fit each other: the buffer zones of neighbouring labels must not overlap,
    and every value must have an effect."""
    _one_of("loss", loss, LOSSES)
    _one_of("boundary", boundary, BOUNDARIES)
    if loss == "cross_entropy":
        _require(boundary == "none", "boundary", boundary, "none for cross_entropy", "Class logits have no range: boundary: none.")
    if loss not in BUFFERED:
        for name, value in (("slope", slope), ("threshold", threshold)):
            _require(value is None, name, value, f"none for {loss}", "Leave it out: only translated_relu and smooth_k2 have one.")
    if loss not in ("l1", "mse"):
        _require(spacing is not None, "spacing", "none", f"the distance of two labels for {loss}", "Integer labels are 1 apart.")
    if loss in BUFFERED:
        assert spacing is not None
        has_slope = slope is not None and math.isfinite(slope) and slope > 0
        _require(has_slope, "slope", slope, "a finite number above 0", "The paper takes 1 to 4.")
        has_threshold = threshold is not None and 0 <= threshold <= spacing / 2
        _require(
            has_threshold, "threshold", threshold, f"0 to {spacing / 2:g}, half the distance of two labels", "The paper takes 0.2 to 0.3."
        )


def _one_of(name: str, value: str, values: tuple[str, ...]) -> None:
    _require(value in values, name, f'"{value}"', f"one of {', '.join(values)}", "Choose one of them.")


def _require(holds: bool, name: str, found: object, expected: str, remedy: str) -> None:
    if not holds:
        raise RecipeError(where=f"regression.{name}", found=str(found), expected=expected, remedy=remedy)


def _shape(predictions: Tensor, labels: Tensor, expected: str) -> DataError:
    return DataError(
        where="regression",
        found=f"predictions {tuple(predictions.shape)} and labels {tuple(labels.shape)}",
        expected=expected,
        remedy="Give one label a pair, in one dimension.",
    )
