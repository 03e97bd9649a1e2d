"""The head of regression on graded pairs, and the labels it is asked for (arXiv 2406.05326)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.heads import load_heads
from sentdist.learning.objective import Objective, OwnRate, split_columns
from sentdist.objectives.regression import ON_GRID, cross_entropy, l1, mse, prediction_errors, smooth_k2, translated_relu

BUFFERED = ("translated_relu", "smooth_k2")  # the losses with a slope and a buffer zone
LOSSES = (*BUFFERED, "l1", "mse", "cross_entropy")
BOUNDARIES = ("none", "left_mask", "clamp", "one_sided")
VECTORS_PER_FEATURE = {"uv": 2, "diff": 1, "uv_diff": 3}


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
