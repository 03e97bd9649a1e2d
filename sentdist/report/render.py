"""How a result table looks in Markdown, in HTML and as CSV."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from sentdist.evaluation.decisive import Difference, Interval
from sentdist.report.columns import AVERAGE
from sentdist.report.comparisons import SPEAKS_OF, Comparison, p_text
from sentdist.report.tables import Cell, Line, ResultTable
from sentdist.table_text import csv_text, markdown_table, markdown_text

NOT_DEFINED = "not defined"


def to_markdown(table: ResultTable) -> str:
    """A GitHub table with its sentences and notes."""
    rows = [
        (markdown_text(line.label) + _doubt(line), _seeds(line), *(_markdown_cell(line, line.cells[column]) for column in table.columns))
        for line in table.lines
    ]
    lines = [f"### {markdown_text(table.title)}", "", markdown_table(("", "n", *map(markdown_text, table.columns)), rows)]
    lines += ["", *(f"- {markdown_text(sentence)}" for sentence in table.sentences), ""]
    lines.append("<sub>" + " ".join(map(markdown_text, table.notes)) + "</sub>")
    return "\n".join(lines) + "\n"


def to_html(table: ResultTable) -> str:
    """A `<figure>` with a table and, folded away, every test against the baseline; looks come from the page's style sheet."""
    head = "".join(f'<th scope="col"{" class=avg" if column == AVERAGE else ""}>{html.escape(column)}</th>' for column in table.columns)
    body = []
    for line in table.lines:
        cells = "".join(_html_cell(line, column, line.cells[column]) for column in table.columns)
        kind = " class=baseline" if line.is_baseline else ""
        body.append(
            f'<tr{kind}><th scope="row">{html.escape(line.label)}{_doubt_html(line)}</th><td class="n">{_seeds(line)}</td>{cells}</tr>'
        )
    sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in table.sentences)
    notes = " ".join(html.escape(note) for note in table.notes)
    return (
        f'<figure class="results"><figcaption>{html.escape(table.title)}</figcaption><div class="scroll"><table>'
        f'<thead><tr><th scope="col"></th><th scope="col" class="n">n</th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
        + (f'<ul class="said">{sentences}</ul>' if sentences else "")
        + _tests_html(table)
        + f'<p class="notes">{notes}</p></figure>'
    )


def to_csv(table: ResultTable) -> str:
    """One line a system; for every column its mean, sd, 95 % interval with what it is over, and how many test items training data hold."""
    params = sorted({name for line in table.lines for name in line.params})
    parts = ("mean", "sd", "low", "high", "interval over", "items leaked")
    named = (f"{column} {part}" for column in table.columns for part in parts)
    rows: list[list[object]] = [["label", "method", *params, "num_seeds", "is_fixed", "exploratory", *named]]
    for line in table.lines:
        values: list[object] = [
            line.label,
            line.method,
            *(line.params.get(name, "") for name in params),
            line.num_seeds,
            line.is_fixed,
            line.exploratory,
        ]
        for column in table.columns:
            cell = line.cells[column]
            summary, interval = cell.summary, cell.interval
            values += ["" if summary is None else _number(summary.mean), "" if summary is None else _number(summary.sd)]
            values += ["", "", ""] if interval is None else [_number(interval.low), _number(interval.high), interval.about]
            values += ["" if cell.leaked is None else str(cell.leaked.num_leaked)]
        rows.append(values)
    return csv_text(rows)


COMPARED = ("system", "against", "relation", "task", "speaks of", "difference", "low", "high", "p", "p over table", "detectable", "reason")


def comparisons_to_csv(table: ResultTable) -> str:
    """One line a difference: its interval and p alone, p over all of its relation in the table, and what would have been found."""
    rows: list[Sequence[str]] = [COMPARED]
    for comparison in table.comparisons:
        names = (comparison.system, comparison.other, comparison.relation)
        for task, found in comparison.differences.items():
            numbers = [_number(one) for one in (found.difference, found.low, found.high, found.p, found.table_p, found.detectable)]
            rows.append([*names, task, found.about, *numbers, found.reason])
        if (tasks := comparison.other_tasks) is not None:
            numbers = [_number(one) for one in (comparison.differences[AVERAGE].difference, tasks.low, tasks.high, tasks.p)]
            rows.append([*names, AVERAGE, "other tasks", *numbers, "", "", ""])
    return csv_text(rows)


def mark(found: Difference | None) -> str:
    """`↑` or `↓` where a difference from the baseline is told over the whole table."""
    return "" if found is None or not found.is_told else "↑" if found.difference > 0 else "↓"


