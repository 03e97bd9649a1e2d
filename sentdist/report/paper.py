"""What the RCL paper printed (arXiv 2209.13241, Tables 1-5), and how our table looks beside a printed one."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentdist.errors import DataError
from sentdist.report.tables import ResultTable

STS_COLUMNS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
FAQ_COLUMNS = ("Acc@1", "Acc@3", "Acc@5", "MAP")


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One printed row: scores × 100 in the order of the table's columns, and the columns printed with a star (p < 0.05)."""

    label: str
    scores: tuple[float, ...]
    starred: tuple[str, ...] = ()


# Of SimCSE's own paper (arXiv 2104.08821, Table 5, BERT-base): both RSE and SupMPN print it as the row to beat.
SIMCSE_SUPERVISED = PaperRow(label="SimCSE, supervised", scores=(75.30, 84.67, 80.19, 85.40, 80.82, 84.25, 80.39, 81.57))


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One printed table; the first row is the untouched checkpoint unless `has_base` is False. `notes`: misprints and doubts."""

    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...] = ()
    has_base: bool = True
    paper: str = "RCL paper"

    def row(self, label: str) -> PaperRow:
        """The row of this label; DataError with the labels that exist."""
        for row in self.rows:
            if row.label == label:
                return row
        raise DataError(
            where=f"{self.paper}, Table {self.number}",
            found=repr(label),
            expected=f"one of {[row.label for row in self.rows]}",
            remedy="Match our rows to the paper's own labels.",
        )


_BASE = PaperRow(label="SRoBERTa-base", scores=(74.46, 84.80, 79.98, 85.24, 81.89, 84.84, 77.85, 81.29))
_ATTENTION_DROPOUT = PaperRow(
    label="Attention dropout p=0.1", scores=(74.53, 85.08, 80.24, 85.60, 82.64, 85.43, 77.88, 81.63), starred=("STS16",)
)
_DROPHEAD = PaperRow(label="DropHead p=0.1", scores=(73.71, 85.04, 79.56, 85.36, 82.10, 85.00, 77.73, 81.21))
_RCL = PaperRow(
    label="RCL",
    scores=(76.15, 85.84, 80.89, 86.58, 83.36, 84.85, 79.14, 82.40),
    starred=("STS12", "STS13", "STS14", "STS15", "STS16", "SICK-R"),
)

_FIVE_RUNS = "The paper calls every row a mean of 5 runs, the untouched checkpoint's too; that row is a constant here."
_BASE_DOUBT = "The base prints STS-B 84.84, while 85.54 is listed for nli-roberta-base-v2: compare gains over one's own base."
_NO_TEST = "The paper does not name its test. Its underlines (p < 0.1) are lost in the text that we have."

PAPER_TABLES: dict[str, PaperTable] = {
    "1a": PaperTable(
        number="1a",
        caption="Attention dropout on seven STS tasks",
        columns=STS_COLUMNS,
        rows=(
            _BASE,
            _ATTENTION_DROPOUT,
            PaperRow(label="Attention dropout p=0.2", scores=(73.10, 84.49, 79.38, 85.32, 81.99, 84.88, 78.81, 81.14)),
            PaperRow(label="Attention dropout p=0.3", scores=(73.61, 84.79, 79.44, 85.45, 81.77, 84.81, 78.07, 81.13)),
        ),
        notes=(_FIVE_RUNS, _BASE_DOUBT, _NO_TEST, "RoBERTa's own attention dropout is already 0.1: p = 0.1 is plain fine-tuning."),
    ),
    "1b": PaperTable(
        number="1b",
        caption="DropHead on seven STS tasks",
        columns=STS_COLUMNS,
        rows=(
            _BASE,
            _DROPHEAD,
            PaperRow(label="DropHead p=0.2", scores=(74.02, 84.73, 79.58, 85.43, 81.89, 84.89, 77.86, 81.20)),
            PaperRow(label="DropHead p=0.3", scores=(74.18, 84.30, 79.20, 85.18, 82.02, 84.81, 78.21, 81.13)),
        ),
        notes=(_FIVE_RUNS, _BASE_DOUBT, _NO_TEST),
    ),
    "2a": PaperTable(
        number="2a",
        caption="FAQ retrieval on FAQIR",
        columns=FAQ_COLUMNS,
        rows=(
            PaperRow(label="SRoBERTa-base", scores=(20.74, 32.94, 39.38, 29.90)),
            PaperRow(label="DropHead p=0.1", scores=(20.62, 33.22, 39.88, 29.94)),
            PaperRow(label="Attention dropout p=0.1", scores=(21.42, 34.33, 41.05, 31.00)),
            PaperRow(label="RCL", scores=(22.01, 35.05, 41.42, 31.65), starred=("Acc@1", "Acc@3", "MAP")),
        ),
        notes=(_NO_TEST, "The last row is printed with a stray “(p=0.3)”."),
    ),
    "2b": PaperTable(
        number="2b",
        caption="FAQ retrieval on COUGH",
        columns=FAQ_COLUMNS,
        rows=(
            PaperRow(label="SRoBERTa-base", scores=(5.95, 12.62, 17.67, 12.72)),
            PaperRow(label="DropHead p=0.1", scores=(5.96, 12.73, 17.75, 12.90)),
            PaperRow(label="Attention dropout p=0.1", scores=(6.14, 13.05, 17.95, 13.05)),
            PaperRow(label="RCL", scores=(6.35, 13.31, 18.49, 13.41), starred=("Acc@1", "Acc@5", "MAP")),
        ),
        notes=(_NO_TEST, "Which part of COUGH was used is not said."),
    ),
    "3": PaperTable(
        number="3",
        caption="The best of each method on seven STS tasks",
        columns=STS_COLUMNS,
        rows=(_BASE, _DROPHEAD, _ATTENTION_DROPOUT, _RCL),
        notes=(
            _FIVE_RUNS,
            _BASE_DOUBT,
            _NO_TEST,
            "Best setting: batch 64, φ = {.01, .02, .03, .04}; Appendix A.1.1 prints 0.0 for 0.02, which the grid and Table 4 refute.",
        ),
    ),
    "4": PaperTable(
        number="4",
        caption="Average STS score against the number of regulators (two for each entropy encoder)",
        columns=("Avg",),
        rows=(
            PaperRow(label="0", scores=(81.29,)),
            PaperRow(label="2", scores=(81.47,), starred=("Avg",)),
            PaperRow(label="4", scores=(81.98,), starred=("Avg",)),
            PaperRow(label="6", scores=(82.29,), starred=("Avg",)),
            PaperRow(label="8", scores=(82.40,), starred=("Avg",)),
            PaperRow(label="10", scores=(82.42,)),
        ),
        notes=("Stars compare with the preceding number of regulators.", "10 regulators (82.42) do not differ from 8 (82.40) by the paper's own test."),
    ),
    "5": PaperTable(
        number="5",
        caption="The entropy encoders against RCL on seven STS tasks",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="Entropy encoder φ=0.01", scores=(75.97, 83.49, 78.66, 84.55, 82.35, 83.49, 78.13, 80.95)),
            PaperRow(label="Entropy encoder φ=0.02", scores=(74.31, 82.77, 78.90, 84.35, 81.55, 83.49, 76.13, 80.22)),
            PaperRow(label="Entropy encoder φ=0.03", scores=(73.30, 83.18, 79.37, 84.28, 81.09, 83.55, 75.47, 80.03)),
            PaperRow(label="Entropy encoder φ=0.04", scores=(73.31, 82.98, 79.27, 84.13, 81.21, 83.26, 74.93, 79.87)),
            _RCL,
        ),
        notes=(
            "The caption speaks of three entropy rows; there are four.",
            "The average of φ=0.02 is printed 80.22; its cells give 80.21.",
        ),
        has_base=False,
    ),
}  # fmt: skip

# Number of regulators -> average STS score × 100 (Table 4), for the curve beside ours.
PAPER_REGULATORS: dict[int, float] = {int(row.label): row.scores[0] for row in PAPER_TABLES["4"].rows}


@dataclass(frozen=True, kw_only=True)
class BesideRow:
    """Ours and the paper's scores of one system, and what each gains over its own base row; None where there is no such number."""

    label: str
    paper_label: str
    ours: tuple[float | None, ...]
    paper: tuple[float, ...]
    our_gain: tuple[float | None, ...]
    paper_gain: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Our table beside one of the paper's, over the columns that both have."""

    paper: PaperTable
    columns: tuple[str, ...]
    rows: tuple[BesideRow, ...]
    note: str


