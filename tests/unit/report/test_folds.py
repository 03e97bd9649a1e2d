"""Reports of sweeps over folds: a seed counts once all of its folds are scored."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.recipe.unroll import Trial
from sentdist.report.printed import fold_means
from sentdist.report.score_rows import means_over_folds
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.store.store import ArtifactStore
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


def test_a_row_waits_for_all_of_its_folds() -> None:
    trials = [SimpleNamespace(cell="RCL", method="rcl", seed=0, key=f"fold-{number}") for number in range(3)]
    sweep: Any = SimpleNamespace(trials=trials)
    records: dict[str, Any] = {
        trial.key: SimpleNamespace(results={"faqir": score}) for trial, score in zip(trials, (50.0, 60.0, 70.0), strict=True)
    }
    (row,) = fold_means(sweep, records, {"MAP": "faqir"})
    assert fold_means(sweep, records, {"MAP": "faqir", "Acc@1": "of another version"}) == [], "a row has all columns"
    assert row.label == "RCL" and row.scores == {"MAP": pytest.approx(60.0)}
    named = {"a": None, "b": 1.0, "name": "x"}, {"a": 2.0, "b": 3.0, "name": "x"}
    assert means_over_folds(named) == means_over_folds(named[::-1]) == {"a": None, "b": 2.0}
    del records["fold-1"]
    assert fold_means(sweep, records, {"MAP": "faqir"}) == []
