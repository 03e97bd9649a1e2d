"""SimCSE's table beside ours: which of our cells stands for which printed row."""

from __future__ import annotations

import pytest

from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.objectives.rcl import RCL
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.papers.simcse import TABLES
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import build_table
from tests.support.planning import RECIPES, shipped_plan

TRIPLETS, TWICE = ("sent0", "sent1", "hard_neg"), ("sentence", "sentence")
TRAIN = next(stage for stage in shipped_plan(RECIPES / "simcse.yaml").stages if isinstance(stage, Train) and not stage.banks)


def cell(columns: tuple[str, ...], *, objective: ObjectiveSpec | None = None, start: Train | None = None) -> CellFacts:
    corpus = RowsCorpus(source="nli/triplets", source_revision="1", columns=columns)
    changed = {"objective": objective or InfoNCE(temperature=0.05), "corpus": corpus, "start": start}
    return CellFacts(train=TRAIN.model_copy(update=changed))


@pytest.mark.parametrize(
    ("facts", "row"),
    [
        (CellFacts(), None),
        (cell(TRIPLETS), "SimCSE, supervised"),
        (cell(TWICE, objective=InfoNCE(temperature=0.05, hard_negatives=False)), "SimCSE, unsupervised"),
        (cell(TRIPLETS, objective=InfoNCE(temperature=0.05, hard_negatives=False)), None),  # multiple-negatives ranking
        (cell(TRIPLETS, objective=InfoNCE(temperature=1.0)), None),
        (cell(TRIPLETS, objective=RCL(temperature=0.05)), None),
        (cell(TRIPLETS, start=TRAIN), None),  # goes on from another training
    ],
)
def test_a_cell_finds_its_row(facts: CellFacts, row: str | None) -> None:
    assert TABLES.facts(facts) == row


def test_both_stand_beside_ours() -> None:
    cells = {
        "untouched": CellFacts(),
        "sup": cell(TRIPLETS),
        "unsup": cell(TWICE, objective=InfoNCE(temperature=0.05, hard_negatives=False)),
    }
    rows = [ResultRow(method=label, label=label, params={}, seed=0, scores={"STS12": 70.0, "STS-B": 80.0}) for label in cells]
    (found,) = TABLES.beside(
        build_table(
            TableRows(title="t", rows=rows, columns=("STS12", "STS-B"), average=True, measure=TASK_KINDS["sts"].main), baseline="sup"
        ),
        cells,
    )
    assert {row.label: row.paper[:2] for row in found.rows} == {"sup": (75.30, 84.25), "unsup": (68.40, 76.85)}