def interval_text(interval: Interval | None) -> str:
    """`[low, high]`; nothing where there is none."""
    return "" if interval is None else f"[{interval.low:.2f}, {interval.high:.2f}]"


def leaked_text(cell: Cell) -> str:
    """How much of a test its training data hold, in words for the cell itself."""
    if cell.leaked is None:
        return ""
    whole, near = (
        f"{cell.leaked.num_leaked:,}" if cell.leaked.num_leaked else "",
        f"{cell.leaked.num_near:,} nearly" if cell.leaked.num_near else "",
    )
    return f"leaked {' and '.join(filter(None, (whole, near)))} of {cell.leaked.num_items:,}"


def _markdown_cell(line: Line, cell: Cell) -> str:
    if cell.summary is None:
        return NOT_DEFINED
    mean = f"{cell.summary.mean:.2f}"
    mean = f"**{mean}**" if cell.standing else mean
    spread = f" ± {cell.summary.sd:.2f}" if cell.summary.sd is not None else ""
    parts = [
        f"{mean}{spread}{_short(line, cell)}",
        mark(cell.against_baseline),
        interval_text(cell.interval),
        f"**{leaked_text(cell)}**" if cell.leaked else "",
    ]
    return " ".join(part for part in parts if part)


def _html_cell(line: Line, column: str, cell: Cell) -> str:
    classes = " ".join(name for name in ("avg" if column == AVERAGE else "", cell.standing, "leaked" if cell.leaked else "") if name)
    if cell.summary is None:
        return f'<td class="{classes}">{NOT_DEFINED}</td>'
    spread = f'<span class="sd">±{cell.summary.sd:.2f}</span>' if cell.summary.sd is not None else ""
    interval = f'<span class="ci">{interval_text(cell.interval)}</span>' if cell.interval else ""
    leaked = f'<span class="leaked">{leaked_text(cell)}</span>' if cell.leaked else ""
    arrow = mark(cell.against_baseline)
    marks = f'<span class="{"worse" if arrow == "↓" else "better"}">{arrow}</span>' if arrow else ""
    return (
        f'<td class="{classes}" title="{html.escape(_tooltip(cell))}"><span class="mean">{cell.summary.mean:.2f}</span>'
        f'<span class="marks">{marks}</span>{spread}{_short(line, cell)}{interval}{leaked}</td>'
    )


TEST_COLUMNS = ("system", "task", "difference", "95 % interval", "p", "p over the table", "would be found", "speaks of")


def _tests_html(table: ResultTable) -> str:
    """Every difference from the baseline, folded away."""
    rows = [row for comparison in table.comparisons if comparison.relation == "baseline" for row in _tests(comparison)]
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in TEST_COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    summary = f"All differences from {html.escape(table.baseline or '')}"
    return (
        f'<details class="tests"><summary>{summary}</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _tests(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for column, found in comparison.differences.items():
        if found.low is None or found.high is None or found.p is None or found.table_p is None:
            yield comparison.system, column, f"{found.difference:+.2f}", "", "", "", "", f"not defined: {found.reason}"
            continue
        seen = "" if found.detectable is None else f"{found.detectable:.2f}"
        interval = f"{found.low:+.2f} to {found.high:+.2f}"
        yield (
            comparison.system,
            column,
            f"{found.difference:+.2f}",
            interval,
            f"{found.p:.4f}",
            f"{found.table_p:.4f}",
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
            f"{tasks.p:.4f}",
            "",
            "",
            "other tasks such as these",
        )


def _doubt(line: Line) -> str:
    return " (exploratory)" if line.exploratory else ""


def _doubt_html(line: Line) -> str:
    return f'<span class="doubt" title="{html.escape(line.exploratory)}">exploratory</span>' if line.exploratory else ""


def _tooltip(cell: Cell) -> str:
    assert cell.summary is not None
    parts = []
    if cell.interval is not None:
        parts.append(f"95 % interval over {SPEAKS_OF[cell.interval.about]}: {cell.interval.low:.2f} to {cell.interval.high:.2f}")
    if (found := cell.against_baseline) is not None:
        text = f"{found.difference:+.2f} against the baseline"
        if found.low is not None and found.high is not None and found.table_p is not None:
            text += f" ({found.low:+.2f} to {found.high:+.2f}), p {p_text(found.table_p)} over the table"
        elif found.reason:
            text += f" ({found.reason})"
        parts.append(text)
    return "; ".join(parts)


def _short(line: Line, cell: Cell) -> str:
    """Says so when a cell rests on fewer seeds than its line."""
    return f" (n={cell.summary.num_seeds})" if cell.summary and cell.summary.num_seeds < line.num_seeds else ""


def _seeds(line: Line) -> str:
    return "fixed" if line.is_fixed else str(line.num_seeds)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
