"""Regression on graded pairs: Translated ReLU, Smooth K2 (arXiv 2406.05326) and its baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, assert_never

from pydantic import Field, model_validator

from sentdist.objectives.objective_spec import LossInputs, Mismatch, Needs, ObjectiveSpec, Rate, Rows, Start
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.objective import Objective

PAPER = Citation(
    key="sts_regression",
    kind="misc",
    authors=("Bowen Zhang", "Chunping Li"),
    title="Advancing Semantic Textual Similarity Modeling: A Regression Framework with Translated ReLU and Smooth K2 Loss",
    where="arXiv 2406.05326",
    year=2024,
    url="https://arxiv.org/abs/2406.05326",
    role="regression on graded pairs: Translated ReLU, Smooth K2",
)
ON_GRID = 1e-4  # of a spacing: labels are float32

LossName = Literal["translated_relu", "smooth_k2", "l1", "mse", "cross_entropy"]
Boundary = Literal["none", "left_mask", "clamp", "one_sided"]
Features = Literal["uv", "diff", "uv_diff"]


class Regression(ObjectiveSpec):
    """STS as regression on graded pairs (arXiv 2406.05326): Translated ReLU, Smooth K2, and its baselines."""

    title: ClassVar[str] = "regression on graded pairs (arXiv 2406.05326)"
    about: ClassVar[str] = "Translated ReLU, Smooth K2, L1, MSE, cross-entropy on graded pairs"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="needed")

    name: Literal["regression"] = "regression"
    loss: LossName = "smooth_k2"
    slope: Annotated[float, Field(gt=0.0)] | None = None  # slope k; required, like threshold, for translated_relu and smooth_k2
    threshold: Annotated[float, Field(ge=0.0)] | None = None  # largest error without loss, x0; at most half the spacing of the labels
    boundary: Boundary | None = None  # null: one_sided; cross_entropy has none
    features: Features = "uv_diff"
    label_range: tuple[float, float] | None = None  # null: that of the corpus
    spacing: Annotated[float, Field(gt=0.0)] | None = None  # null: that of the corpus, which may have none
    head_learning_rate: Rate | None = None  # null: the encoder's
    keep_head: bool = False  # continue with the head of the encoder that training starts from; false: a new head

    @property
    def has_buffer(self) -> bool:
        """Whether the loss has a slope and a zone without gradient."""
        return self.loss in ("translated_relu", "smooth_k2")

    @model_validator(mode="after")
    def _values_belong_to_the_loss(self) -> Self:
        for field, value in (("slope", self.slope), ("threshold", self.threshold)):
            if self.has_buffer and value is None:
                raise ValueError(f"{field}: found nothing; {self.loss} needs one (Smooth K2 of the paper: slope 2, threshold 0.25)")
            if not self.has_buffer and value is not None:
                raise ValueError(f"{field}: has no effect with {self.loss}; leave it out")
        if self.loss == "cross_entropy" and self.boundary not in (None, "none"):
            raise ValueError(f"boundary: found {self.boundary}; cross_entropy predicts classes, which have none; leave it out")
        if self.label_range is not None and self.label_range[0] >= self.label_range[1]:
            raise ValueError(f"label_range: found {list(self.label_range)}; expected two numbers, the lower first")
        if self.label_range is not None and self.spacing is not None:
            low, high = self.label_range
            steps = (high - low) / self.spacing
            if round(steps) < 1 or abs(steps - round(steps)) > ON_GRID:
                raise ValueError(f"label_range: found {low:g} to {high:g} in steps of {self.spacing:g}; expected whole steps")
        return self

    def settled(self, rows: Rows) -> Self:
        if rows.labels is None:
            return self
        boundary = "none" if self.loss == "cross_entropy" else self.boundary or "one_sided"
        settled = {"boundary": boundary, "label_range": (0.0, rows.labels.top), "spacing": rows.labels.spacing}
        return self.model_validate(self.model_dump() | settled)

    def follows(self, name: str) -> bool:
        return name == "spacing"  # the labels'

    def mismatch(self, rows: Rows) -> Mismatch | None:
        assert rows.labels is not None, "a regression needs labels"
        top, spacing = rows.labels
        if self.label_range is not None and self.label_range != (0.0, top):
            low, high = self.label_range
            return Mismatch(f"label_range {low:g} to {high:g}", f"0 to {top:g}, the labels of the corpus", "Correct it, or leave it out.")
        if spacing is None and self.loss not in ("l1", "mse"):
            remedy = "Choose another rounding for the corpus (without one: give their spacing), or the loss l1 or mse."
            return Mismatch("labels that are not rounded", f"labels on a grid for {self.loss}", remedy)
        if self.spacing is not None and self.spacing != spacing:
            expected = "no grid" if spacing is None else f"{spacing:g}, that of the corpus"
            return Mismatch(f"spacing {self.spacing:g}", expected, "Correct it, or leave it out.")
        if self.threshold is not None and spacing is not None and self.threshold > spacing / 2:
            found = f"threshold {self.threshold:g} for labels {spacing:g} apart"
            expected = f"at most {spacing / 2:g}: the zones of two labels would overlap"
            return Mismatch(found, expected, "The paper uses 0.2 to 0.3 for integers.")
        return None

    def mismatch_of_start(self, start: Start | None, rows: Rows) -> Mismatch | None:
        before = None if start is None else start.term
        if not self.keep_head or (isinstance(before, Regression) and start and start.has_same_terms and before.head == self.head):
            return None
        found = "a start without a regression head" if before is None else before.head if isinstance(before, Regression) else before.name
        return Mismatch(
            found="no start" if start is None else found,
            expected=f"a start with {self.head}, by the same objective",
            remedy="Leave keep_head out: training then starts with a new head.",
            where="keep_head",
        )

    @property
    def head(self) -> str:
        """Description of the head: settled objectives with equal ones can share a head."""
        outputs = "one output" if self.num_classes is None else f"{self.num_classes} classes"
        return f"a head on {self.features}, {outputs}"

    @property
    def num_classes(self) -> int | None:
        """V of a settled cross_entropy, which predicts one of the labels; None for the other losses, which predict a number."""
        if self.loss != "cross_entropy":
            return None
        assert self.label_range is not None and self.spacing is not None, "settled, and on rows that fit"
        return round((self.label_range[1] - self.label_range[0]) / self.spacing) + 1

    def make_loss(self, inputs: LossInputs) -> Objective:
        from sentdist.objectives.learned.regression import RegressionHead, RegressionLoss

        head = RegressionHead(inputs.needed_width(self.name), features=self.features, num_classes=self.num_classes)
        return RegressionLoss(head, self.loss_of_outputs, learning_rate=self.head_learning_rate, keeps_heads=self.keep_head)

    def loss_of_outputs(self, outputs: Tensor, labels_B: Tensor) -> Tensor:
        """Return the loss of settled values from the head's predictions (B,), or logits (B, V), and the labels of the pairs."""
        assert self.label_range is not None and self.boundary is not None, "the plan settles them"
        low, high = self.label_range
        if self.loss == "cross_entropy":
            assert self.spacing is not None, "the plan asks for a grid of labels"
            return cross_entropy(outputs, labels_B, low=low, spacing=self.spacing)
        errors_B = prediction_errors(outputs, labels_B, boundary=self.boundary, low=low, high=high)
        match self.loss:
            case "l1":
                return l1(errors_B)
            case "mse":
                return mse(errors_B)
            case "translated_relu" | "smooth_k2":
                assert self.slope is not None and self.threshold is not None, "the values were checked"
                buffered = {"translated_relu": translated_relu, "smooth_k2": smooth_k2}[self.loss]
                return buffered(errors_B, slope=self.slope, threshold=self.threshold)
        assert_never(self.loss)