def beside_paper(
    table: ResultTable, paper: PaperTable, *, matches: Mapping[str, str], base: str | None, columns: Mapping[str, str] | None = None
) -> Beside:
    """Put our lines beside the paper's rows.

    matches: our label -> the paper's; base: our label of the row that gains are measured from (the paper's is its first); columns: our
    column -> the paper's where the names differ. Encoders, data and budgets differ, so gains compare and levels do not. Raises DataError
    for a label or column that the paper lacks.
    """
    names = {column: (columns or {}).get(column, column) for column in table.columns}
    shared = [column for column in table.columns if names[column] in paper.columns]
    if not shared:
        raise DataError(
            where=f"{paper.paper}, Table {paper.number}",
            found=f"our columns {list(table.columns)}",
            expected=f"some of {list(paper.columns)}",
            remedy="Map our columns to the paper's names.",
        )
    places = [paper.columns.index(names[column]) for column in shared]
    paper_base = [paper.rows[0].scores[place] for place in places] if paper.has_base else [None] * len(places)
    our_base = _means(table, base, shared) if base is not None else [None] * len(shared)
    rows = []
    for label, paper_label in matches.items():
        ours = _means(table, label, shared)
        printed = [paper.row(paper_label).scores[place] for place in places]
        rows.append(
            BesideRow(
                label=label,
                paper_label=paper_label,
                ours=tuple(ours),
                paper=tuple(printed),
                our_gain=_gains(ours, our_base if label != base else []),
                paper_gain=_gains(printed, paper_base if paper_label != paper.rows[0].label else []),
            )
        )
    note = "Levels depend on encoder, data and budget; what can be compared is each side's gain over its own base, the signed number."
    return Beside(paper=paper, columns=tuple(names[column] for column in shared), rows=tuple(rows), note=note)


