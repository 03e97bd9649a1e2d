"""What figures of a sweep are labelled with."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS, Measure, TaskKind
from sentdist.plan.task_names import can_choose
from sentdist.plan.tasks import TASKS
from sentdist.report.comparisons import AVERAGE
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.sweep_drawings import _styles, dev_unit, score_unit
from sentdist.report.sweep_report import report_sweep
from sentdist.report.tables import build_table
from sentdist.store.store import ArtifactStore
from sentdist.text import PALETTE
from tests.support.planning import plan_of, with_method
from tests.support.synthetic_sweeps import fill_store

OF_THE_TABLE = {name: TASK_KINDS[card.kind].main for name, card in TASKS.items() if can_choose(card)}
OF_ONES_OWN = {f"{kind.name}=my/file@dev": kind.main for kind in TASK_KINDS.values() if kind.chooses and kind.is_own}


@pytest.mark.parametrize(("task", "measure"), [*OF_THE_TABLE.items(), *OF_ONES_OWN.items()])
def test_a_dev_score_is_reported_in_the_measure_of_its_kind(task: str, measure: Measure) -> None:
    assert dev_unit({"selection": {"task": task}}) == f"{task} ({measure.title} × 100)"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("transfer-dev", "accuracy"),
        ("stsb-dev+sickr-dev", "Spearman"),
        ("scidocs-dev", "MAP"),
        ("askubuntu-dev+cqadupstack-dev+twitter", "mean of MAP, MAP@100 and average precision"),
    ],
)
def test_several_dev_tasks_are_reported_in_all_their_measures(task: str, words: str) -> None:
    assert dev_unit({"selection": {"task": task}}) == f"{task} ({words} × 100)"


@pytest.mark.parametrize(("shape", "words"), [("graded", "Spearman"), ("pairs", "MAP"), ("triplets", "MAP"), ("faq", "MAP")])
def test_a_dev_score_of_ones_own_rows_is_reported_by_their_shape(shape: str, words: str) -> None:
    corpus: Json = {"kind": "own", "file": "rows.csv", "shape": shape}
    assert dev_unit({"corpus": corpus, "selection": {"task": "own"}}) == f"own ({words} × 100)"


def test_without_a_selection_a_dev_score_has_no_unit() -> None:
    assert dev_unit({}) == "dev score"


@pytest.mark.parametrize("kind", [kind for kind in TASK_KINDS.values() if kind.make is not None], ids=lambda kind: kind.name)
def test_figures_of_scores_carry_the_unit_of_their_table(kind: TaskKind) -> None:
    measure = kind.main
    rows = [ResultRow(method="m", label="m", params={}, seed=0, scores={"a": 0.5, "b": 0.7}, is_fixed=True)]
    tables = [
        build_table(TableRows(title="t", rows=rows, columns=["a", "b"], measure=measure, average=average), baseline=None)
        for average in (True, False)
    ]
    assert tables[0].columns[-1] == AVERAGE
    assert [score_unit(table) for table in tables] == [f"average of 2 tasks ({measure.unit})", f"b ({measure.unit})"]


SETS: Json = [[0.01], [0.01, 0.02], [0.01, 0.02, 0.05], [0.01, 0.02, 0.05, 0.1]]
EQ_1: Json = {"objective": {"name": "info_nce"}}
RCL: Json = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]}


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


@pytest.mark.parametrize(
    "changes",
    [
        {"sweep": {"methods.rcl.objective.temperature": [0.05, 0.1]}},
        {"again": RCL | {"training": {"learning_rate": 1e-4}}},  # type: ignore[operator]
    ],
    ids=["temperature", "two methods"],
)
def test_a_place_that_would_stand_for_several_cells_is_not_drawn(changes: dict[str, Json], tmp_path: Path) -> None:
    assert not {"grid.svg", "regulators.svg"} & set(_files(tmp_path, **changes))  # type: ignore[arg-type]


def test_the_papers_curve_stands_beside_scores_of_pairs_alone(tmp_path: Path) -> None:
    files = _files(tmp_path, task="stackfaq", paper="rcl")
    assert {row["source"] for row in csv.DictReader(io.StringIO(str(files["regulators.csv"])))} == {"ours"}


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


@pytest.mark.parametrize("spare", [0, 3])
def test_of_more_cells_than_colours_those_that_are_shown_first_have_each_their_own(spare: int) -> None:
    cells = [f"cell {place}" for place in range(len(PALETTE) + spare)]
    sweep: Any = SimpleNamespace(trials=[SimpleNamespace(cell=cell) for cell in cells for _ in "01"])
    styles = _styles(sweep, cells[::-1])
    shown = cells if not spare else cells[::-1][: len(PALETTE)]
    assert [styles[cell].color for cell in shown] == list(PALETTE) and styles.keys() == {*cells}
