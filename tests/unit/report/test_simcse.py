"""SimCSE's table beside ours: which of our cells stands for which printed row."""

from __future__ import annotations

import pytest

from sentdist.plan.stage import Json
from sentdist.report.cell_facts import CellFacts, Trained
from sentdist.report.papers.simcse import TABLES
from sentdist.report.rows import ResultRow
from sentdist.report.tables import build_table

TRIPLETS, TWICE = ["sent0", "sent1", "hard_neg"], ["sentence", "sentence"]


def cell(columns: list[Json], *, name: str = "info_nce", temperature: float = 0.05, hard_negatives: bool = True) -> CellFacts:
    objective: dict[str, Json] = {"name": name, "temperature": temperature, "hard_negatives": hard_negatives}
    return CellFacts(trained=Trained(objective=objective, goes_on=False, corpus_kind="corpus", corpus={"columns": columns}, view={}))


@pytest.mark.parametrize(
    ("facts", "row"),
    [
        (CellFacts(), None),
        (cell([*TRIPLETS]), "SimCSE, supervised"),
        (cell([*TWICE], hard_negatives=False), "SimCSE, unsupervised"),
        (cell([*TRIPLETS], hard_negatives=False), None),  # multiple-negatives ranking
        (cell([*TRIPLETS], temperature=1.0), None),
        (cell([*TRIPLETS], name="rcl"), None),
    ],
)
def test_a_cell_finds_its_row(facts: CellFacts, row: str | None) -> None:
    assert TABLES.facts(facts) == row


def test_both_stand_beside_ours() -> None:
    cells = {"untouched": CellFacts(), "sup": cell([*TRIPLETS]), "unsup": cell([*TWICE], hard_negatives=False)}
    rows = [ResultRow(method=label, label=label, params={}, seed=0, scores={"STS12": 70.0, "STS-B": 80.0}) for label in cells]
    (found,) = TABLES.beside(build_table(rows, title="t", tasks=("STS12", "STS-B"), baseline="sup", average=True), cells)
    assert {row.label: row.paper[:2] for row in found.rows} == {"sup": (75.30, 84.25), "unsup": (68.40, 76.85)}
