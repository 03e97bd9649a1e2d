"""Figures of a sweep: differences with intervals, learning curves, grids, curves over one field, score against cost."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.ticker import MaxNLocator

from sentdist.evaluation.significance import Difference, Summary, summarize
from sentdist.report.comparisons import SPEAKS_OF, References, p_text
from sentdist.report.style import (
    DIVERGING,
    INK,
    MUTED,
    SEQUENTIAL,
    Drawing,
    SystemStyles,
    canvas,
    house_style,
    in_lines,
    legend_above,
    quiet,
    save,
    styles_of,
)

MOST_BINS = 120  # of steps, along a learning curve
MOST_LINES = 40  # of a panel of differences; the table has all
PANELS_A_ROW = 4
OVER_SEEDS = ("mean", "sd", "seeds")


def forest_plot(differences: Mapping[str, Difference], *, column: str, references: References, unit: str) -> Drawing:
    """Draw a line per system: difference from the reference with its 95 % interval, filled if p < 0.05.

    The scale includes every point and interval. Of many systems, those that differ most are drawn.
    """
    kept = set(sorted(differences, key=lambda system: abs(differences[system].difference), reverse=True)[:MOST_LINES])
    shown = {system: found for system, found in differences.items() if system in kept}
    own = references.own
    ends = [0.0, *(end for one in shown.values() for end in (one.low, one.high, one.difference) if end is not None)]
    pad = 0.06 * (max(ends) - min(ends) or 1.0)
    names = [textwrap.fill(system, 40) for system in shown]
    with house_style():
        lines = sum(one.count("\n") + 1 for one in names)
        figure, (axes,) = canvas(width=7.2, height=1.5 + 0.12 * len(names) + 0.2 * lines)
        _draw_lines(axes, list(shown.values()))
        axes.set_xlim(min(ends) - pad, max(ends) + pad)
        axes.set_yticks(range(len(names)), names)
        figure.supxlabel(textwrap.fill(f"{unit} from {references.words}", 90), fontsize=9, color=MUTED)
        about = [SPEAKS_OF[one] for one in SPEAKS_OF if one in {found.about for found in differences.values()}]
        over = f" over {'; of some over '.join(about)}" if about else ""
        caption = (
            f"Difference from {references.words}, with its 95 % interval{over}. Filled: p < 0.05; hollow: not, or untested. "
            "Intervals and p are corrected for all comparisons of the table."
        )
        caption += f" The {len(shown)} of {len(differences)} systems that differ most." if len(shown) < len(differences) else ""
        caption += f" {references.apart}" if references.apart else ""
        records = [
            [system, *([own[system]] if own else []), column, one.difference, one.low, one.high, one.table_p, one.about]
            for system, one in differences.items()
        ]
        header = ["system", *(["against"] if own else []), "task", "difference", "low", "high", "p over table", "speaks of"]
        return save(figure, name="differences", caption=caption, header=header, records=records)


def _draw_lines(axes: Axes, differences: Sequence[Difference]) -> None:
    """Draw a line per difference, black: the side of 0 shows the sign, and colours mean systems in the other figures."""
    axes.axvline(0, color=MUTED, linewidth=1, linestyle="--", zorder=1)
    for place, one in enumerate(differences):
        if one.low is not None and one.high is not None:
            axes.hlines(place, one.low, one.high, colors=[to_rgba(INK, 1.0 if one.is_significant else 0.45)], linewidths=2)
        axes.plot(one.difference, place, "o", color=INK if one.is_significant else "white", markeredgecolor=INK, markeredgewidth=1.4)
        said = f"{one.difference:+.2f}  " + ("no test" if one.table_p is None else f"p {p_text(one.table_p)}")
        axes.text(1.01, place, said, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    axes.set_ylim(len(differences) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """The curve of one run: loss (in units of its objective, mean over anchors) by step, and dev scores (× 100) at some steps."""

    label: str
    seed: int
    steps: Sequence[int]
    losses: Sequence[float]
    dev_steps: Sequence[int] = ()
    dev_scores: Sequence[float] = ()


def learning_curves(
    curves: Sequence[LearningCurve], *, dev_unit: str, styles: SystemStyles, objectives: Mapping[str, str], num_systems: int
) -> Drawing:
    """Draw loss and dev score against the step: per label the mean over seeds and a band of ± 1 sd.

    Losses are first averaged over bins of steps (at most MOST_BINS), since single batches are noisy.

    Args:
        objectives: label -> objective; each objective has its own units and panel.
        num_systems: number of all systems, if only the baseline and the best are drawn.
    """
    labels = list(dict.fromkeys(curve.label for curve in curves))
    kinds = list(dict.fromkeys(objectives.get(label, "") for label in labels))
    has_dev = any(curve.dev_steps for curve in curves)
    per_bin = max(1, -(-(max(max(curve.steps) for curve in curves) + 1) // MOST_BINS))
    rows = len(kinds) + has_dev
    records: list[list[object]] = []
    with house_style():
        figure, axes = canvas(width=7.2, height=1.2 + 1.7 * rows, rows=rows, sharex=True)
        for label in labels:
            runs = [curve for curve in curves if curve.label == label]
            losses = _by_step(_binned(curve, per_bin) for curve in runs)
            scores = _by_step(dict(zip(curve.dev_steps, curve.dev_scores, strict=True)) for curve in runs)
            panel = axes[kinds.index(objectives.get(label, ""))]
            for quantity, one, values in (("loss", panel, losses), ("dev score", axes[-1], scores)):
                if values:
                    marker = styles[label].marker if quantity == "dev score" else ""
                    found = _band(one, values, color=styles[label].color, marker=marker, label=label if one is panel else "")
                    records += [[quantity, label, step, *_numbers(summary)] for step, summary in found.items()]
        for one, kind in zip(axes, [*kinds, *([dev_unit] if has_dev else [])], strict=True):
            said = kind if has_dev and one is axes[-1] else f"loss:\n{kind}" if len(kinds) > 1 else "training loss"
            one.set_ylabel(in_lines(said, height_in=1.6))
            quiet(one)
        axes[-1].set_xlabel("optimizer step")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_above(figure, *axes[: len(kinds)])
        caption = f"Training loss{' and dev score' if has_dev else ''} against the step; band: ± 1 standard deviation over seeds."
        caption += f" Losses are averaged over {per_bin} steps." if per_bin > 1 else ""
        caption += " Each objective has its own panel, since their losses are not comparable." if len(kinds) > 1 else ""
        caption += f" {len(labels)} of {num_systems} trained systems: the baseline and the best." if len(labels) < num_systems else ""
        return save(figure, name="learning", caption=caption, header=["quantity", "label", "step", *OVER_SEEDS], records=records)


def _binned(curve: LearningCurve, per_bin: int) -> dict[int, float]:
    """Middle step of a bin -> mean loss of its steps."""
    bins: dict[int, list[float]] = {}
    for step, loss in zip(curve.steps, curve.losses, strict=True):
        bins.setdefault(step // per_bin, []).append(loss)
    return {number * per_bin + per_bin // 2: float(np.mean(losses)) for number, losses in bins.items()}


def _by_step(runs: Iterable[Mapping[int, float]]) -> dict[float, list[float]]:
    """Step -> values of the runs that have it; runs that stopped early have no later steps."""
    runs = list(runs)
    return {step: [run[step] for run in runs if step in run] for step in sorted({step for run in runs for step in run})}


def _band(
    axes: Axes, values: Mapping[float, Sequence[float]], *, color: str, marker: str = "", label: str = ""
) -> dict[float, Summary]:  # fmt: skip
    """Draw the mean of the values at each x, and a band of ± 1 sd."""
    found = {x: summarize(list(values[x])) for x in sorted(values)}
    means = np.array([one.mean for one in found.values()])
    spread = np.array([np.nan if one.sd is None else one.sd for one in found.values()])
    axes.fill_between(list(found), means - spread, means + spread, color=color, alpha=0.16, linewidth=0)
    axes.plot(list(found), means, color=color, marker=marker or None, markeredgecolor="white", label=label or None)
    return found


def _numbers(one: Summary) -> tuple[float, float | None, int]:
    return one.mean, one.sd, one.num_seeds


Series = Mapping[str, Mapping[float, Sequence[float]]]  # system -> x -> scores of seeds


def curves(panels: Mapping[str, Series], *, x: str, unit: str, name: str, caption: str) -> Drawing:
    """Draw scores against one field: a panel per title, a line per system with a band of ± 1 sd over seeds.

    All panels span the same number of points, so that slopes are comparable although levels (other encoder and data) are not.
    """
    found = {title: [summarize(list(scores)) for one in series.values() for scores in one.values()] for title, series in panels.items()}
    ends = {
        title: (min(one.mean - (one.sd or 0) for one in there), max(one.mean + (one.sd or 0) for one in there))
        for title, there in found.items()
    }
    half = 0.55 * max(max(high - low for low, high in ends.values()), 0.2)
    records: list[list[object]] = []
    with house_style():
        figure, axes = canvas(width=1.0 + 3.6 * len(panels), height=3.4, columns=len(panels))
        for one, (title, series) in zip(axes, panels.items(), strict=True):
            for label, style in styles_of(series).items():
                means = _band(one, series[label], color=style.color, marker=style.marker, label=label)
                records += [[title, label, at, *_numbers(summary)] for at, summary in means.items()]
            one.set_ylim(sum(ends[title]) / 2 - half, sum(ends[title]) / 2 + half)
            one.set_title(title)
            one.set_xlabel(x)
            quiet(one)
        axes[0].set_ylabel(in_lines(unit, height_in=2.4))
        if max(map(len, panels.values())) > 1:
            legend_above(figure, axes[0])
        caption = f"{caption} Line: mean over seeds; band: ± 1 standard deviation."
        return save(figure, name=name, caption=caption, header=["panel", "system", x, *OVER_SEEDS], records=records)


Cells = Mapping[tuple[str, str], Sequence[float]]  # (row, column) -> scores of seeds


def heat_map(
    panels: Mapping[str, Cells], *, titles: tuple[str, str], unit: str, name: str, caption: str, span: tuple[float, float] | None = None
) -> Drawing:
    """Draw the mean over seeds of every cell of a grid, a panel per title, on one scale; the best cell is bold.

    Args:
        titles: of rows and columns.
        span: ends of a scale that is white in the middle; None: from the lowest to the highest mean, of which the highest is the best.
    """
    found = {title: {cell: summarize(list(values)) for cell, values in cells.items()} for title, cells in panels.items()}
    rows, columns = (list(dict.fromkeys(cell[side] for cells in panels.values() for cell in cells)) for side in (0, 1))
    means = [one.mean for cells in found.values() for one in cells.values()]
    low, high = span or (min(means), max(max(means), min(means) + 1e-6))
    with house_style():
        width, letters = 1.2 + 0.75 * len(columns), max(map(len, rows))
        figure, axes = canvas(width=1.2 + 0.07 * letters + width * len(panels), height=1.5 + 0.45 * len(rows), columns=len(panels))
        for one, (title, cells) in zip(axes, found.items(), strict=True):
            grid = np.array([[cells[row, column].mean if (row, column) in cells else np.nan for column in columns] for row in rows])
            cmap = SEQUENTIAL if span is None else DIVERGING
            image = one.pcolormesh(grid, cmap=cmap, vmin=low, vmax=high, edgecolors="white", linewidth=2)
            for (place, row), (at, column) in itertools.product(enumerate(rows), enumerate(columns)):
                mean = cells[row, column].mean if (row, column) in cells else None
                share = 0.0 if mean is None else (mean - low) / (high - low)
                is_dark = share > 0.6 if span is None else abs(share - 0.5) > 0.35
                weight = "bold" if span is None and mean == max(means) else "normal"
                said = "–" if mean is None else f"{mean:.2f}"
                ink = "white" if is_dark else INK
                one.text(at + 0.5, place + 0.5, said, ha="center", va="center", color=ink, weight=weight, fontsize=8)
            one.set_xticks(np.arange(len(columns)) + 0.5, [textwrap.fill(column, 12) for column in columns], fontsize=8)
            one.set_yticks(np.arange(len(rows)) + 0.5, rows if one is axes[0] else [""] * len(rows))
            one.invert_yaxis()
            one.tick_params(length=0)
            one.spines[:].set_visible(False)
            one.set_title(title)
            one.set_xlabel(titles[1])
        axes[0].set_ylabel(titles[0])
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(in_lines(unit, height_in=0.45 * len(rows)), fontsize=8)
        records = [[title, *cell, *_numbers(one)] for title, cells in found.items() for cell, one in cells.items()]
        return save(figure, name=name, caption=caption, header=["panel", *titles, *OVER_SEEDS], records=records)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Scores and cost of one system.

    Args:
        scores: one per seed.
        alone_s: mean seconds × workers of a trial if it builds all its stages; `shared_s`: if shared stages are divided among trials.
        num_trials: seeds × folds.
    """

    system: str
    scores: Sequence[float]
    alone_s: float
    shared_s: float
    num_trials: int


