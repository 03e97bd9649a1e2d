"""Encoders that are scored and compared one by one: verdicts, second opinions, what a task without a score says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.items import Scored
from sentdist.report.comparisons import AVERAGE
from sentdist.report.evaluated import UNDEFINED, Compared, compare_evaluated, score_lines, scored, verdict
from sentdist.tasks.kinds import TASK_KINDS


def _of_one_pair(folder: Path) -> Path:
    (folder / "items").mkdir(parents=True)
    pq.write_table(pa.table({"subset": ["a"], "score": [1.0], "similarity": [0.5]}), folder / "items" / "sts-one.parquet")
    return folder


def test_a_task_without_a_score_says_why_and_compares_nothing(tmp_path: Path) -> None:
    folders = [_of_one_pair(tmp_path / name) for name in "ab"]
    (line,) = score_lines(["sts=one"], {"sts-one": None}, folders[0])
    assert (line.score, line.why) == (None, UNDEFINED)
    with pytest.raises(DataError, match="no score of both: sts-one"):
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
    assert found.sentence.startswith("good against bad: better in stsb (Spearman +30.00), qqp-pairs (average precision +30.00). No average")
    found = _compared(tmp_path / "one", {"stsb": "sts", "sickr": "sts"})
    assert [(line.task, line.measure) for line in found.lines] == [("stsb", "spearman"), ("sickr", "spearman"), (AVERAGE, "spearman")]
    assert found.sentence.startswith("good is better than bad by 30.00 points (95 % interval ")
    assert "Intervals and p are corrected for 3 comparisons." in found.notes


TASKS = {"retrieval-mine-test": TASK_KINDS["retrieval"].main, "triplets-mine-test": TASK_KINDS["triplets"].main}


def made(folder: Path, found: np.ndarray, right: np.ndarray) -> Scored:
    folder.mkdir()
    for task, values in zip(TASKS, (found, right), strict=True):
        pq.write_table(pa.table({"value": 100 * values}), folder / f"{task}.parquet")
    return Scored(
        scores={task: 100 * float(values.mean()) for task, values in zip(TASKS, (found, right), strict=True)},
        items={task: (folder / f"{task}.parquet",) for task in TASKS},
    )


@pytest.mark.parametrize(("shift", "outcome"), [(0.2, "better"), (0.0, "not shown to be better"), (-0.2, "worse")])
def test_an_encoder_is_judged_by_its_own_items(shift: float, outcome: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    before = draw.uniform(0.3, 0.7, 200)
    after = np.clip(before + shift + draw.normal(0, 0.1, 200), 0, 1)
    found = verdict(made(tmp_path / "a", after, after), made(tmp_path / "b", before, before), TASKS)
    assert found.outcome == outcome and found.task == "retrieval-mine-test" and found.num_items == 200
    assert found.line.startswith(outcome.capitalize()) and "held-out items" in found.line
    assert ("would be found" in found.line) == (outcome == "not shown to be better")
