"""Show which settings of a search matter: parallel coordinates of all trials, and the importance of each field."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.patheffects import withStroke

from sentdist.evaluation.search_statistics import LEAST_TRIALS, Field, Importance, importances
from sentdist.plan.search import Axis
from sentdist.plan.stage import Json
from sentdist.report.search.budgets import dev_span
from sentdist.report.search.facts import SearchedMethod, SearchFacts, shown
from sentdist.report.style import FAINT, INK, MUTED, Drawing, SystemStyles, canvas, house_style, save
from sentdist.store.searches import SearchTrial

CURVE = np.linspace(0.0, 1.0, 28)
MOST_TICKS = 9
WARMTH: Colormap = LinearSegmentedColormap.from_list("dev", ["#b9d7ea", "#6aaed2", "#1f78b4", "#08406f"])  # visible on white
BEST = "#D55E00"
FAILED_AT = -0.11  # where the lines of failed trials end, below the axis


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A vertical axis: positions of values (0 to 1) and its ticks."""

    title: str
    ticks: tuple[tuple[float, str], ...]
    spread: float  # how far lines of one value are moved apart, in both directions
    axis: Axis

    def at(self, value: Json) -> float:
        values = self.axis.values
        if self.axis.choice is not None:
            return _place([*self.axis.choice].index(_alike(value, self.axis.choice)), len(self.axis.choice))
        bounds = self.axis.integers or self.axis.uniform or self.axis.log
        assert bounds is not None and (isinstance(value, int | float)), values
        if self.axis.log is not None:
            return math.log(value / bounds[0]) / math.log(bounds[1] / bounds[0])
        return (value - bounds[0]) / (bounds[1] - bounds[0])


def parallel_drawing(facts: SearchFacts, method: SearchedMethod, *, order: Sequence[str], name: str) -> Drawing:
    """Draw every trial of a method as a line over its fields (`order`, left to right) to its dev score."""
    columns = [_column(facts.short[field], facts.axis(field)) for field in order]
    low, high = dev_span([trial.dev for trial in method.scored if trial.dev is not None])
    nudge = _nudges(method.trials)

    def line(trial: SearchTrial, end: float) -> np.ndarray:
        stops = [
            min(1.0, max(0.0, column.at(trial.suggestion[field]) + nudge[trial.number] * column.spread))
            for field, column in zip(order, columns, strict=True)
        ]
        return _curve([*stops, end])

    def dev_place(trial: SearchTrial) -> float:
        return max(0.0, ((trial.dev or 0.0) - low) / (high - low))

    failed, best = method.count("failed"), method.best
    with house_style():
        figure, (axes,) = canvas(width=max(5.4, 1.5 + 1.45 * (len(columns) + 1)), height=3.7)
        _draw_lines(axes, method, lambda trial: line(trial, FAILED_AT if trial.state == "failed" else dev_place(trial)), low=low)
        if best is not None:
            axes.annotate(f"{best.dev:.2f}", (len(columns), dev_place(best)), xytext=(7, 0), textcoords="offset points", va="center",
                          color=BEST, weight="bold", annotation_clip=False)  # fmt: skip
        for place, column in enumerate(columns):
            _draw_axis(axes, place, column.title, column.ticks)
        ticks = tuple(((value - low) / (high - low), f"{value:g}") for value in _round_values(low, high))
        _draw_axis(axes, len(columns), "dev", ticks, right=True, hide=None if best is None else dev_place(best))
        if failed:
            axes.annotate("failed", (len(columns), FAILED_AT), xytext=(7, 0), textcoords="offset points", va="center", fontsize=8,
                color=MUTED,
                          annotation_clip=False)  # fmt: skip
        axes.set_xlim(-0.3, len(columns) + 0.22)
        axes.set_ylim(FAILED_AT - 0.05 if failed else -0.05, 1.05)
        axes.set_title(method.title, pad=22)
        axes.set_axis_off()
        axes.title.set_visible(True)
        caption = (
            f"{method.title}: every trial over the fields that affect it, to its dev score; darker is better, orange is the best. "
            + " ".join(_legend(method, low))
        ).strip()
        header = ["trial", "state", *order, "dev"]
        rows = [[trial.number, trial.state, *(shown(trial.suggestion[field]) for field in order), trial.dev]
                for trial in method.trials]  # fmt: skip
        return save(figure, name=name, caption=caption, header=header, records=rows)


