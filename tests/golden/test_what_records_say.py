"""What trackers and reports read out of the records of shipped recipes; an intended change edits records.json in the same commit.

python -m tests.golden.test_what_records_say     writes the file anew
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sentdist.recipe.shipped import PAPERS
from sentdist.recipe.stage import Json
from sentdist.report.citations import works_of_stages
from sentdist.report.printed import tables_of
from sentdist.report.score_rows import cell_facts
from sentdist.store.sweep import sweep_record
from tests.support.every_stage import records_of
from tests.support.mlflow_fixtures import runs_of
from tests.support.planning import RECIPES, shipped_plan

GOLDEN = Path(__file__).parent / "records.json"
TRACKED = ("combinations.yaml", "demo.yaml", "options/stopping.yaml", "rcl_faq.yaml", "auxiliary.yaml", "supmpn_augmentation.yaml")
COMPARED = sorted(path.relative_to(RECIPES).as_posix() for path in (RECIPES / "papers").glob("*.yaml"))


def tracked(name: str) -> Json:
    """Parameters of the first run of each method of a recipe."""
    runs = runs_of(shipped_plan(RECIPES / name))
    return {trial.method: dict(runs.parameters[trial.key]) for trial in reversed(runs.trials.values())}


def compared(name: str) -> Json:
    """Of the cells of a recipe what reports call them, and the printed rows that they stand for."""
    plan = shipped_plan(RECIPES / name)
    sweep, records = sweep_record(plan), records_of(plan)
    cells = {trial.cell: cell_facts(trial, records) for trial in reversed(sweep.trials)}
    rows = {paper: {number: dict(found) for number, found in tables_of(paper).our_rows(cells).items() if found} for paper in PAPERS}
    said: Json = {
        label: {
            "objective": one.objective, "phis": list(one.phis), "batch": one.batch_size, "dropouts": [one.attention_dropout, one.drophead],
            "corpus": one.source, "works": sorted(works_of_stages(stage for stage in (one.train, one.scores) if stage is not None)), "trained": one.line or None,
        }
        for label, one in cells.items()
    }  # fmt: skip
    return {"cells": said, "rows": {paper: found for paper, found in rows.items() if found}}  # type: ignore[dict-item]


@pytest.mark.parametrize("name", TRACKED)
def test_runs_show_the_golden_parameters(name: str) -> None:
    assert json.loads(json.dumps(tracked(name))) == json.loads(GOLDEN.read_text())["tracked"][name]


@pytest.mark.parametrize("name", COMPARED)
def test_cells_are_reported_and_set_beside_papers_as_in_the_golden_file(name: str) -> None:
    assert json.loads(json.dumps(compared(name))) == json.loads(GOLDEN.read_text())["compared"][name]


if __name__ == "__main__":
    values = {"tracked": {name: tracked(name) for name in TRACKED}, "compared": {name: compared(name) for name in COMPARED}}
    GOLDEN.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
