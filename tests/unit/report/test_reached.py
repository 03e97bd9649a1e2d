"""Every printed row that a recipe is named for is reached by that very recipe, with a number in each column."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from sentdist.plan.shipped import PAPERS
from sentdist.report.paper_page import shown_tables
from sentdist.report.printed import tables_of
from sentdist.store.store import ArtifactStore
from tests.support.paper_size import paper_plan
from tests.support.planning import RECIPES
from tests.support.synthetic_sweeps import fill_store

FOLDER = "rayjobs/recipes/papers/"


def named() -> list[tuple[str, str]]:
    """(paper, recipe) of the recipes at the papers' size that its tables name."""
    recipes = {(paper, recipe) for paper in PAPERS for table in tables_of(paper).tables.values() for recipe in table.recipes.values()}
    return sorted((paper, recipe.removeprefix(FOLDER)) for paper, recipe in recipes if recipe.startswith(FOLDER))


def test_each_recipe_of_a_paper_is_named_by_a_table() -> None:
    assert {recipe for _, recipe in named()} == {path.name for path in (RECIPES / "papers").glob("*.yaml")}


@pytest.mark.parametrize(("paper", "recipe"), named())
def test_a_recipe_fills_the_rows_that_name_it(paper: str, recipe: str, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    fill_store(store, paper_plan(recipe, "seeds=[0]"), noise=lambda trial: 1.0, num_items=defaultdict(lambda: 12), num_steps=2)
    tables = shown_tables(store, paper)
    for table in tables:
        assert not [rows for name, rows in table.not_run.items() if name == FOLDER + recipe], table.printed.number
        expected = {row.label for row in table.printed.rows if table.printed.recipe(row.label) == FOLDER + recipe}
        ours, printed = [], ""
        for row in table.rows:
            printed = row.label if row.kind == "paper" else printed
            if row.kind == "ours" and printed in expected:
                ours.append(row)
                assert all(cell[0] != "–" for cell in row.cells[:-1]), (table.printed.number, row)
        if expected and table.printed.base in expected:
            assert any(row.cells[-1] != ("",) for row in ours), (table.printed.number, "no gain")
