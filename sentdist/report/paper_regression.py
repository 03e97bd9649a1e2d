"""What the STS regression paper printed (arXiv 2406.05326, Tables 2, 3 and 5), and which of our cells stands for which of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sentdist.report.paper import STS_COLUMNS, Beside, PaperRow, PaperTable, beside_paper
from sentdist.report.tables import ResultTable
from sentdist.report.thresholds import TITLES, LossShape, ThresholdCell

_PAPER = "STS regression paper"
_SMOOTH_K2 = PaperRow(label="BERT Smooth K2 Loss", scores=(72.39, 78.33, 75.28, 80.26, 74.52, 78.78, 72.65, 76.03))

REGRESSION_TABLES: dict[str, PaperTable] = {
    "2": PaperTable(
        paper=_PAPER,
        number="2",
        caption="Losses on NLI labels, BERT-base",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="BERT Cross Entropy", scores=(70.01, 71.18, 70.10, 78.37, 72.92, 74.88, 73.58, 73.01)),
            PaperRow(label="BERT L1 Loss", scores=(69.76, 69.56, 68.13, 76.33, 70.96, 73.61, 70.28, 71.23)),
            PaperRow(label="BERT Translated ReLU", scores=(72.51, 75.46, 72.34, 78.46, 72.64, 76.54, 72.02, 74.28)),
            PaperRow(label="BERT MSE Loss", scores=(72.38, 76.47, 74.35, 78.71, 72.95, 77.91, 70.67, 74.78)),
            _SMOOTH_K2,
        ),
        notes=("Single runs (seed 777). Batch and schedule of the released code differ from the text: 64 and 80 % of warm-up.",),
    ),
    "3": PaperTable(
        paper=_PAPER,
        number="3",
        caption="Going on with STS-B and SICK-R train, BERT-base",
        columns=STS_COLUMNS,
        rows=(_SMOOTH_K2, PaperRow(label="Ours + STS-B and SICK-R train", scores=(73.68, 88.42, 86.10, 86.56, 79.63, 84.12, 82.01, 82.93))),
        notes=(
            "STS-B train holds 17 to 50 % of each year's test pairs of STS12-16, so the paper's row stands beside our unfiltered one;"
            " what can be learned from scores is our filtered row.",
        ),
    ),
    "5": PaperTable(
        paper=_PAPER,
        number="5",
        caption="What the head reads, BERT-base",
        columns=("Avg",),
        rows=(
            PaperRow(label="(u, v, |u-v|)", scores=(76.03,)),
            PaperRow(label="(u, v)", scores=(53.30,)),
            PaperRow(label="(|u-v|)", scores=(54.84,)),
        ),
        notes=("The labels of the two ablations are inferred from their order: the text that we have lost them.",),
    ),
}  # fmt: skip

_LOSS_ROWS = {
    "cross_entropy": "BERT Cross Entropy", "l1": "BERT L1 Loss", "translated_relu": "BERT Translated ReLU", "mse": "BERT MSE Loss",
    "smooth_k2": "BERT Smooth K2 Loss",
}  # fmt: skip
_FEATURE_ROWS = {"uv_diff": "(u, v, |u-v|)", "uv": "(u, v)", "diff": "(|u-v|)"}


@dataclass(frozen=True, kw_only=True)
class RegressionFacts:
    """What a cell's regression was. goes_on: its training starts from another one's encoder; is_filtered: test pairs were left out."""

    loss: str
    boundary: str
    features: str
    slope: float | None
    threshold: float | None
    goes_on: bool
    is_filtered: bool

    @property
    def cell(self) -> ThresholdCell | None:
        """Its place among slopes and thresholds; None for a loss that has none."""
        if self.slope is None or self.threshold is None:
            return None
        return ThresholdCell(loss=self.loss, boundary=self.boundary, slope=self.slope, threshold=self.threshold)

    @property
    def shape(self) -> LossShape | None:
        """Its loss as a function of the error; None for classes, which have none."""
        if self.loss not in TITLES:
            return None
        return LossShape(loss=self.loss, slope=1.0 if self.slope is None else self.slope, threshold=self.threshold or 0.0)


def regression_besides(table: ResultTable, facts: Mapping[str, RegressionFacts | None]) -> Iterator[Beside]:
    """The paper's tables of which a row beside the base has one of ours. facts: of the table's labels, None for what is no regression."""
    known = {line.label: found for line in table.lines if (found := facts[line.label]) is not None}
    twins = {
        "2": {label: _LOSS_ROWS[found.loss] for label, found in known.items() if not found.goes_on and found.features == "uv_diff"},
        "3": {
            label: "Ours + STS-B and SICK-R train" if found.goes_on else "BERT Smooth K2 Loss"
            for label, found in known.items()
            if found.loss == "smooth_k2" and not found.is_filtered
        },
        "5": {label: _FEATURE_ROWS[found.features] for label, found in known.items() if not found.goes_on and found.loss == "smooth_k2"},
    }
    for number, matches in twins.items():
        paper = REGRESSION_TABLES[number]
        is_told_apart = len(set(matches.values())) == len(matches) > 1  # a grid has many cells for one row
        if is_told_apart and set(table.columns) & set(paper.columns):
            base = next((label for label, row in matches.items() if row == paper.rows[0].label), None)
            yield beside_paper(table, paper, matches=matches, base=base)