def _draw_lines(axes: Axes, method: SearchedMethod, line: Callable[[SearchTrial], np.ndarray], *, low: float) -> None:
    """Draw failed, pruned and finished trials, the best on top. line: (T, 2) points of a trial; low: lower end of the dev axis."""
    finished = sorted(_scored(method, "finished"), key=lambda trial: trial.dev or 0.0)
    scores = [trial.dev or 0.0 for trial in finished]
    norm = Normalize(min((score for score in scores if score >= low), default=low), max(trial.dev or 0.0 for trial in method.scored))
    failed = [line(trial) for trial in method.trials if trial.state == "failed"]
    pruned = [line(trial) for trial in _scored(method, "pruned")]
    axes.add_collection(LineCollection(failed, colors=MUTED, linewidths=0.9, linestyles=":"))
    axes.add_collection(LineCollection(pruned, colors=FAINT, linewidths=0.9, linestyles="--"))
    colors = [WARMTH(norm(score)) for score in scores]
    axes.add_collection(LineCollection([line(trial) for trial in finished], colors=colors, linewidths=1.5, capstyle="round", zorder=3))
    if (best := method.best) is not None:
        axes.add_collection(LineCollection([line(best)], colors="white", linewidths=5.0, zorder=4))
        axes.add_collection(LineCollection([line(best)], colors=BEST, linewidths=2.6, capstyle="round", zorder=5))


def _scored(method: SearchedMethod, state: str) -> list[SearchTrial]:
    return [trial for trial in method.scored if trial.state == state]


def _legend(method: SearchedMethod, low: float) -> Iterator[str]:
    if pruned := _scored(method, "pruned"):
        yield f"Dashed: {len(pruned)} pruned, up to their best dev score."
    if failed := method.count("failed"):
        yield f"Dotted: {failed} failed."
    if left_out := sum((trial.dev or 0.0) < low for trial in (*_scored(method, "finished"), *pruned)):
        yield f"{left_out} lie below the dev axis and end at its lower end."


def _column(title: str, axis: Axis) -> _Column:
    if axis.choice is not None:
        ticks = tuple((_place(number, len(axis.choice)), _cut(shown(value))) for number, value in enumerate(axis.choice))
        return _Column(title=title, ticks=ticks, spread=min(0.03, 0.25 / len(axis.choice)), axis=axis)
    plain = _Column(title=title, ticks=(), spread=0.0 if axis.values is None else 0.018, axis=axis)
    return _Column(title=title, ticks=tuple((plain.at(value), shown(value)) for value in _named(axis)), spread=plain.spread, axis=axis)


def _named(axis: Axis) -> list[Json]:
    """The values of the ticks: all if there are few, else the bounds and round values between them."""
    if axis.values is not None and len(axis.values) <= MOST_TICKS:
        return list(axis.values)
    if axis.log is not None:
        low, high = axis.log
        decades = [10.0**power for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]
        span = math.log(high / low)
        return [low, *(one for one in decades if math.log(one / low) > 0.08 * span and math.log(high / one) > 0.08 * span), high]
    bounds = axis.integers or axis.uniform
    assert bounds is not None
    return [value for value in _round_values(*bounds) if bounds[0] <= value <= bounds[1]]


