"""Which numbers of a table are bold, and which have a spread beside them."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.tables import build_table, mark
from tests.support.pages import html_part, markdown_part

TASKS = ("STS12", "STS13", "STS-B")


def _row(label: str, seed: int, scores: tuple[float, ...]) -> ResultRow:
    return ResultRow(method="rcl", label=label, params={}, seed=seed, scores=dict(zip(TASKS, scores, strict=False)))


def test_of_equal_numbers_all_are_bold_but_those_that_are_distinguished_from_the_best() -> None:
    """Seeds that all gave one score cannot be tested: beside an equal number in bold theirs was plain."""
    rows = [_row("copies", seed, (80.0, 80.0, 80.0)) for seed in (0, 1)]
    rows += [_row("seeds", seed, (79.999 + 0.01 * seed, 79.0 + 2 * seed, 80.0)) for seed in (0, 1)]
    rows += [_row("lower", seed, (79.0, 79.0, 79.0)) for seed in (0, 1)]
    lines = {
        line.label: line
        for line in build_table(
            TableRows(title="t", rows=rows, columns=TASKS, measure=TASK_KINDS["sts"].main, average=True), baseline=None
        ).lines
    }
    for task in ("STS12", "STS13"):
        assert {line.cells[task].standing for line in (lines["copies"], lines["seeds"])} == {"best", "tied"}, task
    assert {lines["lower"].cells[task].standing for task in TASKS} == {""}
    reported = [
        _row(label, seed, (80.0 + by + by * seed / 100 + seed / 1e4,)) for label, by in (("eq1", 0.0), ("rcl", 0.003)) for seed in range(5)
    ]
    table = build_table(
        TableRows(title="t", rows=reported, columns=TASKS[:1], average=False, measure=TASK_KINDS["sts"].main), baseline=None
    )
    assert [line.cells["STS12"].standing for line in table.lines] == ["", "best"], "a test says that they differ, by less than is printed"


@pytest.mark.parametrize("seed", range(12))
def test_no_cell_may_be_the_best_and_is_below_another_by_an_arrow(seed: int) -> None:
    """Two corrections over one table: of 12 rows the set of the best kept some that ↓ put below the baseline, and baselines below ↑."""
    generator = np.random.default_rng(seed)
    levels = 80.0 + generator.normal(0, 0.12, (12, 3))
    rows = [
        _row(f"r{place}", number, tuple(level + generator.normal(0, 0.05, 3)))
        for place, level in enumerate(levels)
        for number in range(int(generator.integers(3, 6)))
    ]
    given = TableRows(title="t", rows=rows, columns=TASKS, measure=TASK_KINDS["sts"].main, average=True)
    table = build_table(given, baseline="r0")
    for column in table.columns:
        cells = {line.label: line.cells[column] for line in table.lines}
        for label, cell in cells.items():
            if mark(cell.against_baseline) == "↓":
                assert (cell.standing, cell.is_below_best) == ("", True), (label, column)
            if mark(cell.against_baseline) == "↑":
                assert (cells["r0"].standing, cells["r0"].is_below_best) == ("", True), (label, column)
        assert [cell.standing for cell in cells.values()].count("best") == 1


def test_a_spread_of_nothing_is_not_shown_where_there_is_no_interval() -> None:
    """`92.54 ± 0.00` passed for certainty."""
    rows = [_row("copies", seed, (80.0, 80.0, 80.0)) for seed in (0, 1)] + [
        _row("seeds", seed, (79.0 + seed, 79.0, 80.0)) for seed in (0, 1)
    ]
    table = build_table(TableRows(title="t", rows=rows, columns=TASKS, measure=TASK_KINDS["sts"].main, average=True), baseline=None)
    cells = table.line("copies").cells
    assert cells["STS12"].summary is not None and cells["STS12"].summary.sd == 0.0 and cells["STS12"].sd is None
    assert table.line("seeds").cells["STS12"].sd == pytest.approx(np.std([0, 1], ddof=1))
    reported = "No ± and no interval: all seeds score alike there; such a row cannot be tested, and is bold where it equals the best."
    assert reported in table.notes
    for kind in (markdown_part, html_part):
        text = kind("result_table", table)
        assert "± 0.00" not in text and "±0.00" not in text and reported in text
    assert (
        reported
        not in build_table(
            TableRows(title="t", rows=rows[2:], columns=TASKS[:1], average=False, measure=TASK_KINDS["sts"].main), baseline=None
        ).notes
    )
