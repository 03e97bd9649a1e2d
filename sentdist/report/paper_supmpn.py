"""What the SupMPN paper printed (Appl. Sci. 2022, 12(19) 9659, Tables 2, 3 and A1), and which of our cells stands for which of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sentdist.report.paper import SIMCSE_SUPERVISED, STS_COLUMNS, Beside, PaperRow, PaperTable, beside_paper
from sentdist.report.tables import ResultTable

_PAPER = "SupMPN paper"
_SIMCSE, _SUPMPN = SIMCSE_SUPERVISED.label, "SupMPN"
_SINGLE_RUNS = "The paper gives one number a row, without saying of how many runs."

SUPMPN_TABLES: dict[str, PaperTable] = {
    "2": PaperTable(
        paper=_PAPER,
        number="2",
        caption="Semantic textual similarity, BERT-base",
        columns=STS_COLUMNS,
        rows=(
            SIMCSE_SUPERVISED,
            PaperRow(label=_SUPMPN, scores=(75.96, 84.96, 80.61, 85.63, 81.69, 84.90, 80.72, 82.07)),
        ),
        notes=(
            _SINGLE_RUNS,
            "SimCSE's row is that of its own paper (one positive, one negative, batch 512); here both train on the same premises.",
            "The paper measures its large model's gain against a base model (SBERT): compare models of one size.",
        ),
    ),
    "3": PaperTable(
        paper=_PAPER,
        number="3",
        caption="Transfer tasks, BERT-base",
        columns=("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "Avg"),
        rows=(
            PaperRow(label=_SIMCSE, scores=(82.69, 89.25, 94.81, 89.59, 87.31, 88.40, 73.51, 86.51)),
            PaperRow(label=_SUPMPN, scores=(82.93, 89.26, 94.76, 90.21, 86.99, 88.20, 76.35, 86.96)),
        ),
        notes=(_SINGLE_RUNS, "The paper prints 84.81 for SimCSE's SUBJ; its source and the average say 94.81."),
    ),
    "A1": PaperTable(
        paper=_PAPER,
        number="A1",
        caption="What takes the place of missing positives, BERT-base",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="None", scores=(75.96, 84.96, 80.61, 85.63, 81.69, 84.90, 80.72, 82.07)),
            PaperRow(label="RD", scores=(75.82, 84.80, 80.37, 85.76, 81.98, 84.36, 80.08, 81.88)),
            PaperRow(label="SR", scores=(76.75, 83.82, 80.34, 86.04, 80.67, 83.88, 80.09, 81.66)),
            PaperRow(label="PP", scores=(76.10, 84.66, 79.81, 84.53, 81.65, 84.02, 81.18, 81.71)),
        ),
        notes=(_SINGLE_RUNS, "None: copies of the anchor; RD: words deleted; SR: synonyms; PP: paraphrases for about half."),
    ),
}

_REWORDED = {None: "None", "word_deletion": "RD", "synonyms": "SR", "paraphrases": "PP"}


@dataclass(frozen=True, kw_only=True)
class PremiseFacts:
    """What a cell learned from premises with their hypotheses. has_groups: with several positives or negatives (supmpn), or one of each (info_nce).
    as_printed: temperature 0.05, and none of the loss's and the corpus's options but the augmentation."""

    has_groups: bool
    as_printed: bool
    augmentation: str | None


def supmpn_besides(table: ResultTable, facts: Mapping[str, PremiseFacts | None]) -> Iterator[Beside]:
    """The paper's tables of which at least two rows have one of ours. facts: of the table's labels, None for what knows no premises."""
    known = {line.label: found for line in table.lines if (found := facts[line.label]) is not None and found.as_printed}
    main = {label: _SUPMPN if found.has_groups else _SIMCSE for label, found in known.items() if found.augmentation is None}
    rewordings = {label: _REWORDED[found.augmentation] for label, found in known.items() if found.has_groups}
    for number, matches in {"2": main, "3": main, "A1": rewordings}.items():
        paper = SUPMPN_TABLES[number]
        is_told_apart = len(set(matches.values())) == len(matches) > 1  # a grid has many cells for one row
        has_columns = bool((set(table.columns) & set(paper.columns)) - {"Avg"})
        if is_told_apart and has_columns:
            yield beside_paper(
                table, paper, matches=matches, base=next(label for label in matches if matches[label] == paper.rows[0].label)
            )