def cost_plot(systems: Sequence[Cost], *, unit: str, work_unit: str, styles: SystemStyles) -> Drawing:
    """Draw the score against the compute of a trial: filled with stages shared as in this sweep, hollow if each trial builds its own."""
    summaries = [summarize(list(system.scores)) for system in systems]
    with house_style():
        figure, (axes,) = canvas(width=7.2, height=4.2)
        for system, score in zip(systems, summaries, strict=True):
            color, marker = styles[system.system].color, styles[system.system].marker
            axes.plot([system.shared_s, system.alone_s], [score.mean, score.mean], color=color, alpha=0.5, linewidth=1.2)
            axes.plot(system.alone_s, score.mean, marker, color="white", markeredgecolor=color, markersize=6)
            axes.errorbar(system.shared_s, score.mean, yerr=score.sd or 0.0, fmt=marker, color=color, markersize=7, label=system.system)
        axes.margins(0.08, 0.15)
        axes.set_xlabel(f"{work_unit} to train a trial, all its inputs included")
        axes.set_ylabel(in_lines(unit, height_in=3.0))
        quiet(axes)
        legend_above(figure, axes)
        alone, shared = (sum(getattr(system, side) * system.num_trials for system in systems) for side in ("alone_s", "shared_s"))
        caption = (
            "Score (± 1 standard deviation over seeds) against compute: filled with shared stages, hollow if every trial built its own. "
            f"All trials: {shared:,.0f} {work_unit} instead of {alone:,.0f}."
        )
        records = [[one.system, *_numbers(score), one.shared_s, one.alone_s] for one, score in zip(systems, summaries, strict=True)]
        header = ["system", *OVER_SEEDS, f"{work_unit} shared", f"{work_unit} alone"]
        return save(figure, name="cost", caption=caption, header=header, records=records)
