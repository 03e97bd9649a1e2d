"""A paper's page: every printed row in its order, ours below, misprints marked, what was not run with its recipe."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import DataError
from sentdist.plan.shipped import PAPERS
from sentdist.plan.stage import Json
from sentdist.report.paper_page import report_paper
from sentdist.report.papers.sts_regression import REGRESSION_TABLES
from sentdist.report.printed import tables_of
from sentdist.store.store import ArtifactStore
from sentdist.text import markdown_text
from tests.support.relations_data import relations_values, write_relations_data
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

RECIPES = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PAPERS)
def test_an_empty_store_gives_every_printed_row_and_the_recipes(name: str, tmp_path: Path) -> None:
    report = report_paper(ArtifactStore(tmp_path), name)
    for table in tables_of(name).tables.values():
        assert f"## Table {table.number}: {table.caption}" in report.markdown
        for row in table.rows:
            assert f"| {markdown_text(row.label)} | " in report.markdown
    assert "not run: rayjobs/recipes/" in report.markdown and "<br>" not in report.markdown
    assert report.html.startswith("<!doctype html>") and 'class="missing"' in report.html


@pytest.mark.parametrize("name", PAPERS)
def test_tables_hold_together(name: str) -> None:
    for table in tables_of(name).tables.values():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels), table.number
        assert table.base is None or table.base in labels
        assert set(table.recipes) <= {*labels, ""}
        for recipe in table.recipes.values():
            assert (RECIPES / recipe.partition(" ")[0].rstrip(",")).exists(), recipe
        for row in table.rows:
            assert len(row.scores) == len(table.columns) and set(row.printed) <= set(table.columns)
            if len(row.scores) == 8:  # seven tasks and their mean, rounded, once truncated
                assert np.mean(row.scores[:7]) == pytest.approx(row.scores[7], abs=0.008), (table.number, row.label)
            for column, printed in row.printed.items():
                assert printed != row.scores[table.columns.index(column)], "a misprint differs from what was meant"


def test_known_misprints_are_marked(tmp_path: Path) -> None:
    transfer = next(
        line
        for line in report_paper(ArtifactStore(tmp_path), "supmpn").markdown.splitlines()
        if line.startswith("| SimCSE, supervised | 82.69")
    )
    assert "| 94.81 (misprinted 84.81) |" in transfer
    assert "74.86 (misprinted 74.89)" in report_paper(ArtifactStore(tmp_path), "rse").markdown
    assert REGRESSION_TABLES["2"].row("Sentence-BERT").printed == {"Avg": 74.89}


def test_ours_stand_beneath_theirs_with_difference_interval_and_gain(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    methods = tiny_values(tiny_encoder_dir)["methods"]
    assert isinstance(methods, dict)
    methods["rcl"]["phis"] = [0.01, 0.02, 0.03, 0.04]  # type: ignore[call-overload, index]
    seeds: Json = [0, 1, 2]
    values = tiny_values(tiny_encoder_dir, seeds=seeds, paper="rcl", methods=methods)
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.0 if trial.method == "rcl" else 1.5, num_items={"stsb": 60})
    markdown = report_paper(context.store, "rcl").markdown
    table = markdown.split("## Table 3")[1].split("## Table 4")[0]
    printed, ours = next(
        (line, below) for line, below in zip(table.splitlines(), table.splitlines()[1:], strict=False) if line.startswith("| RCL |")
    )
    assert (
        printed.split("|")[7].strip() == "84.85"
        and ours.startswith("| ↳ rcl (tiny, 3 seeds; ")
        and "mean, batch 8, epochs 1" in ours
        and "selected on stsb-dev) |" in ours
    )
    cell = ours.split("|")[7].strip()  # STS-B is the one task that was scored
    mean, low, high = float(cell.split()[0]), *map(float, cell.split("[")[1].split("]")[0].split(","))
    assert low < mean < high and f"{mean - 84.85:+.2f} [{low - 84.85:+.2f}" in cell
    assert ours.split("|")[8].strip() == "–", "an average over fewer tasks is another number"
    assert "not run: rayjobs/recipes/papers/rcl_table1.yaml" in table


def test_link_prediction_stands_under_its_relations(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = relations_values(tiny_encoder_dir, paper="rse", seeds=[0, 1])
    plan, context = tiny_plan(values, data=write_relations_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    table = report_paper(context.store, "rse").markdown.split("## Table 7")[1].splitlines()
    under = [below for line, below in itertools.pairwise(table) if line.startswith("| All |")]
    assert len(under) == 1 and under[0].startswith("| ↳ rse (") and under[0].count("[") >= 4
    assert any("not run: rayjobs/recipes/rse_relations.yaml" in line for line in table), "relations that the tiny data lacks"


def test_an_unknown_paper_and_a_report_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rcl, sts_regression, rse, supmpn, "):
        report_paper(ArtifactStore(tmp_path), "unheard of")
    with pytest.raises(DataError, match=r"Did you mean \"sts_regression\"\?"):
        report_paper(ArtifactStore(tmp_path), "regression")
    assert CliRunner().invoke(app, ["report", "--store", str(tmp_path)]).exit_code == 2
    done = CliRunner().invoke(app, ["report", "--paper", "supmpn", "--store", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0 and (tmp_path / "out" / "report.html").exists()
