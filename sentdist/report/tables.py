"""What a table of results says: scores over seeds, what differs from what, who is best, and the sentences beneath it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sentdist.errors import DataError
from sentdist.evaluation.bootstrap import NUM_RESAMPLES, percentile_interval
from sentdist.evaluation.significance import Difference, Summary, in_words, summarize
from sentdist.report.comparisons import AVERAGE, Comparison, compare, tell_apart
from sentdist.report.items import ItemScores, item_scores
from sentdist.report.rows import ResultRow, Scalar, SystemRows, group_rows


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a mean lies at 95 %: over other training runs (`seeds`), or, for systems of one run, over other test items (`items`)."""

    low: float
    high: float
    unit: Literal["seeds", "items"]


@dataclass(frozen=True, kw_only=True)
class Leaked:
    """How much of a test set the training of a system held: `num_leaked` of its `num_items` pairs or queries, `num_near` others nearly."""

    num_leaked: int
    num_items: int
    num_near: int = 0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score of a table; summary None: not defined. standing: `best` of its column, `tied` with the best (no test tells them apart at
    5 %), or neither. leaked: what of the test its training data hold; None where nothing was found, or leaks were not looked for."""

    summary: Summary | None
    interval: Interval | None
    against_baseline: Difference | None
    against_preceding: Difference | None
    standing: str = ""
    leaked: Leaked | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One system of a table; `cells` has the tasks and, where asked for, the average. exploratory: why it is no evidence; "" if it is."""

    label: str
    method: str
    params: Mapping[str, Scalar]
    num_seeds: int
    is_fixed: bool
    is_baseline: bool
    exploratory: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True, kw_only=True)
