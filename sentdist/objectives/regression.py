"""STS as regression on graded pairs; the equations stand in learning/objectives/regression.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Misfit, Needs, ObjectiveSpec, Rate, Rows, Start

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective

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


class Regression(ObjectiveSpec):
    """STS as regression on graded pairs (arXiv 2406.05326): Translated ReLU, Smooth K2, and their baselines."""

    title: ClassVar[str] = "regression on graded pairs (arXiv 2406.05326)"
    about: ClassVar[str] = "Translated ReLU, Smooth K2, L1, MSE, cross-entropy on graded pairs"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="needed")
    equation: ClassVar[str] = "sentdist/learning/objectives/regression.py"

    name: Literal["regression"] = "regression"
    loss: Literal["translated_relu", "smooth_k2", "l1", "mse", "cross_entropy"] = "smooth_k2"
    slope: Annotated[float, Field(gt=0.0)] | None = None  # k; of translated_relu and smooth_k2, which need both
    threshold: Annotated[float, Field(ge=0.0)] | None = None  # x0, at most half the spacing of the labels
    boundary: Literal["none", "left_mask", "clamp", "one_sided"] | None = None  # None: one_sided; cross_entropy has none
    features: Literal["uv", "diff", "uv_diff"] = "uv_diff"
    label_range: tuple[float, float] | None = None  # None: that of the corpus
    spacing: Annotated[float, Field(gt=0.0)] | None = None  # None: that of the corpus, which may have none
    head_learning_rate: Rate | None = None  # None: the encoder's
    keep_head: bool = False  # go on with the head of the encoder that training starts from; False: a new one

    @property
    def has_buffer(self) -> bool:
        """Whether its loss has a slope and a zone without gradient."""
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
        return self

    def settled(self, rows: Rows) -> Self:
        if rows.labels is None:
            return self
        boundary = "none" if self.loss == "cross_entropy" else self.boundary or "one_sided"
        settled = {"boundary": boundary, "label_range": (0.0, rows.labels.top), "spacing": rows.labels.spacing}
        return self.model_validate(self.model_dump() | settled)

    def misfit(self, rows: Rows) -> Misfit | None:
        assert rows.labels is not None, "a regression needs labels"
        top, spacing = rows.labels
        if self.label_range is not None and self.label_range != (0.0, top):
            low, high = self.label_range
            return Misfit(f"label_range {low:g} to {high:g}", f"0 to {top:g}, the labels of the corpus", "Correct it, or leave it out.")
        if spacing is None and self.loss not in ("l1", "mse"):
            remedy = "Choose another rounding for the corpus, or the loss l1 or mse."
            return Misfit("labels that are not rounded", f"labels on a grid for {self.loss}", remedy)
        if self.spacing is not None and self.spacing != spacing:
            expected = "no grid" if spacing is None else f"{spacing:g}, that of the corpus"
            return Misfit(f"spacing {self.spacing:g}", expected, "Correct it, or leave it out.")
        if self.threshold is not None and spacing is not None and self.threshold > spacing / 2:
            found = f"threshold {self.threshold:g} for labels {spacing:g} apart"
            expected = f"at most {spacing / 2:g}: the zones of two labels would overlap"
            return Misfit(found, expected, "The paper takes 0.2 to 0.3 for integers.")
        return None

    def misfit_of_start(self, start: Start | None, rows: Rows) -> Misfit | None:
        before = None if start is None else start.term
        if not self.keep_head or (isinstance(before, Regression) and start and start.has_same_terms and before.head == self.head):
            return None
        had = "a start without a regression head" if before is None else before.head if isinstance(before, Regression) else before.name
        return Misfit(
            found="no start" if start is None else had,
            expected=f"a start with {self.head}, by the same objective",
            remedy="Leave keep_head out: training then starts with a new head.",
            where="keep_head",
        )

    @property
    def head(self) -> str:
        """What must be equal for one head to serve two settled objectives, in words."""
        if self.loss != "cross_entropy":
            return f"a head on {self.features}, one output"
        assert self.label_range is not None and self.spacing is not None, "settled"
        return f"a head on {self.features}, {round((self.label_range[1] - self.label_range[0]) / self.spacing) + 1} classes"

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.regression import LabelGrid
        from sentdist.learning.objectives.regression import Regression as Loss

        assert self.label_range is not None and self.boundary is not None, "the plan settles them"
        low, high = self.label_range
        return Loss(
            width=given.encoder.width,
            labels=LabelGrid(low=low, high=high, spacing=self.spacing),
            loss=self.loss,
            slope=self.slope,
            threshold=self.threshold,
            boundary=self.boundary,
            features=self.features,
            learning_rate=self.head_learning_rate,
            keeps_head=self.keep_head,
        )
