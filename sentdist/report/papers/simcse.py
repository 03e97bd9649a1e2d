"""Printed results of SimCSE with BERT-base (arXiv 2104.08821, Table 5), and which of our cells reproduce which row."""

from __future__ import annotations

from collections.abc import Mapping

from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.report.printed import SIMCSE_SUPERVISED, STS_COLUMNS, PaperRow, PaperTable, PaperTables
from sentdist.report.score_rows import CellFacts

_SUPERVISED, _UNSUPERVISED = SIMCSE_SUPERVISED.label, "SimCSE, unsupervised"
_RECIPE = "rayjobs/recipes/simcse.yaml"
TEMPERATURE = 0.05

SIMCSE_TABLES: dict[str, PaperTable] = {
    "5": PaperTable(
        paper="SimCSE paper",
        number="5",
        base=None,
        recipes={_SUPERVISED: _RECIPE, _UNSUPERVISED: _RECIPE},
        caption="Semantic textual similarity, BERT-base",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="First-last average", scores=(39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70)),
            PaperRow(label="Whitening", scores=(57.83, 66.90, 60.90, 75.08, 71.31, 68.24, 63.73, 66.28)),
            PaperRow(label=_UNSUPERVISED, scores=(68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25)),
            PaperRow(label="SBERT", scores=(70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.86), printed={"Avg": 74.89}),
            SIMCSE_SUPERVISED,
        ),
        notes=("A part of the table: BERT-base, without the rows of other methods.",),
    ),
}  # fmt: skip


def simcse_row(cell: CellFacts) -> str | None:
    """Return the printed row of a cell trained on triplets, or on each sentence with itself, at the paper's temperature."""
    train, corpus = cell.train, cell.corpus
    if train is None or not isinstance(corpus, RowsCorpus) or not isinstance(train.objective, InfoNCE):
        return None
    columns = corpus.columns
    if train.start is not None or train.objective.temperature != TEMPERATURE or len(columns) < 2:
        return None
    if columns[0] == columns[1]:
        return _UNSUPERVISED
    return _SUPERVISED if len(columns) == 3 and train.objective.hard_negatives else None


def simcse_matches(rows: Mapping[str, str | None]) -> dict[str, dict[str, str]]:
    """Return table number -> our label -> printed row that it reproduces."""
    return {"5": {label: row for label, row in rows.items() if row is not None}}


TABLES = PaperTables(
    title="SimCSE: Simple Contrastive Learning of Sentence Embeddings (arXiv 2104.08821)", tables=SIMCSE_TABLES, facts=simcse_row,
    matches=simcse_matches,
)  # fmt: skip
