"""Forest plots: differences from a baseline with their intervals, on average and task by task."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.text import Text

from sentdist.evaluation.significance import Difference
from sentdist.report.comparisons import SPEAKS_OF, p_text
from sentdist.report.style import INK, MUTED, TITLE_LINE_IN, Drawing, break_titles, canvas, check_drawable, house_style, save

PANELS_A_ROW = 4
MOST_LINES = 40  # a panel; the table has all
LONGEST_NAME = 60  # letters; a longer one takes further lines
LEAST_AXIS_IN = 3.0  # inches
NONE: Mapping[str, str] = MappingProxyType({})
HEADER = ("difference", "low", "high", "p over table", "speaks of")


def forest_plot(
    differences: Mapping[str, Difference],
    *,
    baseline: str,
    unit: str,
    against: Mapping[str, str] = NONE,
    apart: str = "",
) -> Drawing:
    """One line a system: its difference from the baseline with the 95 % interval; filled where p < 0.05 over the table.

    baseline: what differences are from, in words. against: system -> the row that its difference is from, where not all are from one;
    apart: a sentence on systems of which `baseline` does not speak.
    """
    check_drawable(differences, "forest plot")
    with house_style():
        names = [textwrap.fill(system, LONGEST_NAME) for system in differences]
        letters = max(len(line) for name in names for line in name.splitlines())
        line_in = 0.36 + TITLE_LINE_IN * max(name.count("\n") for name in names)
        # inches: a letter of 9 points takes 0.075, what is said to the right 1.2
        figure, (axes,) = canvas(width=max(7.2, 0.075 * letters + 1.2 + LEAST_AXIS_IN), height=1.1 + line_in * len(differences))
        span = _span(differences.values())
        _lines(axes, list(differences.values()), span)
        for place, found in enumerate(differences.values()):
            p, sure = found.table_p, found.is_significant
            said = f"{found.difference:+.2f}".replace("-", "−") + ("" if p is None else f"  p {p_text(p)}")
            at = (1.01, place)
            axes.text(*at, said if p is not None else f"{said}  no test", transform=axes.get_yaxis_transform(), va="center", fontsize=8.5,
                      color=INK if sure else MUTED, weight="bold" if sure else "normal")  # fmt: skip
        axes.set_yticks(range(len(differences)), names)
        below = axes.set_xlabel(f"{unit} from {baseline}")
        records = [[label, *_row_of(label, against), *_numbers(found)] for label, found in differences.items()]
        caption = (
            f"Difference from {baseline}, with its 95 % interval{_over(differences.values())}. Filled and bold: p < 0.05; "
            "hollow: not, or untested. Intervals and p are corrected over the table."
        )
        caption += _sentence(apart)
        header = ["system", *_header(against), *HEADER]
        return save(figure, name="differences", caption=caption, header=header, records=records, below=below)


def task_forest(
    differences: Mapping[str, Mapping[str, Difference]],
    *,
    baseline: str,
    tasks: Sequence[str],
    unit: str,
    against: Mapping[str, str] = NONE,
    apart: str = "",
) -> Drawing:
    """A panel a task, a line a system, one scale for all: which tasks a difference of averages comes from.

    Of many systems those are drawn that differ most, on average over tasks. baseline, against, apart: see `forest_plot`.
    """
    check_drawable(differences, "forest plot")
    everyone, differences = differences, _most_different(differences)
    columns = min(PANELS_A_ROW, len(tasks))
    rows = -(-len(tasks) // columns)
    with house_style():
        names_in = max(2.4, min(5.0, 0.4 + 0.06 * max(map(len, differences))))  # inches: a letter of 7.5 points takes 0.06
        figure, panels = canvas(
            width=names_in + 1.55 * columns, height=0.6 + rows * (0.7 + 0.26 * len(differences)), rows=rows, columns=columns
        )
        titles: list[Text] = []
        span = _span(one for found in differences.values() for one in found.values())
        for number, axes in enumerate(panels):
            if number >= len(tasks):
                axes.set_visible(False)
                continue
            task = tasks[number]
            _lines(axes, [found.get(task) for found in differences.values()], span, size=5.0)
            titles.append(axes.set_title(task, fontsize=9))
            if number % columns == 0:
                axes.set_yticks(range(len(differences)), list(differences))
            else:
                axes.set_yticks([])
            axes.tick_params(labelsize=7.5)
        break_titles(figure, titles)
        below = figure.supxlabel(f"difference from {baseline} ({unit})", fontsize=9, color=MUTED)
        records = [
            [system, *_row_of(system, against), task, *_numbers(one)] for system, found in everyone.items() for task, one in found.items()
        ]
        over = _over([one for found in everyone.values() for one in found.values()])
        caption = (
            f"Difference from {baseline} task by task, with its 95 % interval{over}, on one scale. Filled: p < 0.05; "
            "hollow: not, or untested. Intervals and p are corrected over the table."
        )
        if len(differences) < len(everyone):
            caption += f" The {len(differences)} of {len(everyone)} systems that differ most."
        caption += _sentence(apart)
        header = ["system", *_header(against), "task", *HEADER]
        return save(figure, name="differences-by-task", caption=caption, header=header, records=records, below=below)


def _header(against: Mapping[str, str]) -> list[str]:
    return ["against"] if against else []


def _row_of(system: str, against: Mapping[str, str]) -> list[str]:
    return [against[system]] if against else []


def _sentence(words: str) -> str:
    return f" {words}" if words else ""


def _most_different(differences: Mapping[str, Mapping[str, Difference]]) -> Mapping[str, Mapping[str, Difference]]:
    """The systems that differ most, as many as a panel has room for, in the order given."""

    def distance(system: str) -> float:
        found = differences[system].values()
        return abs(sum(one.difference for one in found) / len(found)) if found else 0.0

    kept = set(sorted(differences, key=distance, reverse=True)[:MOST_LINES])
    return {system: found for system, found in differences.items() if system in kept}


def _over(differences: Iterable[Difference]) -> str:
    """What the intervals speak of; those of one seed know nothing of other seeds."""
    found = {one.about for one in differences}
    spoken = [SPEAKS_OF[about] for about in SPEAKS_OF if about in found]
    return f" over {'; of some over '.join(spoken)}" if spoken else ""


def _span(differences: Iterable[Difference]) -> tuple[float, float]:
    """The ends of an axis that holds 0, every difference and every interval."""
    ends = [0.0, *(end for one in differences for end in (one.low, one.high, one.difference) if end is not None)]
    pad = 0.06 * (max(ends) - min(ends) or 1.0)
    return min(ends) - pad, max(ends) + pad


def _lines(axes: Axes, differences: Sequence[Difference | None], span: tuple[float, float], *, size: float = 7.0) -> None:
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    # In ink: a sign shows by its side of 0, and colours are those of systems in the other figures.
    drawn = [(place, difference) for place, difference in enumerate(differences) if difference is not None]
    intervals = [
        (place, difference.low, difference.high, to_rgba(INK, 1.0 if difference.is_significant else 0.45))
        for place, difference in drawn
        if difference.low is not None and difference.high is not None
    ]
    if intervals:
        places, lows, highs, colors = zip(*intervals, strict=True)
        axes.hlines(places, lows, highs, colors=colors, linewidths=size / 3.2)
    axes.set_xlim(span)
    axes.scatter(
        [difference.difference for _, difference in drawn],
        [place for place, _ in drawn],
        s=size**2,
        c=[INK if difference.is_significant else "white" for _, difference in drawn],
        edgecolors=INK,
        linewidths=size / 4.4,
        zorder=3,
    )
    axes.set_ylim(len(differences) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")


def _numbers(found: Difference) -> list[object]:
    return [found.difference, found.low, found.high, found.table_p, found.about]
