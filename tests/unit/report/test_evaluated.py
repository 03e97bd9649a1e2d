"""What is reported of an evaluation whose task has no score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.errors import DataError
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.comparisons import AVERAGE
from sentdist.report.evaluated import Compared, compare_evaluated, score_lines, scored


def _of_one_pair(folder: Path) -> Path:
    (folder / "items").mkdir(parents=True)
    pq.write_table(pa.table({"subset": ["a"], "score": [1.0], "similarity": [0.5]}), folder / "items" / "sts-one.parquet")
    return folder


def test_a_task_without_a_score_says_why(tmp_path: Path) -> None:
    (line,) = score_lines(["sts=one"], {"sts-one": None}, _of_one_pair(tmp_path))
    assert (line.score, line.why) == (None, "no two different gold scores among its 1 pair")


def test_encoders_that_cannot_be_compared_are_shown_why(tmp_path: Path) -> None:
    folders = [_of_one_pair(tmp_path / name) for name in "ab"]
    with pytest.raises(DataError, match=r"no score of both: sts-one \(no two different gold scores among its 1 pair\); expected"):
        measures = {"sts-one": TASK_KINDS["sts"].main}
        first, second = (scored({"sts-one": None}, folder, measures) for folder in folders)
        compare_evaluated(("a", "b"), (first, second), measures)


def _compared(root: Path, kinds: dict[str, str]) -> Compared:
    """Two encoders on tasks of 200 items each: the first knows the answers, the second draws its own. kinds: of the tasks."""
    generator = np.random.default_rng(0)
    gold = generator.integers(0, 2, 200).astype(np.float64)
    measures = {task: TASK_KINDS[kind].main for task, kind in kinds.items()}
    both = []
    for encoder, answers in {"good": gold + generator.normal(0, 0.5, 200), "bad": generator.normal(0, 1, 200)}.items():
        folder = root / encoder
        (folder / "items").mkdir(parents=True)
        for task, kind in kinds.items():
            label = {"score": gold, "subset": [""] * 200} if kind == "sts" else {"label": gold}
            pq.write_table(pa.table({**label, "similarity": answers}), folder / "items" / f"{task}.parquet")
        both.append(scored(dict.fromkeys(kinds, 80.0 if encoder == "good" else 50.0), folder, measures))
    return compare_evaluated(("good", "bad"), (both[0], both[1]), measures)


def test_tasks_of_different_measures_are_compared_one_by_one(tmp_path: Path) -> None:
    """As `evaluate` does: half a correlation and half a precision is a number of nothing."""
    found = _compared(tmp_path, {"stsb": "sts", "qqp-pairs": "pairs"})
    assert [(line.task, line.measure) for line in found.lines] == [("stsb", "spearman"), ("qqp-pairs", "ap")]
    assert found.sentence == (
        "good against bad: better in stsb (Spearman +30.00), qqp-pairs (average precision +30.00). "
        "No average: Spearman, average precision are different measures."
    )


def test_tasks_of_one_measure_have_an_average(tmp_path: Path) -> None:
    found = _compared(tmp_path, {"stsb": "sts", "sickr": "sts"})
    assert [(line.task, line.measure) for line in found.lines] == [("stsb", "spearman"), ("sickr", "spearman"), (AVERAGE, "spearman")]
    assert found.sentence.startswith("good is better than bad by 30.00 points (95 % interval ")
    assert "Intervals and p are corrected for 3 comparisons." in found.notes
