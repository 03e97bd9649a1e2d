"""Compare methods at equal budgets: expected best score by number of trials, best so far by cost, cost of each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from sentdist.evaluation.search_statistics import BAND, Floats, best_by_cost, best_quantiles, chance_of_more, expected_best
from sentdist.report.search.facts import SearchedMethod, SearchFacts, sentences
from sentdist.report.style import INK, MUTED, Drawing, SystemStyle, SystemStyles, canvas, house_style, in_lines, legend_columns, quiet, save
from sentdist.store.searches import SearchTrial

FILLED = {"finished": True, "pruned": False}  # how a trial with a dev score is drawn, by its state
BAND_WORDS = f"{100 * (BAND[1] - BAND[0]):.0f} of 100"


def best_drawing(facts: SearchFacts, *, dev_unit: str, styles: SystemStyles) -> Drawing:
    """Draw the expected best of n trials, and the best so far against the number of training sentences, a line per method."""
    methods = [method for method in facts.methods if method.scored]
    records: list[list[object]] = []
    with house_style():
        figure, (by_trials, by_cost) = canvas(width=7.4, height=3.7, columns=2)
        for method in methods:
            style, scores = styles[method.title], method.scores
            numbers = np.arange(1.0, len(scores) + 1)
            (low, high), expected = best_quantiles(scores, are_all=facts.is_exhausted(method)), expected_best(scores)
            _band(by_trials, numbers, low, high, style.color)
            by_trials.plot(numbers, expected, color=style.color, marker=style.marker, markevery=_marks(len(numbers)),
                markeredgecolor="white",
                           label=method.title)  # fmt: skip
            rows = zip(numbers.tolist(), expected.tolist(), low.tolist(), high.tolist(), strict=True)
            records += [[method.title, "trials", *row] for row in rows]
            found = best_by_cost([_or_none(trial) for trial in method.trials], method.costs)
            shown = np.isfinite(found.middle)
            lows = np.where(np.isfinite(found.low), found.low, found.middle)
            _band(by_cost, found.costs[shown], lows[shown], found.high[shown], style.color, step="post")
            by_cost.plot(found.costs[shown], found.middle[shown], color=style.color, drawstyle="steps-post")
            by_cost.plot(found.costs[-1], found.middle[-1], style.marker, color=style.color, markeredgecolor="white", zorder=4)
            points = zip(
                found.costs[shown].tolist(), found.middle[shown].tolist(), lows[shown].tolist(), found.high[shown].tolist(), strict=True
            )
            records += [[method.title, "sentences", *point] for point in points]
        by_trials.set_title("The best of n trials")
        by_trials.set_xlabel("trials")
        by_trials.set_ylabel(in_lines(dev_unit, height_in=2.4))
        by_trials.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        by_cost.set_title("The best so far by cost")
        by_cost.set_xlabel("sentences trained on")
        by_cost.xaxis.set_major_locator(MaxNLocator(5))
        by_cost.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
        low_end, high_end = min(expected_best(method.scores)[0] for method in methods), max(method.scores.max() for method in methods)
        for axes in (by_trials, by_cost):
            axes.set_ylim(low_end - 0.12 * max(high_end - low_end, 0.1), high_end + 0.07 * max(high_end - low_end, 0.1))
            axes.set_xlim(left=0)
            quiet(axes)
        by_cost.tick_params(axis="y", labelleft=False)
        titles = [method.title for method in methods]
        figure.legend(
            *by_trials.get_legend_handles_labels(), loc="outside upper left", ncols=legend_columns(titles, width_in=7.0, at_most=4)
        )
        caption = (
            f"Left: expected best dev score of n trials (unbiased; Tang et al. 2020), with the band that holds {BAND_WORDS} searches of n "
            "trials (Dodge et al. 2019); its right end is the luckiest trial, so the line meets the band's top there. Right: "
            f"median best so far over orders of the trials, band as before. {_counted_as(facts)}"
        )
        header = ["method", "by", "at", "best", "low", "high"]
        return save(figure, name="search-best", caption=caption, header=header, records=records)


def price_drawing(facts: SearchFacts, *, dev_unit: str, styles: SystemStyles) -> Drawing:
    """Draw the cost and dev score of every trial: finished, pruned or failed; the chosen ones are ringed."""
    methods = [method for method in facts.methods if method.trials]
    low_end, high_end = dev_span([score for method in methods for score in method.scores])
    floor = low_end + 0.02 * (high_end - low_end)
    hidden = sum((trial.dev or 0.0) < floor for method in methods for trial in method.scored if trial.state in FILLED)
    with house_style():
        figure, (axes,) = canvas(width=7.2, height=3.9)
        hover: dict[str, list[str]] = {}
        for number, method in enumerate(methods):
            aside = 1.05 ** (number - (len(methods) - 1) / 2)
            hover |= _draw_prices(axes, facts, method, styles[method.title], floor=floor, aside=aside, group=str(number))
        _cost_axis(axes, sorted({sentences(trial) for method in methods for trial in method.trials}))
        axes.set_ylim(low_end, high_end)
        axes.set_xlabel("sentences that the trial trains on")
        axes.set_ylabel(in_lines(dev_unit, height_in=2.8))
        quiet(axes)
        if any(method.count("pruned") for method in methods):
            axes.plot([], [], "o", color="white", markeredgecolor=MUTED, markersize=5.5, label="pruned")
        if any(method.count("failed") for method in methods):
            axes.plot([], [], "x", color=MUTED, markersize=6, label="failed")
        titles = [*(method.title for method in methods), "pruned", "failed"]
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=legend_columns(titles, width_in=7.0, at_most=6))
        caption = (
            "Dev score against cost, one point per trial. Filled: ran to its end; hollow: pruned, at its best dev score until then; ×: "
            f"failed; ringed: what dev chose for each method.{' Methods are shifted slightly.' if len(methods) > 1 else ''}{_below(hidden)}"
        )
        header = ["method", "trial", "state", "sentences", "seconds paid", "dev"]
        records: list[list[object]] = [
            [method.title, trial.number, trial.state, sentences(trial), round(trial.paid_s, 3), trial.dev]
            for method in methods
            for trial in method.trials
        ]
        return save(figure, name="search-price", caption=caption, header=header, records=records, hover=hover)


def _draw_prices(
    axes: Axes, facts: SearchFacts, method: SearchedMethod, style: SystemStyle, *, floor: float, aside: float, group: str
) -> dict[str, list[str]]:
    """Draw the trials of one method; return their tooltips by group. floor: lower end of the dev axis; aside: factor of the costs, so that
    methods do not cover each other."""
    hover: dict[str, list[str]] = {}
    for state, is_filled in FILLED.items():
        trials = [trial for trial in method.scored if trial.state == state]
        if not trials:
            continue
        hover[f"price-{state}-{group}"] = [
            f"trial {trial.number}, {facts.settings(trial.suggestion, method)}: {trial.dev:.2f}, {state}" for trial in trials
        ]
        axes.plot([aside * sentences(trial) for trial in trials], [max(trial.dev or 0.0, floor) for trial in trials], style.marker,
                  color=style.color if is_filled else "white", markeredgecolor="white" if is_filled else style.color,
                  markeredgewidth=0.8 if is_filled else 1.1, markersize=7 if is_filled else 5.5, alpha=1.0 if is_filled else 0.75,
                  gid=f"price-{state}-{group}", zorder=3 if is_filled else 2)  # fmt: skip
    failed = [trial for trial in method.trials if trial.state == "failed"]
    costs, scores = [aside * sentences(trial) for trial in failed], [max(trial.dev or floor, floor) for trial in failed]
    axes.plot(costs, scores, "x", color=style.color, markersize=6, markeredgewidth=1.4)
    axes.plot([], [], style.marker, color=style.color, markeredgecolor="white", markersize=7, label=method.title)
    if (chosen := _trial_of(method)) is not None and chosen.dev is not None:
        axes.plot(aside * sentences(chosen), chosen.dev, "o", color="none", markeredgecolor=INK, markeredgewidth=1.4, markersize=13,
                  zorder=4)  # fmt: skip
    return hover


def budget_rows(facts: SearchFacts) -> list[list[str]]:
    """Return the rows under `budget_header`: at 1, 2, 4 … trials the expected best of each method, the leader, how often it wins.

    A method that has tried all its settings keeps its best score; others have none beyond their number of trials.
    """
    methods = [method for method in facts.methods if method.scored]
    if not methods:
        return []
    counts = [len(method.trials) for method in methods]
    expected = {method.title: expected_best(method.scores) for method in methods}
    rows = []
    for number in sorted({*(2**power for power in range(max(counts).bit_length())), *counts}):
        there = [method for method in methods if number <= len(method.trials) or facts.is_exhausted(method)]
        at = {method.title: float(expected[method.title][min(number, len(method.trials)) - 1]) for method in there}
        row = [str(number), *(f"{at[method.title]:.2f}" if method.title in at else "–" for method in methods)]
        if len(methods) > 1:
            ranked = sorted(there, key=lambda method: -at[method.title])
            row += [ranked[0].title, _chance(facts, ranked[0], ranked[1], number)] if len(there) > 1 else ["–", "–"]
        rows.append(row)
    return [row for row in rows if int(row[0]) <= max(counts)]


def _chance(facts: SearchFacts, ours: SearchedMethod, theirs: SearchedMethod, number: int) -> str:
    share = chance_of_more(ours.scores, theirs.scores, number, are_all=(facts.is_exhausted(ours), facts.is_exhausted(theirs)))
    return f"{100 * share:.0f} of 100 against {theirs.title}"


def budget_header(facts: SearchFacts) -> list[str]:
    """Return the column titles of `budget_rows`."""
    methods = [method.title for method in facts.methods if method.scored]
    return ["trials", *methods, *(["ahead", "wins"] if len(methods) > 1 else [])]


def budget_sentence(facts: SearchFacts) -> str:
    """Return who is ahead from which number of trials on, in words; "" for fewer than two methods."""
    rows = [row for row in budget_rows(facts) if len(row) > 4 and row[-2] != "–"]
    if not rows:
        return ""
    leaders = [(row[0], row[-2]) for row in rows]
    changes = [one for place, one in enumerate(leaders) if not place or one[1] != leaders[place - 1][1]]
    if len(changes) == 1:
        said = f"{changes[0][1]} is ahead at every budget from 1 to {rows[-1][0]} trials"
    else:
        said = "; ".join(f"{title} is ahead from {_trials(number)} on" for number, title in changes)
    return f"On dev, {said}; at {_trials(rows[-1][0])} it wins {rows[-1][-1].replace(' of 100', ' of 100 searches')}."


def dev_span(scores: Sequence[float]) -> tuple[float, float]:
    """Return the range of the dev axis: up to the best score, and cut at the bottom so that failed trainings do not dominate it."""
    values = np.sort(np.asarray(scores, dtype=np.float64))
    high, middle = float(values[-1]), float(np.quantile(values, 0.4))
    low = max(float(values[0]), high - 2.2 * max(high - middle, 0.05))
    pad = 0.07 * max(high - low, 0.1)
    return low - pad, high + pad


def count_text(value: float) -> str:
    """Return a short form of a count: `250k`, `1.5M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _band(axes: Axes, x: Floats, low: Floats, high: Floats, color: str, *, step: Literal["post"] | None = None) -> None:
    axes.fill_between(x, low, high, color=color, alpha=0.09, linewidth=0, step=step)
    for edge in (low, high):
        axes.plot(x, edge, color=color, alpha=0.4, linewidth=0.7, drawstyle="default" if step is None else "steps-post")


def _cost_axis(axes: Axes, costs: Sequence[int]) -> None:
    """Set up the cost axis: logarithmic if costs differ much, with ticks at the costs if there are at most six."""
    if costs[0] > 0 and costs[-1] > 3 * costs[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        few = FixedLocator([float(cost) for cost in costs]) if len(costs) <= 6 else LogLocator(subs=(1.0, 2.0, 5.0))
        axes.xaxis.set_major_locator(few)
    else:
        axes.set_xlim(0, 1.1 * max(costs[-1], 1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))


def _marks(count: int) -> list[int]:
    """Places of markers: 1, 2, 4, … and the last."""
    return sorted({*(2**power - 1 for power in range(count.bit_length()) if 2**power <= count), count - 1})


def _or_none(trial: SearchTrial) -> float:
    return float("-inf") if trial.dev is None else trial.dev


def _trial_of(method: SearchedMethod) -> SearchTrial | None:
    """The trial of the method's chosen finalist; before there are finalists, its best trial."""
    if method.chosen is None:
        return method.best
    return next((trial for trial in method.trials if trial.number == method.chosen.finalist.number), None)


def _counted_as(facts: SearchFacts) -> str:
    said = [
        "Trials count as independent draws."
        if facts.search.suggest != "tpe"
        else "TPE suggestions depend on earlier trials: this is over orders of these trials."
    ]
    if any(method.count("pruned") for method in facts.methods):
        said.append("A pruned trial counts with its best dev score until then.")
    if any(method.count("failed") for method in facts.methods):
        said.append("A failed trial counts with its best score until then; without a score it only adds cost.")
    return " ".join(said)


def _below(count: int) -> str:
    return f" {count} lie below and are drawn at the lower edge." if count else ""


def _trials(number: str) -> str:
    return f"{number} trial{'' if number == '1' else 's'}"
