"""What stands in the cells of a result table, in words and marks, whatever the page is written in."""

from __future__ import annotations

from collections.abc import Iterator

from sentdist.evaluation.significance import Difference
from sentdist.evaluation.variation import Interval
from sentdist.report.columns import AVERAGE
from sentdist.report.comparisons import SPEAKS_OF, Comparison, p_text
from sentdist.report.tables import Cell, Line, ResultTable


def mark(found: Difference | None) -> str:
    """`↑` or `↓` where a difference from the baseline is significant over the whole table."""
    return "" if found is None or not found.is_significant else "↑" if found.difference > 0 else "↓"


def interval_text(interval: Interval | None) -> str:
    """`[low, high]`; nothing where there is none."""
    return "" if interval is None else f"[{interval.low:.2f}, {interval.high:.2f}]"


def leaked_text(cell: Cell) -> str:
    """How much of a test its training data hold, in words for the cell itself."""
    return "" if cell.leaked is None else cell.leaked.words


TEST_COLUMNS = ("system", "task", "difference", "95 % interval", "p", "would be seen", "about")


def test_columns(table: ResultTable) -> tuple[str, ...]:
    """What stands over `tests_of`: TEST_COLUMNS, and where rows have several references, from which a difference is."""
    system, *rest = TEST_COLUMNS
    return (system, "from", *rest) if table.references.own else TEST_COLUMNS


def tests_of(table: ResultTable) -> list[tuple[str, ...]]:
    """Every difference from the baseline, under `test_columns`."""
    found = [(one, row) for one in table.comparisons if one.relation != "preceding" for row in _tests(one)]
    return [(row[0], one.other, *row[1:]) if table.references.own else row for one, row in found]


def _tests(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for column, found in comparison.differences.items():
        if found.low is None or found.high is None or found.table_p is None:
            yield comparison.system, column, f"{found.difference:+.2f}", "", "", "", f"not tested: {found.reason}"
            continue
        seen = "" if found.detectable is None else f"{found.detectable:.2f}"
        interval = f"{found.low:+.2f} to {found.high:+.2f}"
        yield (
            comparison.system,
            column,
            f"{found.difference:+.2f}",
            interval,
            p_text(found.table_p).removeprefix("= "),
            seen,
            SPEAKS_OF[found.about],
        )
    if (tasks := comparison.other_tasks) is not None:
        interval = f"{tasks.low:+.2f} to {tasks.high:+.2f}"
        yield (
            comparison.system,
            AVERAGE,
            f"{comparison.differences[AVERAGE].difference:+.2f}",
            interval,
            p_text(tasks.p).removeprefix("= "),
            "",
            "other tasks such as these; not corrected",
        )


def tooltip(cell: Cell, line: Line) -> str:
    """The interval, and the difference from the baseline, or the row's own reference, with its p."""
    parts = []
    if cell.interval is not None:
        parts.append(f"95 % interval over {SPEAKS_OF[cell.interval.about]}: {cell.interval.low:.2f} to {cell.interval.high:.2f}")
    if (found := cell.against_baseline) is not None:
        text = f"{found.difference:+.2f} against {line.reference or 'the baseline'}"
        if found.low is not None and found.high is not None and found.table_p is not None:
            text += f" ({found.low:+.2f} to {found.high:+.2f}), p {p_text(found.table_p)}"
        elif found.reason:
            text += f" ({found.reason})"
        parts.append(text)
    return "; ".join(parts)


def num_seeds(line: Line) -> str:
    """Seeds of a row; `fixed` where nothing was trained."""
    return "fixed" if line.is_fixed else str(line.num_seeds)
