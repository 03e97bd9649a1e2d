"""How a result table looks in Markdown, in HTML and as CSV."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from sentdist.evaluation.significance import MOST_SEEDS, TEST_NAMES, Difference
from sentdist.report.comparisons import AVERAGE, Comparison
from sentdist.report.tables import Cell, Interval, Line, ResultTable
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
            values += ["", "", ""] if interval is None else [_number(interval.low), _number(interval.high), interval.unit]
            values += ["" if cell.leaked is None else str(cell.leaked.num_leaked)]
        rows.append(values)
    return csv_text(rows)


def comparisons_to_csv(table: ResultTable) -> str:
    """One line a test: every comparison, task and way of testing, with interval, p and p after Holm's correction."""
    rows: list[list[str]] = [
        ["system", "against", "relation", "task", "unit", "test", "difference", "low", "high", "p", "p_holm", "seeds_needed", "reason"]
    ]
    for comparison in table.comparisons:
        for unit, differences in (("seeds", comparison.over_seeds), ("items", comparison.over_items), ("items", comparison.williams)):
            for task, found in differences.items():
                numbers = [
                    _number(value) for value in (found.difference, found.low, found.high, found.p, found.adjusted_p, found.seeds_needed)
                ]
                rows.append(
                    [comparison.system, comparison.other, comparison.relation, task, unit, TEST_NAMES[found.test], *numbers, found.reason]
                )
    return csv_text(rows)


def mark_against_baseline(found: Difference | None) -> str:
    """`*` p < 0.05, `†` p < 0.1, with `↓` before them when the system is worse; p after Holm's correction."""
    mark = _by_p(found, "*", "†")
    return f"↓{mark}" if mark and found and found.difference < 0 else mark


def mark_against_preceding(found: Difference | None) -> str:
    """▲ ▼ p < 0.05, △ ▽ p < 0.1."""
    return _by_p(found, "▲", "△") if found and found.difference >= 0 else _by_p(found, "▼", "▽")


def _by_p(found: Difference | None, strong: str, weak: str) -> str:
    p = found.decisive_p if found else None
    return "" if p is None or p >= 0.1 else strong if p < 0.05 else weak


def interval_text(interval: Interval | None) -> str:
    """`[low, high]` over seeds, `⟨low, high⟩` over test items; nothing where there is none."""
    if interval is None:
        return ""
    opening, closing = ("[", "]") if interval.unit == "seeds" else ("⟨", "⟩")
    return f"{opening}{interval.low:.2f}, {interval.high:.2f}{closing}"


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
    mean = {"best": f"**{mean}**", "tied": f"<ins>{mean}</ins>"}.get(cell.standing, mean)
    spread = f" ± {cell.summary.sd:.2f}" if cell.summary.sd is not None else ""
    marks = mark_against_baseline(cell.against_baseline).replace("*", "\\*") + mark_against_preceding(cell.against_preceding)
    parts = [f"{mean}{spread}{_short(line, cell)}", marks, interval_text(cell.interval), f"**{leaked_text(cell)}**" if cell.leaked else ""]
    return " ".join(part for part in parts if part)


def _html_cell(line: Line, column: str, cell: Cell) -> str:
    classes = " ".join(name for name in ("avg" if column == AVERAGE else "", cell.standing, "leaked" if cell.leaked else "") if name)
    if cell.summary is None:
        return f'<td class="{classes}">{NOT_DEFINED}</td>'
    spread = f'<span class="sd">±{cell.summary.sd:.2f}</span>' if cell.summary.sd is not None else ""
    interval = f'<span class="ci">{interval_text(cell.interval)}</span>' if cell.interval else ""
    leaked = f'<span class="leaked">{leaked_text(cell)}</span>' if cell.leaked else ""
    baseline = mark_against_baseline(cell.against_baseline)
    preceding = mark_against_preceding(cell.against_preceding)
    marks = f'<sup class="{_tone(baseline)}">{baseline}</sup>' if baseline else ""
    marks += f'<span class="step {_tone(preceding)}">{preceding}</span>' if preceding else ""
    return (
        f'<td class="{classes}" title="{html.escape(_tooltip(cell))}"><span class="mean">{cell.summary.mean:.2f}</span>'
        f'<span class="marks">{marks}</span>{spread}{_short(line, cell)}{interval}{leaked}</td>'
    )


def _tests_html(table: ResultTable) -> str:
    """Every test against the baseline, folded away."""
    rows = [row for comparison in table.comparisons if comparison.relation == "baseline" for row in _tests(comparison, table.columns)]
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in TEST_COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    summary = f"All tests against {html.escape(table.baseline or '')}: over seeds and over test items"
    return (
        f'<details class="tests"><summary>{summary}</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></details>"
    )


TEST_COLUMNS = ("system", "task", "over seeds", "seeds needed", "over test items: bootstrap", "Williams' test")


def _tests(comparison: Comparison, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for column in columns:
        seeds, items, williams = (found.get(column) for found in (comparison.over_seeds, comparison.over_items, comparison.williams))
        if seeds is None and items is None:
            continue
        needed = None if seeds is None else seeds.seeds_needed
        many = "" if needed is None else f"more than {MOST_SEEDS}" if math.isinf(needed) else f"{needed:.0f}"
        yield comparison.system, column, _test_text(seeds), many, _test_text(items), _test_text(williams)


def _test_text(found: Difference | None) -> str:
    if found is None:
        return ""
    if found.low is None or found.high is None or found.p is None:
        return f"{found.difference:+.2f}, not defined: {found.reason}"
    holm = "" if found.adjusted_p is None else f", Holm {found.adjusted_p:.4f}"
    return f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}] p {found.p:.4f}{holm}"


def _doubt(line: Line) -> str:
    return " (exploratory)" if line.exploratory else ""


def _doubt_html(line: Line) -> str:
    return f'<span class="doubt" title="{html.escape(line.exploratory)}">exploratory</span>' if line.exploratory else ""


def _tone(mark: str) -> str:
    return "worse" if any(sign in mark for sign in "↓▼▽") else "better"


def _tooltip(cell: Cell) -> str:
    assert cell.summary is not None
    parts = []
    if cell.interval is not None:
        parts.append(f"95 % interval of the mean over {cell.interval.unit} {cell.interval.low:.2f} to {cell.interval.high:.2f}")
    for name, found in (("baseline", cell.against_baseline), ("row above", cell.against_preceding)):
        if found is None:
            continue
        text = f"{found.difference:+.2f} against the {name}"
        if found.low is not None and found.high is not None and found.decisive_p is not None:
            text += f" ({found.low:+.2f} to {found.high:+.2f}), p = {found.decisive_p:.4f}, {TEST_NAMES[found.test]}"
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
