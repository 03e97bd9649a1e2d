"""What the RSE paper printed (arXiv 2212.08802, Tables 1, 2 and 4), and which of our cells stands for which of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sentdist.report.paper import SIMCSE_SUPERVISED, STS_COLUMNS, Beside, PaperRow, PaperTable, beside_paper
from sentdist.report.tables import ResultTable

_PAPER = "RSE paper"
PAPER_TEMPERATURE = 0.05
_POOLED = "STS-B and SICK-R of RSE's own rows are scored on train, dev and test pooled, those of SimCSE on test: ours on test."

RSE_TABLES: dict[str, PaperTable] = {
    "1": PaperTable(
        paper=_PAPER,
        number="1",
        caption="Sources of positive pairs, BERT-base",
        columns=("Avg",),
        rows=(
            PaperRow(label="*Entailment", scores=(81.33,)),
            PaperRow(label="Entailment", scores=(77.67,)),
            PaperRow(label="Duplicate Question", scores=(75.96,)),
            PaperRow(label="Same Caption", scores=(74.55,)),
            PaperRow(label="Paraphrase", scores=(75.32,)),
            PaperRow(label="Question Answer", scores=(72.21,)),
            PaperRow(label="All 5 relations", scores=(74.62,)),
            PaperRow(label="RSE, mixed", scores=(82.17,)),
            PaperRow(label="Dropout", scores=(75.45,)),
        ),
        notes=("*: with contradictions as hard negatives; the other single relations have none in the paper.",),
        has_base=False,
    ),
    "2": PaperTable(
        paper=_PAPER,
        number="2",
        caption="Semantic textual similarity, BERT-base",
        columns=STS_COLUMNS,
        rows=(
            SIMCSE_SUPERVISED,
            PaperRow(label="RSE", scores=(76.27, 84.43, 80.60, 86.03, 81.86, 84.34, 81.73, 82.18)),
        ),
        notes=("RSE's row is one run, not a mean.", _POOLED),
    ),
    "4": PaperTable(
        paper=_PAPER,
        number="4",
        caption="Temperature, BERT-base",
        columns=("Avg",),
        rows=tuple(
            PaperRow(label=f"τ = {temperature:g}", scores=(score,))
            for temperature, score in ((0.05, 82.18), (0.001, 80.74), (0.01, 81.73), (0.1, 77.00), (1.0, 54.88))
        ),
        notes=(_POOLED,),
    ),
}

_ALONE = {
    "duplicate-question": "Duplicate Question", "same-caption": "Same Caption", "paraphrase": "Paraphrase", "qa-entailment": "Question Answer",
    "same-sentence": "Dropout",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RelationalFacts:
    """What a cell learned from triples. is_modelled: a vector a relation (rse), or none (info_nce); hard_negatives: whether they took part.
    is_scored: pairs are scored by relations."""

    relations: tuple[str, ...]
    is_modelled: bool
    is_scored: bool
    hard_negatives: bool
    temperature: float


def rse_besides(table: ResultTable, facts: Mapping[str, RelationalFacts | None]) -> Iterator[Beside]:
    """The paper's tables of which at least two rows have one of ours. facts: of the table's labels, None for what knows no relation."""
    known = {line.label: found for line in table.lines if (found := facts[line.label]) is not None}
    printed = {row.label for row in RSE_TABLES["4"].rows}
    rows: dict[str, dict[str, str]] = {
        "1": {label: row for label, found in known.items() if (row := _source_row(found))},
        "2": {label: row for label, found in known.items() if (row := _main_row(found))},
        "4": {label: tau for label, found in known.items() if found.is_scored and (tau := f"τ = {found.temperature:g}") in printed},
    }
    # The first of several that stand for one row, such as an encoder read in two ways.
    twins = {number: _first_of_each(found) for number, found in rows.items()}
    for number, matches in twins.items():
        paper = RSE_TABLES[number]
        is_told_apart = (
            len(set(matches.values())) == len(matches) > 1
        )  # a grid, or several readings of one encoder, has many cells for one row
        if is_told_apart and set(table.columns) & set(paper.columns):
            base = next((label for label, row in matches.items() if row == paper.rows[0].label), None)
            yield beside_paper(table, paper, matches=matches, base=base)


def _source_row(facts: RelationalFacts) -> str | None:
    if facts.is_modelled or facts.temperature != PAPER_TEMPERATURE:
        return "RSE, mixed" if _is_rse(facts) else None
    if len(facts.relations) > 1:
        return "All 5 relations"
    (relation,) = facts.relations
    if relation == "entailment":
        return "*Entailment" if facts.hard_negatives else "Entailment"
    return _ALONE.get(relation)


def _main_row(facts: RelationalFacts) -> str | None:
    if _is_rse(facts):
        return "RSE"
    is_simcse = not facts.is_modelled and facts.relations == ("entailment",) and facts.hard_negatives
    return SIMCSE_SUPERVISED.label if is_simcse and facts.temperature == PAPER_TEMPERATURE else None


def _is_rse(facts: RelationalFacts) -> bool:
    return facts.is_modelled and facts.is_scored and len(facts.relations) > 1 and facts.temperature == PAPER_TEMPERATURE


def _first_of_each(rows: Mapping[str, str]) -> dict[str, str]:
    """label -> row without the labels whose row an earlier label has."""
    first: dict[str, str] = {}
    for label, row in rows.items():
        if row not in first.values():
            first[label] = row
    return first