def beside_to_markdown(beside: Beside) -> str:
    """Two lines a system: ours, then the paper's."""
    lines = [f"### Beside the paper's Table {beside.paper.number}: {beside.paper.caption}", ""]
    lines += ["| | | " + " | ".join(beside.columns) + " |", "|:--|:--|" + "--:|" * len(beside.columns)]
    for row in beside.rows:
        lines.append(f"| {row.label} | ours | " + " | ".join(_cells(row.ours, row.our_gain)) + " |")
        lines.append(f"| {row.paper_label} | paper | " + " | ".join(_cells(row.paper, row.paper_gain)) + " |")
    return "\n".join([*lines, "", f"<sub>{' '.join((beside.note, *beside.paper.notes))}</sub>", ""])


def beside_to_html(beside: Beside) -> str:
    """The same as a `<figure>`."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in beside.columns)
    body = []
    for row in beside.rows:
        for kind, label, scores, gains in (
            ("ours", row.label, row.ours, row.our_gain),
            ("paper", row.paper_label, row.paper, row.paper_gain),
        ):
            cells = "".join(f"<td>{_html_cell(score, gain)}</td>" for score, gain in zip(scores, gains, strict=True))
            body.append(f'<tr class="{kind}"><th scope="row">{html.escape(label)}</th><td class="who">{kind}</td>{cells}</tr>')
    notes = html.escape(" ".join((beside.note, *beside.paper.notes)))
    title = html.escape(f"Beside the paper's Table {beside.paper.number}: {beside.paper.caption}")
    return (
        f'<figure class="results beside"><figcaption>{title}</figcaption><div class="scroll"><table><thead><tr><th></th><th></th>{head}</tr>'
        f'</thead><tbody>{"".join(body)}</tbody></table></div><p class="notes">{notes}</p></figure>'
    )


def _means(table: ResultTable, label: str, columns: Sequence[str]) -> list[float | None]:
    line = next((line for line in table.lines if line.label == label), None)
    if line is None:
        raise DataError(
            where=f"table {table.title!r}",
            found=repr(label),
            expected=f"one of {[line.label for line in table.lines]}",
            remedy="Match the labels of our own table.",
        )
    return [summary.mean if (summary := line.cells[column].summary) else None for column in columns]


def _gains(scores: Sequence[float | None], base: Sequence[float | None]) -> tuple[float | None, ...]:
    """Scores minus the base's; without a base (it has no gain over itself) all None."""
    return tuple(
        None if score is None or other is None else score - other for score, other in itertools.zip_longest(scores, base, fillvalue=None)
    )


def _cells(scores: Sequence[float | None], gains: Sequence[float | None]) -> list[str]:
    return [
        "–" if score is None else f"{score:.2f}" + ("" if gain is None else f" ({gain:+.2f})")
        for score, gain in zip(scores, gains, strict=True)
    ]


def _html_cell(score: float | None, gain: float | None) -> str:
    if score is None:
        return "–"
    tone = "" if gain is None else "worse" if gain < -0.005 else "better" if gain > 0.005 else ""
    return f'<span class="mean">{score:.2f}</span>' + ("" if gain is None else f'<span class="gain {tone}">{gain:+.2f}</span>')
