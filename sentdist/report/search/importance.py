"""Which fields of the space have to do with the dev score, by method, and what the report says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.colors import to_rgb

from sentdist.errors import counted
from sentdist.evaluation.importance import LEAST_TRIALS, Field, Importance, importances
from sentdist.plan.search import Axis
from sentdist.report.search.facts import SearchedMethod, SearchFacts, shown
from sentdist.report.style import INK, MUTED, Drawing, SystemStyles, canvas, house_style, save

NO_OPTUNA = "Importance of fields was not computed: Optuna is not installed here (`pip install optuna`)."


def method_importances(facts: SearchFacts) -> dict[str, list[Importance] | None]:
    """Name of a method -> importances of its fields; None where it has too few trials.

    Raises:
        ImportError: optuna is not installed.
    """
    return {method.name: _importances(facts, method) for method in facts.methods}


def importance_drawing(facts: SearchFacts, found: Mapping[str, Sequence[Importance] | None], *, styles: SystemStyles) -> Drawing | None:
    """A panel a method, a bar a field with its interval, and a mark beyond which luck seldom reaches; None where no method has enough
    trials."""
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
            "Which fields distinguish the best quarter of trials (PED-ANOVA), in shares of a method's fields. Line: 8 of 10 "
            "cases where a third of the trials is left out. Dashed: what luck alone passes in 1 of 20 searches, over all fields; bars "
            "that stay below are pale."
        )
        header = ["method", "field", "share", "low", "high", "by luck", "of the variance (fANOVA)", "beyond luck"]
        return save(figure, name="search-importance", caption=caption, header=header, records=records)


def importance_sentences(facts: SearchFacts, found: Mapping[str, Sequence[Importance] | None]) -> list[str]:
    """One a method."""
    said = []
    for method in facts.methods:
        by_share = found[method.name]
        if by_share is None:
            count = sum(trial.state == "finished" or trial.dev is not None for trial in method.trials)
            said.append(
                f"{method.title}: nothing is said of its fields. {counted(count, 'trial')} with scores: that takes {LEAST_TRIALS}."
                if count < LEAST_TRIALS
                else f"{method.title}: nothing is said of its fields, since its scores distinguish no field from another."
            )
            continue
        names = [f"{facts.short[one.field]} ({100 * one.share:.0f} %)" for one in by_share if one.is_significant]
        said.append(
            f"{method.title}: what distinguishes the best quarter is {' and '.join(names)}."
            if names
            else f"{method.title}: no field is distinguished from luck by {len(method.scored)} trials."
        )
    if facts.search.suggest == "tpe" and any(found.values()):
        said.append("TPE visits good places more often than others, and these shares know less of the places that it left out.")
    return said


def _importances(facts: SearchFacts, method: SearchedMethod) -> list[Importance] | None:
    """Over trials with a score, by their ranks: first by how far they were let go, then by dev, since scores at different shares of a
    training do not compare."""
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
