"""Reports of sweeps over folds: a seed counts once all of its folds are scored."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sentdist.plan.stage import as_number
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.plan.unroll import Trial
from sentdist.report import tables as brief_table_module
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import brief_table
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store

TASK, NAME = "retrieval=faqs/mine", "retrieval-faqs-mine"


def _store(folder: Path, *, skip: Callable[[Trial], bool] = lambda trial: False, tasks: Sequence[str] = (TASK,)) -> ArtifactStore:
    """Filled with the scores of three methods with two seeds and three folds."""
    recipe = small_recipe(
        corpus={"source": "faqs/mine", "split": None}, folds={"num": 3}, selection={"task": TASK}, evaluation={"tasks": list(tasks)},
        seeds=[0, 1], baseline="fine_tuned",
    )  # fmt: skip
    store = ArtifactStore(str(folder / "store"))
    fill_store(store, plan_of(recipe), noise=lambda trial: 3.0, num_items={NAME: 20}, skip=skip)
    return store


def _table(report: Report) -> dict[str, dict[str, str]]:
    return {row["label"]: row for row in csv.DictReader(io.StringIO(str(report.files["table1.csv"])))}


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, Report]:
    """A store that lacks a fold of a seed of `rcl`, and its report."""
    store = _store(tmp_path_factory.mktemp("lacking"), skip=lambda trial: (trial.method, trial.seed, trial.fold) == ("rcl", 1, 2))
    return store, report_sweep(store, "small")


def test_a_seed_that_lacks_a_fold_is_left_out_and_reported(lacking: tuple[ArtifactStore, Report]) -> None:
    _, report = lacking
    assert {label: row["num_seeds"] for label, row in _table(report).items()} == {"base": "1", "fine_tuned": "2", "rcl": "1"}
    assert "rcl has scores of 5 of its 6 trials" in report.markdown and "rcl · seed 1 · fold 2" in report.markdown


def test_a_score_that_one_fold_lacks_is_no_mean_of_the_others(tmp_path: Path) -> None:
    store = _store(tmp_path)
    sweep = load_sweep(store, "small")
    records = sweep.records(store)
    key, *others = (trial.key for trial in sweep.trials if (trial.method, trial.seed) == ("rcl", 0))
    records[key] = records[key].model_copy(update={"results": records[key].results | {f"{NAME}.map": None}})
    found = sweep_rows(sweep, store, records)
    assert {(curve.label, curve.seed) for curve in found.curves} >= {("fine_tuned", 0), ("fine_tuned", 1)}, "each seed has its curve"
    (row,) = (row for row in found.of_kind("retrieval", NAME) if (row.method, row.seed) == ("rcl", 0))
    of_mrr = [float(str(records[one].results[f"{NAME}.mrr"])) for one in (key, *others)]
    assert row.scores[f"{NAME}:map"] is None and row.scores[f"{NAME}:mrr"] == pytest.approx(sum(of_mrr) / 3)
    assert {
        len(set(cell)) for one in found.of_kind("retrieval", NAME) for cell in (one.items or {}).values() if isinstance(cell, tuple)
    } == {3}, "its items too"


def test_a_curve_is_that_of_the_first_fold_in_the_order_of_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = _store(tmp_path), []

    def points(path: Path, **_: object) -> list[dict[str, float]]:
        read.append(path.read_bytes() and str(path))
        return [{"step": 1, "loss": 2.0}, {"step": 2, "dev_score": 60.0}, {"step": 3, "loss": 1.0}, {"step": 4, "dev_score": 70.0}]

    monkeypatch.setattr("sentdist.report.sweep_rows.read_json_lines", points)
    sweep = load_sweep(store, "small")
    curves = sweep_rows(sweep, store, sweep.records(store)).curves
    first = {trial.train for trial in sweep.trials if trial.fold == 0 and trial.train is not None}
    assert len(read) == len(first) == len(curves) and all(any(key in path for path in read) for key in first)
    assert {(*one.steps, *one.losses, *one.dev_steps, *one.dev_scores) for one in curves} == {(1, 3, 2.0, 1.0, 2, 4, 60.0, 70.0)}


def test_useb_over_folds_is_the_mean_of_all_folds(tmp_path: Path) -> None:
    """Of trials whose every score is one above the fold before."""
    store = _store(tmp_path, tasks=[TASK, "useb"])
    sweep = load_sweep(store, "small")
    records = sweep.records(store)
    found = sweep_rows(sweep, store, records)
    for row in found.useb:
        trials = [trial for trial in sweep.trials if (trial.cell, trial.seed or 0) == (row.label, row.seed)]
        folds = {as_number(records[trial.key].results["askubuntu"]) or 0.0 for trial in trials}
        assert len(folds) == 3 and row.scores["Avg"] == pytest.approx(sum(folds) / 3)
    assert len(found.useb) == 5
    for key, record in records.items():
        more = {
            f"{task}.by.{one}": value + 10 * (one == "y")
            for task in TASK_GROUPS["useb"]
            for one in "xy"
            if (value := as_number(record.results.get(task)))
        }
        records[key] = record.model_copy(update={"results": {**record.results, **more}})
    alone = {(row.label, row.seed): row.scores for row in sweep_rows(sweep, store, records).useb_by_relation}
    assert len(alone) == 10
    for (label, seed), scores in alone.items():
        if label.endswith(", x"):
            other = alone[f"{label.removesuffix(', x')}, y", seed]
            assert {task: (score or 0) + 10 for task, score in scores.items()} == pytest.approx(other)


def test_the_terminal_counts_seeds_and_spreads_over_them_as_the_report_does(lacking: tuple[ArtifactStore, Report]) -> None:
    store, report = lacking
    sweep = load_sweep(store, "small")
    brief = {row[0]: row[1:] for row in brief_table(sweep, sweep.records(store)).rows}
    column = f"{NAME}:map"
    for label, row in _table(report).items():
        mean, sd = row[f"{column} mean"], row[f"{column} sd"]
        assert brief[label] == (row["num_seeds"], f"{float(mean):.2f}" + (f" ± {float(sd):.2f}" if sd else ""))


def test_the_cost_of_all_trials_is_that_of_all_folds(tmp_path: Path) -> None:
    """Every stage that was made took a second."""
    store = _store(tmp_path)
    made = [record for record in load_sweep(store, "small").records(store).values() if record.kind != "scores"]
    assert f"All trials: {len(made)} worker-seconds instead of" in report_sweep(store, "small").markdown


@pytest.mark.parametrize(
    ("scores", "shown"), [([1.0, 1.0, 1.001], "1.00"), ([1.0, 2.0], "1.50 ± 0.71"), ([1.0, None], "1.00"), ([None], "–")]
)
def test_the_terminal_tells_no_deviation_of_equal_scores(scores: list[float | None], shown: str) -> None:
    assert brief_table_module._spread(scores) == shown
