"""What figures of a sweep are labelled with."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.sweep_drawings import dev_unit, score_unit
from sentdist.report.sweep_report import report_sweep
from sentdist.report.tables import build_table
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, with_method
from tests.support.synthetic_sweeps import fill_store


def test_a_dev_score_and_a_score_have_the_unit_of_their_measure() -> None:
    titles = {"stsb-dev": "Spearman", "sts=my/file@dev": "Spearman", "transfer-dev": "accuracy", "stsb-dev+sickr-dev": "Spearman", "scidocs-dev": "MAP",
              "askubuntu-dev+cqadupstack-dev+twitter": "mean of MAP, MAP@100 and average precision"}  # fmt: skip
    assert {task: dev_unit({"selection": {"task": task}}) for task in titles} == {
        task: f"{task} ({title} × 100)" for task, title in titles.items()
    }
    for shape, words in (("graded", "Spearman"), ("pairs", "MAP"), ("triplets", "MAP"), ("faq", "MAP")):
        corpus: Json = {"kind": "own", "file": "rows.csv", "shape": shape}
        assert dev_unit({"corpus": corpus, "selection": {"task": "own"}}) == f"own ({words} × 100)"
    assert dev_unit({}) == "dev score"
    rows = [ResultRow(method="m", label="m", params={}, seed=0, scores={"a": 0.5, "b": 0.7}, is_fixed=True)]
    for measure in (TASK_KINDS["sts"].main, TASK_KINDS["pairs"].main):
        tables = [
            build_table(TableRows(title="t", rows=rows, columns=["a", "b"], measure=measure, average=one), baseline=None)
            for one in (True, False)
        ]
        assert [score_unit(table) for table in tables] == [f"average of 2 tasks ({measure.unit})", f"b ({measure.unit})"]


SETS: Json = [[0.01], [0.01, 0.02], [0.01, 0.02, 0.05], [0.01, 0.02, 0.05, 0.1]]
EQ_1: Json = {"objective": {"name": "info_nce"}}


def _files(folder: Path, *, task: str = "stsb", sweep: Json = None, paper: str | None = None, **methods: Json) -> dict[str, str | bytes]:
    """Of the report of φ sets beside Eq. 1, with two seeds, and of what is given besides."""
    recipe = recipe_from_values(
        with_method(**methods)
        | {"seeds": [0, 1], "baseline": "fine_tuned", "paper": paper, "evaluation": {"tasks": [task]}}
        | {"sweep": {"methods.rcl.phis": SETS, **(sweep if isinstance(sweep, dict) else {})}},
        where="small.yaml",
    )
    store = ArtifactStore(folder / "store")
    fill_store(store, plan_of(recipe), noise=lambda trial: 1.0 + 0.01 * len(trial.cell), num_items={task: 30})
    return report_sweep(store, "small").files


def test_places_of_a_grid_are_means_over_seeds_of_one_cell(tmp_path: Path) -> None:
    """What leaves another attention dropout is not the point of Eq. 1."""
    files = _files(tmp_path, paper="rcl", dropped=EQ_1 | {"regularizers": {"attention_dropout": 0.1}})  # type: ignore[operator]
    grid, regulators = (list(csv.DictReader(io.StringIO(str(files[name])))) for name in ("grid.csv", "regulators.csv"))
    sets = ("{0.01}", "{0.01, 0.02}", "{0.01, 0.02, 0.05}", "{0.01, 0.02, 0.05, 0.1}")
    assert [(row["φ set"], row["seeds"]) for row in grid] == [(one, "2") for one in sets]
    ours = [(row["regulators"], row["seeds"]) for row in regulators if row["source"] == "ours"]
    assert ours == [(str(number), "2") for number in (0, 2, 4, 6, 8)] and len(ours) < len(regulators), "the paper's curve stands beside"


def test_figures_show_the_measure_that_the_sentences_speak_of(tmp_path: Path) -> None:
    """Of retrieval that is MAP, and not the last of its columns."""
    files = _files(tmp_path, task="stackfaq")
    tables = {name: list(csv.DictReader(io.StringIO(str(text)))) for name, text in files.items() if name.endswith(".csv")}
    means = {row["label"]: float(row["stackfaq:map mean"]) for row in tables["table1.csv"]}
    assert {row["system"]: float(row["mean"]) for row in tables["cost.csv"]} == pytest.approx(means, abs=1e-3)
    assert [float(row["mean"]) for row in tables["grid.csv"]] == pytest.approx(
        [means[f"rcl (phis={row['φ set']})"] for row in tables["grid.csv"]], abs=1e-3
    )
    drawn = {row["system"]: row["difference"] for row in tables["differences.csv"]}
    tested = {row["system"]: row["difference"] for row in tables["table1-comparisons.csv"]
              if (row["relation"], row["task"]) == ("baseline", "stackfaq:map")}  # fmt: skip
    assert drawn == tested
