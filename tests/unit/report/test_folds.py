"""Reports of sweeps over folds: a seed counts once all of its folds are scored."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

from sentdist.plan.unroll import Trial
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store

TASK = "retrieval=faqs/mine"


def _report(folder: Path, *, skip: Callable[[Trial], bool] = lambda trial: False) -> Report:
    """Of three methods with two seeds and three folds."""
    recipe = small_recipe(
        corpus={"source": "faqs/mine", "split": None}, folds={"num": 3}, selection={"task": TASK}, evaluation={"tasks": [TASK]},
        seeds=[0, 1], baseline="fine_tuned",
    )  # fmt: skip
    store = ArtifactStore(str(folder / "store"))
    fill_store(store, plan_of(recipe), noise=lambda trial: 3.0, num_items={"retrieval-faqs-mine": 20}, skip=skip)
    return report_sweep(store, "small")


def _table(report: Report) -> dict[str, dict[str, str]]:
    return {row["label"]: row for row in csv.DictReader(io.StringIO(str(report.files["table1.csv"])))}


def test_a_seed_that_lacks_a_fold_is_left_out_and_told(tmp_path: Path) -> None:
    report = _report(tmp_path, skip=lambda trial: (trial.method, trial.seed, trial.fold) == ("rcl", 1, 2))
    assert {label: row["num_seeds"] for label, row in _table(report).items()} == {"base": "1", "fine_tuned": "2", "rcl": "1"}
    assert "rcl has scores of 5 of its 6 trials" in report.markdown and "- rcl · seed 1 · fold 2" in report.markdown