class SharedStages:
    """How much of a sweep was shared: stages that its cells mention, stages that differ, and those that were already in the store."""

    name: str  # plural, as in "entropy encoders"
    num_mentioned: int
    num_different: int
    num_found: int = 0
    saved_s: float | None = None

    def sentence(self) -> str:
        """Plain words for the report."""
        spared = self.num_mentioned - self.num_different
        text = f"The sweep mentions {self.num_mentioned} {self.name}; "
        if not spared:
            text += "all of them differ, so nothing could be shared"
        else:
            text += f"only {self.num_different} of them differ, so {spared} trainings were never run"
            text += f" ({100 * spared / self.num_mentioned:.0f} % of them"
            text += f", about {_duration(self.saved_s)} of work)" if self.saved_s is not None else ")"
        if self.num_found:
            text += f"; {self.num_found} were already in the store"
        return text + "."


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """An aggregated table. `unit` names the score; `verdicts` say of each system in words how it compares with the baseline in the last
    column, `remarks` what else there is to say; `notes` explain the marks."""

    title: str
    unit: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    baseline: str | None
    comparisons: tuple[Comparison, ...]
    verdicts: Mapping[str, str]
    remarks: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What stands beneath the table."""
        return (*self.verdicts.values(), *self.remarks)

    def line(self, label: str) -> Line:
        """The line of one system."""
        return next(line for line in self.lines if line.label == label)


def build_table(
    rows: Sequence[ResultRow],
    *,
    title: str,
    tasks: Sequence[str],
    baseline: str | None,
    unit: str = "Spearman's correlation × 100",
    average: bool = True,
    preceding: bool = True,
    shared: SharedStages | None = None,
    exploratory: Mapping[str, str] | None = None,
    leaked: Mapping[tuple[str, str], Leaked] | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> ResultTable:
    """Aggregate rows into a table.

    `baseline` is the label of the row that stars refer to; `preceding` also tests each line against the one above it. exploratory: label ->
    why its rows are not all that were planned; fewer seeds than others have is found here. leaked: (label, task) -> how much of
    the test its training data hold. Raises DataError when the baseline is not among the rows, or a task is in none of them.
    """
    systems = group_rows(rows)
    _check(systems, tasks, baseline, title)
    columns = (*tasks, AVERAGE) if average else tuple(tasks)
    items = item_scores(systems, tasks, num_resamples=num_resamples)
    doubts = _doubts(systems, exploratory or {})
    to_baseline = [
        compare(system, other, relation="baseline", tasks=tasks, items=items)
        for system in systems
        for other in systems
        if other.label == baseline != system.label
    ]
    to_preceding = [
        compare(system, above, relation="preceding", tasks=tasks, items=items) for above, system in itertools.pairwise(systems) if preceding
    ]
    comparisons = (*to_baseline, *to_preceding)
    headline = AVERAGE if average else columns[-1]
    verdicts = {
        comparison.system: in_words(
            found,
            system=comparison.system,
            baseline=comparison.other,
            over_items=comparison.over_items.get(headline),
            exploratory="; ".join(doubt for label in (comparison.system, comparison.other) if (doubt := doubts.get(label))),
        )
        for comparison in to_baseline
        if (found := comparison.decisive(headline))
    }
    return ResultTable(
        title=title,
        unit=unit,
        columns=columns,
        lines=tuple(_lines(systems, columns, tasks, baseline, comparisons, items, doubts, leaked or {})),
        baseline=baseline,
        comparisons=comparisons,
        verdicts=verdicts,
        remarks=(shared.sentence(),) if shared else (),
        notes=tuple(_notes(systems, comparisons, tasks, unit=unit, baseline=baseline, average=average, items=items, leaked=leaked or {})),
    )


def _doubts(systems: Sequence[SystemRows], given: Mapping[str, str]) -> dict[str, str]:
    """label -> why it is exploratory: what was given, or fewer seeds than others have."""
    most = max((len(system.rows) for system in systems if not system.is_fixed), default=0)
    doubts = {}
    for system in systems:
        few = f"{system.label} has {_seeds(len(system.rows))}, others have {most}"
        is_short = not system.is_fixed and len(system.rows) < most
        if reason := given.get(system.label, few if is_short else ""):
            doubts[system.label] = reason
    return doubts


def _lines(
    systems: Sequence[SystemRows],
    columns: Sequence[str],
    tasks: Sequence[str],
    baseline: str | None,
    comparisons: Sequence[Comparison],
    items: ItemScores,
    doubts: Mapping[str, str],
    leaked: Mapping[tuple[str, str], Leaked],
) -> Iterator[Line]:
    found = {(comparison.relation, comparison.system): comparison for comparison in comparisons}
    standings = {column: _standings(systems, column, tasks, items) for column in columns}
    for system in systems:
        against_baseline, against_preceding = found.get(("baseline", system.label)), found.get(("preceding", system.label))
        yield Line(
            label=system.label,
            method=system.method,
            params=system.params,
            num_seeds=len(system.rows),
            is_fixed=system.is_fixed,
            is_baseline=system.label == baseline,
            exploratory=doubts.get(system.label, ""),
            cells={
                column: Cell(
                    summary=(summary := _summary(system, column, tasks)),
                    interval=_interval(system, summary, tasks if column == AVERAGE else (column,), items),
                    against_baseline=against_baseline.decisive(column) if against_baseline else None,
                    against_preceding=against_preceding.decisive(column) if against_preceding else None,
                    standing=standings[column].get(system.label, ""),
                    leaked=leaked.get((system.label, column)),
                )
                for column in columns
            },
        )


def _summary(system: SystemRows, column: str, tasks: Sequence[str]) -> Summary | None:
    scores = system.averages(tasks) if column == AVERAGE else system.scores(column)
    return summarize(scores) if scores else None


def _interval(system: SystemRows, summary: Summary | None, tasks: Sequence[str], items: ItemScores) -> Interval | None:
    if summary is None:
        return None
    if summary.low is not None and summary.high is not None:
        return Interval(low=summary.low, high=summary.high, unit="seeds")
    resampled = items.resampled_score(system.label, tasks)
    if resampled is None:
        return None
    low, high = percentile_interval(resampled)
    return Interval(low=low, high=high, unit="items")


def _standings(systems: Sequence[SystemRows], column: str, tasks: Sequence[str], items: ItemScores) -> dict[str, str]:
    """`best` and those whom no test tells from it, each at 5 % by itself; systems without any test are neither."""
    means = {system.label: summary.mean for system in systems if (summary := _summary(system, column, tasks))}
    if len(means) < 2:
        return {}
    best = max(means, key=lambda label: means[label])
    champion = next(system for system in systems if system.label == best)
    family = list(tasks) if column == AVERAGE else [column]
    rivals = [system for system in systems if system.label in means and system.label != best]
    found = [tell_apart(rival, champion, tasks=family, items=items) for rival in rivals]
    tied = {rival.label: "tied" for rival, one in zip(rivals, found, strict=True) if one and one.p is not None and one.p >= 0.05}
    return {best: "best", **tied}


def _notes(
    systems: Sequence[SystemRows],
    comparisons: Sequence[Comparison],
    tasks: Sequence[str],
    *,
    unit: str,
    baseline: str | None,
    average: bool,
    items: ItemScores,
    leaked: Mapping[tuple[str, str], Leaked],
) -> list[str]:
    seeds = sorted({len(system.rows) for system in systems if not system.is_fixed})
    spread = "" if seeds in ([], [1]) else f"; mean ± standard deviation over {_range(seeds)} seeds"
    notes = [f"{unit}{spread}."]
    notes.append(
        "[low, high]: 95 % interval of the mean over seeds (Student's t)"
        + ("; ⟨low, high⟩: of one run over other test items (bootstrap)." if items.resampled else ".")
    )
    if baseline is not None:
        notes.append(
            f"* p < 0.05, † p < 0.1 against {baseline}; ↓ before them: worse. Tests are two-sided, "
            "Holm-corrected over the columns" + ("; the average, one hypothesis of its own, is not corrected." if average else ".")
        )
    if any(comparison.relation == "preceding" for comparison in comparisons):
        notes.append("▲ (▼) better (worse) than the row above with p < 0.05; △ (▽) with p < 0.1.")
    notes.append("Bold: best of its column; underlined: not told apart from the best (tied: each pair at the 5 % level, uncorrected).")
    used = {found.test for comparison in comparisons for column in (*tasks, AVERAGE) if (found := comparison.decisive(column))}
    if "welch" in used:
        notes.append("Between trained systems: Welch's test, each seed one observation.")
    if "one-sample" in used:
        notes.append("Against an untouched checkpoint: one-sample t-test over seeds, the checkpoint's score being a constant.")
    if used & {"welch", "one-sample"}:
        notes.append(
            "Seeds needed: on each side that has seeds, if the difference and its spread are what they look like; an order of magnitude."
        )
    if 1 in seeds:
        notes.append(
            "One seed: no test over seeds. "
            + (
                "Where a system has one seed, marks come from the paired bootstrap over test items: they say that these runs differ on such "
                "sentences, not that other seeds would."
                if "bootstrap" in used
                else "Differences between such rows are not marked."
            )
        )
    if "bootstrap" in used:
        notes.append(f"Paired bootstrap: {items.num_resamples:,} resamples of the test items, ranks taken anew in each.")
    if leaked:
        notes.append(
            "Leaked: the test's pairs or queries that stand in the training data, as written or but for case and punctuation; near: with small changes."
        )
    incomplete = [] if not average else [system.label for system in systems if len(system.averages(tasks)) < len(system.rows)]
    if incomplete:
        notes.append(f"Some seed lacks a task, and is left out of the average: {', '.join(incomplete)}.")
    return notes


def _check(systems: Sequence[SystemRows], tasks: Sequence[str], baseline: str | None, title: str) -> None:
    labels = [system.label for system in systems]
    if not systems or not tasks:
        raise DataError(where=f"table {title!r}", found="no rows or no tasks", expected="at least one of each", remedy="Evaluate first.")
    if baseline is not None and baseline not in labels:
        raise DataError(
            where=f"table {title!r}: baseline", found=repr(baseline), expected=f"one of {labels}", remedy="Name the row by its label."
        )
    scored = {task for system in systems for row in system.rows for task in row.scores}
    unknown = [task for task in tasks if task not in scored]
    if unknown:
        raise DataError(
            where=f"table {title!r}: tasks", found=f"{unknown}, of which no row has a score", expected=f"some of {sorted(scored)}",
            remedy="Check the spelling, or evaluate this task.",
        )  # fmt: skip


def _seeds(number: int) -> str:
    return f"{number} seed{'' if number == 1 else 's'}"


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"up to {numbers[-1]}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