def translated_relu(errors_B: Tensor, *, slope: float, threshold: float) -> Tensor:
    """f(x) = 0 for x < x0,  k (x − x0) for x ≥ x0.

    Optimizes: predictions nearer to their label than x0; farther ones are pulled back with constant force k.
        The slope at exactly x = x0 is k, as in the released code (torch.clamp); 0 would be a subgradient too.
    Units and reduction: k times label units, mean over B. x0 = 0 and k = 1: the L1 loss.
    Source: arXiv 2406.05326, Eq. 1.
    Shapes:
        Errors x = |p − y| ≥ 0, (B,).
    """
    import torch

    return (slope * torch.clamp(errors_B - threshold, min=0.0)).mean()


def smooth_k2(errors_B: Tensor, *, slope: float, threshold: float) -> Tensor:
    """g(x) = 0 for x < x0,  k (x − x0)² for x ≥ x0.

    Optimizes: as `translated_relu`, but the force grows with the error: 2k (x − x0).
    Units and reduction: k times squared label units, mean over B. x0 = 0 and k = 1: mean squared error.
    Source: arXiv 2406.05326, Eq. 2, printed as k (x² − 2 x0 x + x0²). Factored here: expanded, it loses all digits near x0 (float32) and
        becomes negative (bfloat16).
    Shapes:
        Errors x = |p − y| ≥ 0, (B,).
    """
    import torch

    return (slope * torch.clamp(errors_B - threshold, min=0.0).square()).mean()


def l1(errors_B: Tensor) -> Tensor:
    """Return the mean absolute error in label units: Translated ReLU without a buffer zone."""
    return errors_B.mean()


def mse(errors_B: Tensor) -> Tensor:
    """Return the mean squared error in squared label units: Smooth K2 without a buffer zone."""
    return errors_B.square().mean()


def prediction_errors(predictions_B: Tensor, labels_B: Tensor, *, boundary: Boundary, low: float, high: float) -> Tensor:
    """Return |p − y|, (B,), with predictions outside the label range [low, high] handled by `boundary`.

    Source: arXiv 2406.05326, Section 3, and its released training scripts; one_sided is ours.

    Args:
        boundary: "none": unchanged. "left_mask": those below low count as low (the released code). "clamp": those on either side move
            to the boundary (the paper). Both remove the gradient of every prediction outside, even of wrong ones. "one_sided": the error
            is 0 only beyond the boundary that is the pair's own label; all other predictions keep error and gradient.
    Raises:
        ValueError: not both are (B,): (B, 1) − (B,) would silently be (B, B).
    """
    if predictions_B.ndim != 1 or predictions_B.shape != labels_B.shape:
        raise ValueError(f"found predictions {tuple(predictions_B.shape)} and labels {tuple(labels_B.shape)}; expected (B,) both")
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
    """Return the paper's classification baseline: V-way softmax where label low + c · spacing is class c. Nats, mean over B."""
    import torch
    from torch.nn import functional as F

    return F.cross_entropy(logits_BV, torch.round((labels_B - low) / spacing).long())
