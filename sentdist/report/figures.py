"""Figures of a sweep: scores against regulators, over a grid, along training, and differences with intervals."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, MaxNLocator

from sentdist.evaluation.significance import Difference, summarize
from sentdist.report.comparisons import SPEAKS_OF, p_text
from sentdist.report.style import (
    INK,
    MUTED,
    SEQUENTIAL,
    TITLE_LINE_IN,
    Drawing,
    SystemStyles,
    break_titles,
    canvas,
    check_drawable,
    house_style,
    in_lines,
    legend_columns,
    quiet,
    save,
    styles_of,
)
from sentdist.text import PALETTE

CELL_LETTERS = 14  # characters in a line of a column's title in a heat map, at 1.15 inches a column
MOST_BINS = 120  # of steps, along a learning curve


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """The curve of one run: loss (in units of its objective, mean over anchors) by step, and dev scores (× 100) at some steps."""

    label: str
    seed: int
    steps: Sequence[int]
    losses: Sequence[float]
    dev_steps: Sequence[int] = ()
    dev_scores: Sequence[float] = ()


def regulators_curve(scores: Mapping[int, Sequence[float]], *, paper: Mapping[int, float] | None = None, unit: str) -> Drawing:
    """Draw the score against the number of regulators: mean, band of ± 1 sd over seeds, a dot per seed; the paper's curve beside it.

    Both panels span the same number of points, so slopes are comparable although levels (other encoder and data) are not.
    """
    counts = sorted(scores)
    check_drawable(counts, "regulators curve")
    summaries = [summarize(list(scores[count])) for count in counts]
    lows = [min(min(scores[count]), one.mean - (one.sd or 0)) for count, one in zip(counts, summaries, strict=True)]
    highs = [max(max(scores[count]), one.mean + (one.sd or 0)) for count, one in zip(counts, summaries, strict=True)]
    spans = [(min(lows), max(highs))] + ([(min(paper.values()), max(paper.values()))] if paper else [])
    half = 0.62 * max(max(high - low for low, high in spans), 0.2)
    with house_style():
        figure, axes = canvas(width=7.2 if paper else 4.4, height=3.2, columns=2 if paper else 1)
        _band(axes[0], counts, [one.mean for one in summaries], [one.sd for one in summaries], color=PALETTE[0], marker="o")
        for count in counts:
            axes[0].plot([count] * len(scores[count]), scores[count], ".", color=PALETTE[0], alpha=0.35, markersize=5, markeredgewidth=0)
        seeds = sorted({len(scores[count]) for count in counts})
        axes[0].set_title(f"This run ({_plural(seeds, 'seed')})")
        axes[0].set_ylabel(in_lines(unit, height_in=2.4))
        if paper:
            axes[1].plot(list(paper), list(paper.values()), "s-", color=PALETTE[1], markeredgecolor="white")
            axes[1].set_title("The paper, Table 4 (5 seeds)")
        for one, (low, high) in zip(axes, spans, strict=True):
            one.set_ylim((low + high) / 2 - half, (low + high) / 2 + half)
            one.xaxis.set_major_locator(FixedLocator(sorted({*counts, *(paper or {})})))
            one.set_xlabel("number of regulators (2 × entropy encoders)")
            quiet(one)
        records = [["ours", count, one.mean, one.sd, one.num_seeds] for count, one in zip(counts, summaries, strict=True)]
        records += [["paper", count, score, None, 5] for count, score in (paper or {}).items()]
        caption = "Score against the number of regulators. Line: mean over seeds; band: ± 1 standard deviation; dots: single seeds."
        if paper:
            caption += " Both panels span the same number of points; levels differ because encoder and data differ."
        return save(figure, name="regulators", caption=caption, header=["source", "regulators", "mean", "sd", "seeds"], records=records)


def heat_map(cells: Mapping[tuple[str, str], Sequence[float]], *, unit: str) -> Drawing:
    """Draw the mean score and sd over seeds of every (row, column) of a grid; the best cell is framed."""
    check_drawable(cells, "heat map")
    rows, columns = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    summaries = {key: summarize(list(scores)) for key, scores in cells.items() if len(scores)}
    means = np.array([[summaries[row, column].mean if (row, column) in summaries else np.nan for column in columns] for row in rows])
    best = max(summaries, key=lambda key: summaries[key].mean)
    with house_style():
        titles = [textwrap.fill(column, CELL_LETTERS, break_long_words=False) for column in columns]
        lines = max(title.count("\n") for title in titles)
        figure, (axes,) = canvas(width=1.9 + 1.15 * len(columns), height=1.1 + 0.14 * lines + 0.58 * len(rows))
        low, high = float(np.nanmin(means)), float(np.nanmax(means))
        image = axes.pcolormesh(means[::-1], cmap=SEQUENTIAL, vmin=low, vmax=max(high, low + 1e-6), edgecolors="white", linewidth=2)
        for row, column in itertools.product(rows, columns):
            x, y = columns.index(column) + 0.5, len(rows) - rows.index(row) - 0.5
            summary = summaries.get((row, column))
            if summary is None:
                axes.text(x, y, "not run", ha="center", va="center", color=MUTED, fontsize=8, style="italic")
                continue
            share = (summary.mean - low) / max(high - low, 1e-6)
            ink = "white" if share > 0.55 else INK
            weight = "bold" if (row, column) == best else "normal"
            axes.text(
                x, y + (0.11 if summary.sd is not None else 0), f"{summary.mean:.2f}", ha="center", va="center", color=ink, weight=weight
            )
            if summary.sd is not None:
                axes.text(x, y - 0.18, f"± {summary.sd:.2f}", ha="center", va="center", color=ink, fontsize=7.5, alpha=0.85)
        frame_x, frame_y = columns.index(best[1]), len(rows) - 1 - rows.index(best[0])
        axes.add_patch(_frame(frame_x, frame_y))
        axes.set_xticks(np.arange(len(columns)) + 0.5, titles)
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows[::-1])
        axes.tick_params(length=0)
        axes.set_xlabel("φ set")
        axes.set_ylabel("batch size")
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=14)
        bar.outline.set_visible(False)
        bar.set_label(unit if len(rows) > 3 else unit.split(" (")[0], fontsize=8)
        bar.ax.yaxis.set_major_locator(MaxNLocator(4))
        records = [[row, column, summary.mean, summary.sd, summary.num_seeds] for (row, column), summary in summaries.items()]
        seeds = _plural(sorted({summary.num_seeds for summary in summaries.values()}), "seed")
        caption = f"{unit[0].upper()}{unit[1:]} by batch size and φ set, mean ± standard deviation ({seeds}); framed: the best."
        return save(figure, name="grid", caption=caption, header=["batch size", "φ set", "mean", "sd", "seeds"], records=records)


def learning_curves(
    curves: Sequence[LearningCurve],
    *,
    dev_unit: str,
    styles: SystemStyles | None = None,
    objectives: Mapping[str, str] | None = None,
    num_systems: int | None = None,
) -> Drawing:
    """Draw loss and dev score against the step: per label the mean over seeds and a band of ± 1 sd where two seeds have the step.

    Losses are first averaged over bins of steps (at most MOST_BINS), since single batches are noisy.

    Args:
        objectives: label -> objective; each objective has its own units and panel.
        num_systems: number of all systems, if only the baseline and the best are drawn.
    """
    check_drawable(curves, "learning curves")
    labels = list(dict.fromkeys(curve.label for curve in curves))
    has_dev = any(len(curve.dev_steps) for curve in curves)
    last = max(max(curve.steps) for curve in curves)
    per_bin = max(1, -(-(last + 1) // MOST_BINS))
    records: list[list[object]] = []
    with house_style():
        objectives = objectives or {}
        kinds = list(dict.fromkeys(objectives.get(label, "") for label in labels))
        rows = len(kinds) + has_dev
        figure, axes = canvas(width=7.2, height=1.2 + 1.7 * rows, rows=rows, sharex=True)
        styles = styles or styles_of(labels)
        for label in labels:
            runs = [curve for curve in curves if curve.label == label]
            color, marker = styles[label].color, styles[label].marker
            losses = _over_seeds([_binned(curve, per_bin) for curve in runs])
            panel = kinds.index(objectives.get(label, ""))
            _band(axes[panel], *losses[:3], color=color, label=f"{label} ({_plural([len(runs)], 'seed')})")
            records += [["loss", label, *record] for record in zip(*losses, strict=True)]
            if any(len(curve.dev_steps) for curve in runs):
                scores = _over_seeds([dict(zip(curve.dev_steps, curve.dev_scores, strict=True)) for curve in runs if len(curve.dev_steps)])
                _band(axes[-1], *scores[:3], color=color, marker=marker)
                records += [["dev score", label, *record] for record in zip(*scores, strict=True)]
        _label_steps(axes, kinds, dev_unit if has_dev else None)
        figure.align_ylabels(axes)
        _legend_above(figure, axes[: len(kinds)])
        band = "; band: ± 1 standard deviation over seeds" if any(sd is not None for *_, sd, _ in records) else ""
        caption = f"Training loss{' and dev score' if has_dev else ''} against the step{band}."
        caption += _learning_notes(per_bin, num_panels=len(kinds), num_drawn=len(labels), num_systems=num_systems)
        header = ["quantity", "label", "step", "mean", "sd", "seeds"]
        return save(figure, name="learning", caption=caption, header=header, records=records)


def _label_steps(axes: Sequence[Axes], kinds: Sequence[str], dev_unit: str | None) -> None:
    """Label the axes: losses, a panel per objective, above the dev score if there is one."""
    for panel, kind in enumerate(kinds):
        axes[panel].set_ylabel("training loss" if len(kinds) == 1 else f"loss:\n{kind}")
    axes[-1].set_xlabel("optimizer step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    if dev_unit is not None:
        axes[-1].set_ylabel(in_lines(dev_unit, height_in=1.6))
    for one in axes:
        quiet(one)
        one.margins(x=0.01)


def _learning_notes(per_bin: int, *, num_panels: int, num_drawn: int, num_systems: int | None) -> str:
    """Notes in the caption. per_bin: steps over which losses are averaged."""
    binned = f" Losses are averaged over {per_bin} steps." if per_bin > 1 else ""
    apart = " Each objective has its own panel, since their losses are not comparable." if num_panels > 1 else ""
    chosen = f" {num_drawn} of {num_systems} trained systems: the baseline and the best." if num_drawn < (num_systems or 0) else ""
    return f"{binned}{apart}{chosen}"


def _legend_above(figure: Figure, panels: Sequence[Axes]) -> None:
    """Draw one legend above the figure for all panels."""
    found = [axes.get_legend_handles_labels() for axes in panels]
    handles, names = (list(itertools.chain.from_iterable(one[side] for one in found)) for side in (0, 1))
    figure.legend(handles, names, loc="outside upper left", ncols=legend_columns(names, width_in=figure.get_figwidth()))


def _band(
    axes: Axes,
    xs: Sequence[int],
    means: Sequence[float],
    sds: Sequence[float | None],
    *,
    color: str,
    marker: str = "",
    label: str | None = None,
) -> None:
    spread = np.array([np.nan if sd is None else sd for sd in sds])
    centre = np.array(means)
    axes.fill_between(xs, centre - spread, centre + spread, color=color, alpha=0.16, linewidth=0)
    axes.plot(xs, means, color=color, marker=marker or None, markeredgecolor="white", label=label)


def _binned(curve: LearningCurve, per_bin: int) -> dict[int, float]:
    """Middle step of a bin -> mean loss of its steps."""
    bins: dict[int, list[float]] = {}
    for step, loss in zip(curve.steps, curve.losses, strict=True):
        bins.setdefault(step // per_bin, []).append(loss)
    return {number * per_bin + per_bin // 2: float(np.mean(losses)) for number, losses in bins.items()}


def _over_seeds(runs: Sequence[Mapping[int, float]]) -> tuple[list[int], list[float], list[float | None], list[int]]:
    """Steps, means, sds and numbers of seeds; runs that stopped early have no later steps."""
    steps = sorted({step for run in runs for step in run})
    found = [summarize([run[step] for run in runs if step in run]) for step in steps]
    return steps, [one.mean for one in found], [one.sd for one in found], [one.num_seeds for one in found]


def _frame(x: float, y: float) -> Rectangle:
    return Rectangle((x, y), 1, 1, fill=False, edgecolor=PALETTE[1], linewidth=2.4, clip_on=False, zorder=3)


def _plural(counts: Sequence[int], noun: str) -> str:
    if list(counts) == [1]:
        return f"1 {noun}"
    return f"{counts[0]} {noun}s" if len(counts) == 1 else f"{counts[0]}–{counts[-1]} {noun}s"


PANELS_A_ROW = 4
MOST_LINES = 40  # a panel; the table has all
LONGEST_NAME = 60  # characters in a line
LEAST_AXIS_IN = 3.0  # inches
NONE: Mapping[str, str] = MappingProxyType({})
HEADER = ("difference", "low", "high", "p over table", "speaks of")


def forest_plot(
    differences: Mapping[str, Difference], *, baseline: str, unit: str, against: Mapping[str, str] = NONE, apart: str = ""
) -> Drawing:
    """Draw a line per system: its difference from the baseline with the 95 % interval; filled if p < 0.05 over the table.

    Args:
        baseline: the reference, in words.
        against: system -> its reference, if there are several.
        apart: a sentence on systems with another reference than `baseline`.
    """
    check_drawable(differences, "forest plot")
    with house_style():
        names = [textwrap.fill(system, LONGEST_NAME) for system in differences]
        letters = max(len(line) for name in names for line in name.splitlines())
        line_in = 0.36 + TITLE_LINE_IN * max(name.count("\n") for name in names)
        # inches: a character of 9 points takes 0.075, the text on the right 1.2
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
    """Draw a panel per task and a line per system, on one scale, to show which tasks a difference of averages comes from.

    Of many systems, those with the largest mean differences are drawn. baseline, against, apart: see `forest_plot`.
    """
    check_drawable(differences, "forest plot")
    everyone, differences = differences, _most_different(differences)
    columns = min(PANELS_A_ROW, len(tasks))
    rows = -(-len(tasks) // columns)
    with house_style():
        names_in = max(2.4, min(5.0, 0.4 + 0.06 * max(map(len, differences))))  # inches: a character of 7.5 points takes 0.06
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
    """The MOST_LINES systems that differ most, in the given order."""

    def distance(system: str) -> float:
        found = differences[system].values()
        return abs(sum(one.difference for one in found) / len(found)) if found else 0.0

    kept = set(sorted(differences, key=distance, reverse=True)[:MOST_LINES])
    return {system: found for system, found in differences.items() if system in kept}


def _over(differences: Iterable[Difference]) -> str:
    """What the intervals are over; those of one seed do not cover other seeds."""
    found = {one.about for one in differences}
    spoken = [SPEAKS_OF[about] for about in SPEAKS_OF if about in found]
    return f" over {'; of some over '.join(spoken)}" if spoken else ""


def _span(differences: Iterable[Difference]) -> tuple[float, float]:
    """The ends of an axis that contains 0, all differences and all intervals."""
    ends = [0.0, *(end for one in differences for end in (one.low, one.high, one.difference) if end is not None)]
    pad = 0.06 * (max(ends) - min(ends) or 1.0)
    return min(ends) - pad, max(ends) + pad


def _lines(axes: Axes, differences: Sequence[Difference | None], span: tuple[float, float], *, size: float = 7.0) -> None:
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    # Black: the side of 0 shows the sign, and colours mean systems in the other figures.
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
        [difference.difference for _, difference in drawn], [place for place, _ in drawn], s=size**2,
        c=[INK if difference.is_significant else "white" for _, difference in drawn], edgecolors=INK, linewidths=size / 4.4, zorder=3,
    )  # fmt: skip
    axes.set_ylim(len(differences) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")


def _numbers(found: Difference) -> list[object]:
    return [found.difference, found.low, found.high, found.table_p, found.about]
