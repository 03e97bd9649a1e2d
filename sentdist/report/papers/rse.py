"""Printed results of the RSE paper (arXiv 2212.08802, Tables 1 to 7), and which of our cells reproduce which row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.rse import RSE
from sentdist.plan.corpora.relations import RelationalCorpus
from sentdist.plan.stage import as_number
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import sweep_rows
from sentdist.report.method_figures import LINK_COLUMNS
from sentdist.report.printed import (
    SIMCSE_SUPERVISED,
    STS_COLUMNS,
    TRANSFER_COLUMNS,
    FurtherTable,
    PaperRow,
    PaperTable,
    PaperTables,
    SideBySide,
    with_distinct_rows,
)
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord

_PAPER = "RSE paper"
PAPER_TEMPERATURE = 0.05
_PAPER_WEIGHTS = {"entailment": 1.0, "duplicate-question": 0.5}
_PAPERS = "rayjobs/recipes/papers"
_MIXED = ("entailment", "duplicate-question")  # RSE's relations for STS
_FIVE = (*_MIXED, "paraphrase", "same-caption", "qa-entailment")
_SIX = (*_FIVE, "same-sentence")
_ENCODERS = {"bert-base": "RSE", "bert-large": "RSE-BERT-large", "roberta-base": "RSE-RoBERTa-base", "roberta-large": "RSE-RoBERTa-large"}
_POOLED = "The RSE rows are scored on pooled train, dev and test of STS-B and SICK-R, the SimCSE rows on test; each row of ours says which."
_POOLED_COLUMNS = {"stsb-pooled": "STS-B", "sickr-pooled": "SICK-R"}

# Relation in recipes -> its row in Table 7.
LINK_ROWS = {
    "entailment": "Entailment", "duplicate-question": "Duplicate Question", "paraphrase": "Paraphrase", "qa-entailment": "QA Entailment",
    "same-caption": "Same Caption", "all": "All",
}  # fmt: skip

# Table 7, on six large corpora with BERT-base, × 100, by relation in recipes.
PAPER_LINKS: dict[str, tuple[float, float, float, float]] = {
    "entailment": (80, 74, 85, 93),
    "duplicate-question": (83, 76, 88, 97),
    "paraphrase": (97, 95, 98, 100),
    "qa-entailment": (85, 80, 90, 95),
    "same-caption": (56, 45, 63, 79),
    "all": (81, 74, 84, 92),
}

RSE_TABLES: dict[str, PaperTable] = {
    "1": PaperTable(
        paper=_PAPER,
        number="1",
        base=None,
        recipes={"": f"{_PAPERS}/rse_table1.yaml"},
        also=_POOLED_COLUMNS,
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
        notes=("*: with contradictions as hard negatives; the other single relations have none in the paper.", _POOLED),
    ),
    "2": PaperTable(
        paper=_PAPER,
        number="2",
        base=SIMCSE_SUPERVISED.label,
        recipes={label: f"{_PAPERS}/rse_table2.yaml" for label in (SIMCSE_SUPERVISED.label, *_ENCODERS.values())},
        also=_POOLED_COLUMNS,
        caption="Semantic textual similarity",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="GloVe (avg.)", scores=(55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, 61.32)),
            PaperRow(label="BERT-base (first-last-avg)", scores=(39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70)),
            PaperRow(label="CT-BERT-base", scores=(61.63, 76.80, 68.47, 77.50, 76.48, 74.31, 69.19, 72.05)),
            PaperRow(label="SimCSE-BERT-base, unsupervised", scores=(68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25)),
            PaperRow(label="SimCSE-RoBERTa-base, unsupervised", scores=(70.16, 81.77, 73.24, 81.36, 80.65, 80.22, 68.56, 76.57)),
            PaperRow(label="InferSent-GloVe", scores=(52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65, 65.01)),
            PaperRow(label="USE", scores=(64.49, 67.80, 64.61, 76.83, 73.18, 74.92, 76.69, 71.22)),
            PaperRow(label="SBERT-base", scores=(70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.86), printed={"Avg": 74.89}),
            SIMCSE_SUPERVISED,
            PaperRow(label="RSE", scores=(76.27, 84.43, 80.60, 86.03, 81.86, 84.34, 81.73, 82.18)),
            PaperRow(label="RSE-BERT-large", scores=(76.94, 86.63, 81.81, 87.02, 83.25, 85.63, 82.68, 83.42)),
            PaperRow(label="RSE-RoBERTa-base", scores=(76.71, 84.38, 80.87, 87.12, 83.33, 84.62, 81.97, 82.71)),
            PaperRow(label="RSE-RoBERTa-large", scores=(77.81, 87.04, 82.73, 87.92, 85.44, 86.79, 83.13, 84.41)),
        ),
        notes=("The RSE rows are single runs, not means.", _POOLED, "Rows named RSE and SimCSE, supervised: BERT-base."),
    ),
    "3": PaperTable(
        paper=_PAPER,
        number="3",
        base=SIMCSE_SUPERVISED.label,
        recipes={label: f"{_PAPERS}/rse_table3.yaml" for label in (SIMCSE_SUPERVISED.label, *_ENCODERS.values())},
        caption="Semantic textual relatedness",
        columns=("STR",),
        rows=(
            PaperRow(label="Unsup. SimCSE-BERT-base", scores=(73.98,)),
            PaperRow(label="SimCSE, supervised", scores=(80.72,)),
            PaperRow(label="RSE", scores=(81.23,)),
            PaperRow(label="RSE-BERT-large", scores=(81.98,)),
            PaperRow(label="RSE-RoBERTa-base", scores=(82.57,)),
            PaperRow(label="RSE-RoBERTa-large", scores=(84.10,)),
        ),
        notes=("The repository has 80.69, 81.98, 81.50 and 83.72 for the four RSE rows: another run, or another pooling.",),
    ),
    "4": PaperTable(
        paper=_PAPER,
        number="4",
        base="τ = 0.05",
        recipes={"": f"{_PAPERS}/rse_table4.yaml"},
        also=_POOLED_COLUMNS,
        caption="Temperature, BERT-base",
        columns=("Avg",),
        rows=tuple(
            PaperRow(label=f"τ = {temperature:g}", scores=(score,))
            for temperature, score in ((0.05, 82.18), (0.001, 80.74), (0.01, 81.73), (0.1, 77.00), (1.0, 54.88))
        ),
        notes=(_POOLED,),
    ),
    "5": PaperTable(
        paper=_PAPER,
        number="5",
        base=SIMCSE_SUPERVISED.label,
        ours=sweep_rows.TITLE,
        recipes={label: f"{_PAPERS}/rse_table5.yaml" for label in (SIMCSE_SUPERVISED.label, *_ENCODERS.values())},
        caption="Unsupervised sentence embedding benchmark",
        columns=("AskUbuntu", "CQADupStack", "TURL", "PIT", "TwitterPara Avg", "Cite", "CC", "CR", "CV", "SciDocs Avg", "Avg"),
        rows=(
            PaperRow(label="GloVe", scores=(51.00, 10.00, 70.10, 52.10, 61.10, 58.80, 60.60, 64.20, 65.40, 62.20, 46.10)),
            PaperRow(label="Sent2Vec", scores=(49.00, 3.20, 47.50, 39.90, 43.70, 61.60, 66.00, 66.10, 66.70, 65.10, 40.20)),
            PaperRow(label="BM25", scores=(53.40, 13.30, 71.90, 70.50, 71.20, 58.90, 61.30, 67.30, 66.90, 63.60, 50.40)),
            PaperRow(label="BERT-base", scores=(48.50, 6.50, 69.10, 61.70, 65.40, 59.40, 65.10, 65.40, 68.60, 64.60, 46.30)),
            PaperRow(label="*SimCSE-BERT-base (dropout)", scores=(55.90, 12.40, 74.50, 62.50, 68.50, 62.50, 65.10, 67.70, 67.60, 65.70, 50.60)),
            PaperRow(label="SBERT-base", scores=(53.40, 11.80, 75.40, 69.90, 72.70, 66.80, 70.00, 70.70, 72.80, 70.10, 52.00)),
            PaperRow(label="SimCSE, supervised", scores=(53.50, 12.20, 76.10, 69.70, 72.90, 66.80, 69.50, 72.10, 70.70, 69.80, 52.10)),
            PaperRow(label="RSE", scores=(54.80, 13.70, 77.40, 73.00, 75.20, 67.60, 71.00, 71.80, 73.60, 71.00, 53.70)),
            PaperRow(label="RSE-BERT-large", scores=(56.20, 13.90, 76.70, 76.80, 76.70, 68.60, 71.90, 72.50, 74.50, 71.90, 54.70)),
            PaperRow(label="RSE-RoBERTa-base", scores=(56.20, 13.30, 74.80, 74.80, 74.80, 66.90, 69.40, 70.20, 72.50, 69.70, 53.50)),
            PaperRow(label="RSE-RoBERTa-large", scores=(58.00, 15.20, 76.20, 78.80, 77.50, 69.30, 72.40, 72.90, 74.80, 72.40, 55.80)),
        ),
        notes=(
            "The best single relation of each task was chosen on its test set, here too; reports also have each relation alone (Figure 5).",
            "MAP; average precision for TwitterPara. CQADupStack: over the first 100, divided by the number of relevant ones among them, as in USEB's code.",
        ),
    ),
    "6": PaperTable(
        paper=_PAPER,
        number="6",
        base=SIMCSE_SUPERVISED.label,
        recipes={label: f"{_PAPERS}/rse_table6.yaml" for label in _ENCODERS.values()},
        caption="Transfer tasks",
        columns=TRANSFER_COLUMNS,
        rows=(
            PaperRow(label="GloVe (avg.)", scores=(77.25, 78.30, 91.17, 87.85, 80.18, 83.00, 72.87, 81.52), printed={"MR": 55.14, "CR": 70.66, "SUBJ": 59.73, "MPQA": 68.25, "SST2": 63.66, "TREC": 58.02, "MRPC": 53.76, "Avg": 61.32}),
            PaperRow(label="BERT-base (avg.)", scores=(78.66, 86.25, 94.37, 88.66, 84.40, 92.80, 69.54, 84.95), printed={"Avg": 84.94}),
            PaperRow(label="SimCSE-BERT-base, unsupervised", scores=(81.18, 86.46, 94.45, 88.88, 85.50, 89.80, 74.43, 85.81)),
            PaperRow(label="SimCSE-RoBERTa-base, unsupervised", scores=(81.04, 87.74, 93.28, 86.94, 86.60, 84.60, 73.68, 84.84)),
            PaperRow(label="InferSent-GloVe", scores=(81.57, 86.54, 92.50, 90.38, 84.18, 88.20, 75.77, 85.59)),
            PaperRow(label="USE", scores=(80.09, 85.19, 93.98, 86.70, 86.38, 93.20, 70.14, 85.10)),
            PaperRow(label="SBERT-base", scores=(83.64, 89.43, 94.39, 89.86, 88.96, 89.60, 76.00, 87.41), printed={"MR": 84.64}),
            PaperRow(label="SimCSE, supervised", scores=(82.69, 89.25, 94.81, 89.59, 87.31, 88.40, 73.51, 86.51)),
            PaperRow(label="SimCSE-BERT-base w/ MLM", scores=(82.68, 88.88, 94.52, 89.82, 88.41, 87.60, 76.12, 86.86)),
            PaperRow(label="RSE", scores=(82.35, 89.01, 95.33, 90.56, 88.36, 93.00, 77.39, 88.00)),
            PaperRow(label="RSE-BERT-large", scores=(84.53, 90.49, 95.70, 90.51, 90.17, 95.20, 76.70, 89.04), printed={"MR": 84.25}),
            PaperRow(label="RSE-RoBERTa-base", scores=(84.52, 91.21, 94.39, 90.21, 91.49, 91.40, 77.10, 88.62)),
            PaperRow(label="RSE-RoBERTa-large", scores=(86.29, 91.21, 95.17, 91.16, 91.38, 95.40, 78.20, 89.83)),
        ),
        notes=("The printed first row repeats that of Table 2; here it has the GloVe scores printed elsewhere.", "Features: the paper takes the mean of [CLS] over the last five layers, as here; its code also averages the head's output."),
    ),
    "7": PaperTable(
        paper=_PAPER,
        number="7",
        base=None,
        recipes={"": "rayjobs/recipes/rse_relations.yaml"},
        caption="Link prediction",
        columns=LINK_COLUMNS,
        rows=tuple(PaperRow(label=LINK_ROWS[relation], scores=scores) for relation, scores in PAPER_LINKS.items()),
        notes=("Printed as fractions with two decimals; here × 100.",),
    ),
}  # fmt: skip

_ALONE = {
    "duplicate-question": "Duplicate Question", "same-caption": "Same Caption", "paraphrase": "Paraphrase", "qa-entailment": "Question Answer",
    "same-sentence": "Dropout",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RelationalFacts:
    """How a cell learned from triples.

    Args:
        is_modelled: with a vector per relation (rse) or without (info_nce).
        is_scored: pairs are scored by relations, with the paper's weights.
        best_alone: scored by each relation alone, the best for each task.
    """

    relations: tuple[str, ...]
    is_modelled: bool
    is_scored: bool
    hard_negatives: bool
    temperature: float
    checkpoint: str = ""
    pooling: str = ""
    best_alone: bool = False


def rse_matches(facts: Mapping[str, RelationalFacts | None]) -> dict[str, dict[str, str]]:
    """Return table number -> our label -> printed row that it reproduces."""
    known = {label: found for label, found in facts.items() if found is not None}
    printed = {row.label for row in RSE_TABLES["4"].rows}
    main = {label: row for label, found in known.items() if (row := _main_row(found))}
    transfer = {
        label: _encoder_row(found)
        for label, found in known.items()
        if _learned(found, ("entailment", "paraphrase")) and found.pooling == "cls_last_five"
    }
    simcse = {label: row for label, row in main.items() if row == SIMCSE_SUPERVISED.label}
    useb_rows = {label: _encoder_row(found) for label, found in known.items() if found.best_alone and _learned(found, _SIX)}
    return {
        "1": {label: row for label, found in known.items() if (row := _source_row(found))},
        "2": main,
        "3": main,
        "4": {
            label: tau
            for label, found in known.items()
            if _is_rse(replace(found, temperature=PAPER_TEMPERATURE))
            and _is_bert_base(found)
            and (tau := f"τ = {found.temperature:g}") in printed
        },
        "5": simcse | useb_rows,
        "6": transfer,
    }


def rse_compared(table: ResultTable, facts: Mapping[str, RelationalFacts | None]) -> Iterator[SideBySide]:
    """Yield the tables as for other papers, using the first of several cells that reproduce one row."""
    return with_distinct_rows(table, RSE_TABLES, {number: _first_of_each(rows) for number, rows in rse_matches(facts).items()})


def _source_row(facts: RelationalFacts) -> str | None:
    """The row of Table 1, where only entailment was also trained with hard negatives, and all five relations were merged."""
    if not _is_bert_base(facts):
        return None
    if facts.is_modelled or facts.temperature != PAPER_TEMPERATURE:
        return "RSE, mixed" if _is_rse(facts) else None
    if facts.relations == ("entailment",):
        return "*Entailment" if facts.hard_negatives else "Entailment"
    if facts.hard_negatives:
        return None
    if set(facts.relations) == set(_FIVE):
        return "All 5 relations"
    return _ALONE.get(facts.relations[0]) if len(facts.relations) == 1 else None


def _main_row(facts: RelationalFacts) -> str | None:
    if _is_rse(facts):
        return _encoder_row(facts)
    is_simcse = not facts.is_modelled and facts.relations == ("entailment",) and facts.hard_negatives
    return SIMCSE_SUPERVISED.label if is_simcse and facts.temperature == PAPER_TEMPERATURE and _is_bert_base(facts) else None


def _is_rse(facts: RelationalFacts) -> bool:
    return facts.is_scored and not facts.best_alone and _learned(facts, _MIXED)


def _learned(facts: RelationalFacts, relations: tuple[str, ...]) -> bool:
    is_as_printed = facts.hard_negatives and facts.temperature == PAPER_TEMPERATURE
    return facts.is_modelled and set(facts.relations) == set(relations) and is_as_printed


def _is_bert_base(facts: RelationalFacts) -> bool:
    return _encoder_row(facts) == _ENCODERS["bert-base"]


def _encoder_row(facts: RelationalFacts) -> str:
    """The row of the encoder; encoders that the paper does not have count as BERT-base."""
    return next((row for name, row in _ENCODERS.items() if name in facts.checkpoint), "RSE")


def _first_of_each(rows: Mapping[str, str]) -> dict[str, str]:
    """Label -> row, without labels whose row an earlier label has."""
    first: dict[str, str] = {}
    for label, row in rows.items():
        if row not in first.values():
            first[label] = row
    return first


def relational_facts(cell: CellFacts) -> RelationalFacts | None:
    """Return how a cell learned from triples; None if it has no relations."""
    train, corpus, scoring = cell.train, cell.corpus, cell.view.relations
    if train is None or not isinstance(corpus, RelationalCorpus) or not isinstance(train.objective, RSE | InfoNCE):
        return None
    if isinstance(train.objective, RSE) and train.objective.phi:
        return None
    return RelationalFacts(
        relations=corpus.relation_names, is_modelled=isinstance(train.objective, RSE),
        is_scored=scoring is not None and {name: weight for name, weight in scoring.by_name.items() if weight} == _PAPER_WEIGHTS,
        best_alone=scoring is not None and scoring.combine == "best", pooling=train.encoder.pooling,
        hard_negatives=train.objective.hard_negatives, temperature=train.objective.temperature, checkpoint=train.encoder.checkpoint,
    )  # fmt: skip


def link_tables(sweep: SweepRecord, records: Mapping[str, Record], cells: Mapping[str, CellFacts]) -> Iterator[FurtherTable]:
    """Yield a table per relation of link prediction, of systems that model relations, with its printed row."""
    for relation, row in LINK_ROWS.items():
        rows = [
            ResultRow(method=trial.method, label=trial.cell, params={}, seed=trial.seed or 0, scores=scores)
            for trial in sweep.trials
            if trial.key in records
            and (facts := relational_facts(cells[trial.cell])) is not None
            and facts.is_modelled
            and (scores := _link_scores(records[trial.key], relation))
        ]
        if rows:
            measure = TASK_KINDS["links"].main
            table = build_table(
                TableRows(title=row, rows=rows, columns=LINK_COLUMNS, measure=measure, average=False, is_compared=False), baseline=None
            )
            yield FurtherTable(number="7", table=table, row_of={line.label: row for line in table.lines})


def _link_scores(record: Record, relation: str) -> dict[str, float | None]:
    values = {column: record.results.get(f"links.{relation}.{column.lower()}") for column in LINK_COLUMNS}
    return {column: number for column, value in values.items() if (number := as_number(value)) is not None}


TABLES = PaperTables(
    title="Relational Sentence Embedding for Flexible Semantic Matching (arXiv 2212.08802)", tables=RSE_TABLES, facts=relational_facts,
    matches=rse_matches, compared=rse_compared, further=link_tables, links=PAPER_LINKS,
)  # fmt: skip
