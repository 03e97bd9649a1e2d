"""What is told of an evaluation whose task has no score."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.errors import DataError
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.evaluated import compare_evaluated, score_lines, scored


def _of_one_pair(folder: Path) -> Path:
    (folder / "items").mkdir(parents=True)
    pq.write_table(pa.table({"subset": ["a"], "score": [1.0], "similarity": [0.5]}), folder / "items" / "sts-one.parquet")
    return folder


def test_a_task_without_a_score_says_why(tmp_path: Path) -> None:
    (line,) = score_lines(["sts=one"], {"sts-one": None}, _of_one_pair(tmp_path))
    assert (line.score, line.why) == (None, "no two different gold scores among its 1 pair")


def test_encoders_that_cannot_be_compared_are_told_why(tmp_path: Path) -> None:
    folders = [_of_one_pair(tmp_path / name) for name in "ab"]
    with pytest.raises(DataError, match=r"no score of both: sts-one \(no two different gold scores among its 1 pair\); expected"):
        measures = {"sts-one": TASK_KINDS["sts"].main}
        first, second = (scored({"sts-one": None}, folder, measures) for folder in folders)
        compare_evaluated(("a", "b"), (first, second), measures)