def _round_values(low: float, high: float) -> list[float]:
    """Four to eight round numbers between two."""
    size = 10.0 ** math.floor(math.log10(high - low))
    step = next(size * share for share in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if (high - low) / (size * share) < 8)
    return [round(step * number, 10) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _draw_axis(
    axes: Axes, place: int, title: str, ticks: Sequence[tuple[float, str]], *, right: bool = False, hide: float | None = None
) -> None:
    """hide: position beside which no tick is labelled, because another label is there."""
    axes.vlines(place, 0, 1, color=INK, linewidth=1.0, zorder=6)
    axes.annotate(title, (place, 1), xytext=(0, 8), textcoords="offset points", ha="center", va="bottom", fontsize=8.5, color=INK,
                  weight="bold", annotation_clip=False)  # fmt: skip
    halo = [withStroke(linewidth=2.4, foreground="white")]
    for y, text in ticks:
        axes.plot([place - 0.012, place + 0.012], [y, y], color=INK, linewidth=1.0, zorder=6, solid_capstyle="butt")
        if hide is not None and abs(y - hide) < 0.06:
            continue
        axes.annotate(text, (place, y), xytext=(7 if right else -5, 0), textcoords="offset points", ha="left" if right else "right",
                      va="center", fontsize=7.5, color=MUTED, zorder=7, path_effects=halo, annotation_clip=False)  # fmt: skip


def _curve(stops: Sequence[float]) -> np.ndarray:
    """(T, 2) points of a line that is horizontal at every axis, with a smooth step between two stops."""
    ease = CURVE * CURVE * (3 - 2 * CURVE)
    parts = [np.column_stack([place + CURVE, one + (other - one) * ease]) for place, (one, other) in enumerate(itertools.pairwise(stops))]
    return np.concatenate(parts)


def _nudges(trials: Sequence[SearchTrial]) -> dict[int, float]:
    """An offset from -1 to 1 per trial, by its rank on dev, so that lines through one value lie side by side."""
    ranked = sorted(trials, key=lambda trial: (trial.dev is None, trial.dev or 0.0))
    return {trial.number: 2 * (place + 0.5) / len(ranked) - 1 for place, trial in enumerate(ranked)}


def _place(number: int, count: int) -> float:
    """The position of a choice on an axis from 0 to 1 with `count` choices."""
    return 0.5 if count == 1 else 0.06 + 0.88 * number / (count - 1)


def _alike(value: Json, choices: Sequence[Json]) -> Json:
    """The choice equal to a recorded value, which may be a list for a tuple, or 1.0 for 1."""
    return next(choice for choice in choices if shown(choice) == shown(value))


def _cut(text: str) -> str:
    return text if len(text) <= 16 else f"{text[:15]}…"


NO_OPTUNA = "Importance of fields was not computed: Optuna is not installed here (`pip install optuna`)."


def method_importances(facts: SearchFacts) -> dict[str, list[Importance] | None]:
    """Return name of a method -> importances of its fields; None if it has too few trials.

    Raises:
        ImportError: optuna is not installed.
    """
    return {method.name: _importances(facts, method) for method in facts.methods}


def importance_drawing(facts: SearchFacts, found: Mapping[str, Sequence[Importance] | None], *, styles: SystemStyles) -> Drawing | None:
    """Draw a panel per method, a bar with interval per field, and the level that luck rarely passes; None if all have too few trials."""
    panels = [(method, by_share) for method in facts.methods if (by_share := found[method.name])]
    if not panels:
        return None
    with house_style():
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        most = max(len(by_share) for _, by_share in panels)
        figure, every = canvas(width=3.7 * columns if columns > 1 else 5.6, height=rows * (1.0 + 0.34 * most), rows=rows, columns=columns)
        records: list[list[object]] = []
        for axes, (method, by_share) in zip(every, panels, strict=False):
            color = styles[method.title].color
            for place, one in enumerate(by_share):
                axes.barh(place, one.share, height=0.58, color=color if one.is_significant else _pale(color), linewidth=0, zorder=2)
                axes.plot([one.low, one.high], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt", zorder=3)
                records.append([method.title, one.field, one.share, one.low, one.high, one.by_luck, one.everywhere, one.is_significant])
            luck = min(by_share[0].by_luck, 1.0)
            axes.axvline(luck, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
            axes.set_yticks(range(len(by_share)), [facts.short[one.field] for one in by_share])
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.set_ylim(most - 0.4, -0.6)
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100 %"])
            axes.set_title(method.title)
            axes.spines["left"].set_visible(False)
            axes.grid(visible=True, axis="x")
        for axes in every[len(panels) :]:
            axes.set_visible(False)
        caption = (
            "Which fields distinguish the best quarter of trials (PED-ANOVA), as shares over a method's fields. Line: range in 8 of 10 "
            "cases if a third of the trials is left out. Dashed: level that luck alone passes in 1 of 20 searches, over all fields; "
            "bars below it are pale."
        )
        header = ["method", "field", "share", "low", "high", "by luck", "of the variance (fANOVA)", "beyond luck"]
        return save(figure, name="search-importance", caption=caption, header=header, records=records)


def importance_sentences(facts: SearchFacts, found: Mapping[str, Sequence[Importance] | None]) -> list[str]:
    """Return a sentence per method on the fields that matter."""
    said = []
    for method in facts.methods:
        by_share = found[method.name]
        if by_share is None:
            count = sum(trial.state == "finished" or trial.dev is not None for trial in method.trials)
            said.append(
                f"{method.title}: too few trials with scores ({count}) for importances: that takes {LEAST_TRIALS}."
                if count < LEAST_TRIALS
                else f"{method.title}: no importance, since its scores distinguish no field from another."
            )
            continue
        names = [f"{facts.short[one.field]} ({100 * one.share:.0f} %)" for one in by_share if one.is_significant]
        said.append(
            f"{method.title}: what distinguishes the best quarter is {' and '.join(names)}."
            if names
            else f"{method.title}: no field is distinguished from luck by {len(method.scored)} trials."
        )
    if facts.search.suggest == "tpe" and any(found.values()):
        said.append("TPE samples good regions more often, so these shares know less about the others.")
    return said


def _importances(facts: SearchFacts, method: SearchedMethod) -> list[Importance] | None:
    """Importances over trials with a score, by rank: first by rung reached, then by dev, since scores at different rungs do not compare."""
    trials = sorted(method.scored, key=lambda trial: trial.number)
    reached = [(trial.rungs[-1].share, trial.dev or 0.0) for trial in trials]
    places = {value: float(place) for place, value in enumerate(sorted(set(reached)))}
    fields = [_field(path, facts.axis(path)) for path in method.fields]
    values = [{path: _value(trial.suggestion[path], facts.axis(path)) for path in method.fields} for trial in trials]
    return importances(fields, values, [places[value] for value in reached])


def _pale(color: str) -> tuple[float, ...]:
    return tuple(1 - 0.35 * (1 - part) for part in to_rgb(color))


def _field(path: str, axis: Axis) -> Field:
    if axis.choice is not None:
        return Field(name=path, choices=tuple(shown(value) for value in axis.choice))
    low, high = axis.integers or axis.uniform or axis.log or (0.0, 0.0)
    return Field(name=path, low=float(low), high=float(high), is_log=axis.log is not None)


def _value(value: object, axis: Axis) -> float | str:
    if axis.choice is not None:
        return shown(value)  # type: ignore[arg-type]
    assert isinstance(value, int | float)
    return float(value)
