"""RSE's Figure 5: every system, relation and task has its mark, and what knows no relation its line."""

from __future__ import annotations

import csv
import io

import pytest

from sentdist.errors import DataError
from sentdist.report.method_figures import relations_alone
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.sweep_rows import COLUMNS, FOUR, MEASURE, RELATION, TASK_OF_COLUMN, relations_of, useb_scores
from sentdist.report.tables import build_table


def _row(label: str, relation: str, seed: int, score: float) -> ResultRow:
    scores = {task: score + place for place, task in enumerate(FOUR)}
    return ResultRow(method="m", label=f"{label}, {relation}", params={RELATION: relation}, seed=seed, scores=scores)


ROWS = [_row(label, relation, seed, 50.0 + seed + len(relation)) for label in ("a, b", "c") for relation in ("x", "yy") for seed in (0, 1)]


def test_means_over_seeds_of_each_system_and_relation() -> None:
    plain = ResultRow(method="p", label="plain", params={}, seed=0, scores=dict.fromkeys(FOUR, 40.0))
    drawing = relations_alone(ROWS, [plain])
    found = {(row["system"], row["relation"], row["task"]): row for row in csv.DictReader(io.StringIO(drawing.table))}
    assert len(found) == (2 * 2 + 1) * 4
    assert float(found["a, b", "yy", FOUR[1]]["mean"]) == 53.5 and found["a, b", "yy", FOUR[1]]["seeds"] == "2"
    assert float(found["plain", "", FOUR[3]]["mean"]) == 40.0 and found["plain", "", FOUR[3]]["sd"] == ""
    assert "Dashed" in drawing.caption and "Dashed" not in relations_alone(ROWS).caption


def test_equal_rows_are_the_same_figure() -> None:
    assert relations_alone(ROWS).svg == relations_alone(ROWS).svg


def test_one_relation_counts_for_all_parts_of_a_task_and_each_has_a_row_of_its_own() -> None:
    results: dict[str, float | None] = {}
    for number, task in enumerate(TASK_OF_COLUMN.values()):
        results |= {f"{task}.by.x": 50.0 + number, f"{task}.by.y": 40.0 + number}
    results |= {"twitter-url.by.y": 60.0, "twitter-pit.by.y": 30.0, "scidocs-coview.by.y": 90.0}
    best, x, y = (useb_scores(results, relation) for relation in (None, "x", "y"))
    assert relations_of(results) == ("x", "y")
    assert (x["TURL"], x["PIT"], x["TwitterPara Avg"]) == (best["TURL"], best["PIT"], best["TwitterPara Avg"]) == (52.0, 53.0, 52.5)
    assert (y["TURL"], y["PIT"], y["TwitterPara Avg"]) == (60.0, 30.0, 45.0)
    assert best["SciDocs Avg"] == y["SciDocs Avg"] == pytest.approx((44 + 45 + 46 + 90) / 4)


def test_the_average_in_a_table_is_that_of_the_four_tasks_and_nothing_is_said_of_others() -> None:
    """Not of all columns, means and parts alike."""

    def row(label: str, more: float) -> ResultRow:
        scores = useb_scores({task: number**2 + more * number for number, task in enumerate(TASK_OF_COLUMN.values())})
        return ResultRow(method=label, label=label, params={}, seed=0, scores=scores, is_fixed=True)

    table = build_table(
        TableRows(title="t", rows=[row("a", 0.0), row("b", 1.0)], columns=COLUMNS, measure=MEASURE, average=False), baseline="a"
    )
    summary = table.line("a").cells["Avg"].summary
    assert summary is not None and summary.mean == pytest.approx((0 + 1 + (4 + 9) / 2 + (16 + 25 + 36 + 49) / 4) / 4)
    assert table.comparisons[0].other_tasks is None


def test_a_task_without_scores_is_left_out_and_nothing_at_all_is_refused() -> None:
    lacking = [ResultRow(method="m", label="c, x", params={RELATION: "x"}, seed=0, scores={**dict.fromkeys(FOUR, 1.0), FOUR[0]: None})]
    tasks = {row["task"] for row in csv.DictReader(io.StringIO(relations_alone(lacking).table))}
    assert tasks == set(FOUR[1:])
    with pytest.raises(DataError, match="nothing to draw"):
        relations_alone([])
