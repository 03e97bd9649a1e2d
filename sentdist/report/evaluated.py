"""Results of `evaluate` and `compare`: scores of an encoder with intervals, differences of two encoders, a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.errors import DataError, counted, listed
from sentdist.evaluation.items import Scored
from sentdist.evaluation.significance import Difference
from sentdist.evaluation.variation import Interval
from sentdist.files import drop_remedy, read_parquet
from sentdist.recipe.stage import Json, as_number
from sentdist.report.comparisons import AVERAGE, Comparison, TableColumns, compare, corrected, in_words, p_text, table_columns
from sentdist.report.score_rows import ResultRow, group_rows
from sentdist.tasks.cards import TASK_GROUPS
from sentdist.tasks.kinds import have_one_measure
from sentdist.tasks.names import scored_kinds, task_names
from sentdist.tasks.task import SATURATED, Measure

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class ScoreLine:
    """A task, or the average of a group of tasks (`num_items` 0).

    Args:
        score: × 100, except for measures that do not rank encoders.
        interval: 95 %, over other test items, for this encoder.
        num_items: pairs, texts or queries that were scored; `num_groups`: independent groups among them.
        left_out: items that were not scored, in words.
        why: reason why there is no score.
    """

    task: str
    measure: str
    score: float | None
    interval: Interval | None = None
    num_items: int = 0
    num_groups: int = 0
    left_out: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ComparedLine:
    """A task or the average: name of its measure, both scores × 100 and their difference."""

    task: str
    measure: str
    num_items: int
    ours: float
    theirs: float
    difference: Difference


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two encoders compared task by task, and in a sentence on the average (on each task if the measures differ)."""

    lines: tuple[ComparedLine, ...]
    sentence: str
    notes: tuple[str, ...]

    def __repr__(self) -> str:  # a notebook would show a page of numbers
        return f"Compared({counted(len(self.lines), 'line')}: {self.sentence})"


IT = "it"  # the label of a system that is alone
UNDEFINED = "its items have one gold value, or the encoder gives them one score"


def score_lines(given: Sequence[str], results: Mapping[str, Json], folder: Path) -> Iterator[ScoreLine]:
    """Yield a line per task, and after each group its average if its tasks have the same measure.

    Args:
        given: tasks and groups; rows of own=FILE by the names of their scores.
        results: results of the evaluation, `folder`: its files.
    """
    for name in dict.fromkeys(given):
        kinds = scored_kinds(TASK_GROUPS.get(name, (name,)))
        compared = {name: kind.main for name, kind in kinds.items() if kind.is_compared}
        it = scored(results, folder, compared)
        has_average = len(kinds) > 1 and have_one_measure(kind.name for kind in kinds.values())
        columns = table_columns(group_rows([_row(IT, it, compared)]), compared, average=has_average)
        for task, kind in kinds.items():
            if task not in compared:
                for one in kind.shown:
                    yield ScoreLine(task=task, measure=f"{one} (not × 100)", score=as_number(results[f"{task}.{one}"]))
                continue
            num_items, num_groups = columns.sizes.get(task, (0, 0))
            yield ScoreLine(
                task=task, measure=kind.main.name, score=it.scores[task], interval=columns.interval(task, IT),
                num_items=num_items, num_groups=num_groups, left_out=_left_out(*it.items[task]),
                why="" if it.scores[task] is not None else UNDEFINED,
            )  # fmt: skip
        if has_average:
            mean = float(columns.by_name[AVERAGE].means[0]) if AVERAGE in columns.by_name else None
            yield ScoreLine(
                task=f"average of {name}", measure=next(iter(compared.values())).name, score=mean, interval=columns.interval(AVERAGE, IT)
            )


def compared_measures(given: Sequence[str]) -> dict[str, Measure]:
    """Return the main measure of each task by which encoders can be compared; `given` names tasks and groups."""
    return {task: kind.main for task, kind in scored_kinds(task_names(given)).items() if kind.is_compared}


def scored(results: Mapping[str, Json], folder: Path, tasks: Iterable[str]) -> Scored:
    """Return the main scores of an evaluation with its files of items, from the results and folder of its record."""
    return Scored(
        scores={task: as_number(results.get(task)) for task in tasks},
        items={task: (folder / "items" / f"{task}.parquet",) for task in tasks},
    )


def compare_evaluated(labels: tuple[str, str], both: tuple[Scored, Scored], tasks: Mapping[str, Measure]) -> Compared:
    """Compare two encoders (first minus second) by the test that reports use; their labels must differ.

    Raises:
        DataError: no task has a score of both, or the test sets differ in version.
    """
    known = {task: measure for task, measure in tasks.items() if all(one.scores[task] is not None for one in both)}
    if not known:
        lacking = f"no score of both: {', '.join(tasks)} ({UNDEFINED})"
        raise DataError(where="comparison", found=lacking, expected="at least one", remedy="Name other tasks with --tasks.")
    rows = [_row(label, one, known) for label, one in zip(labels, both, strict=True)]
    have_one = len({measure.name for measure in known.values()}) == 1
    columns = table_columns(group_rows(rows), known, average=len(known) > 1 and have_one)
    found = compare(group_rows(rows), [labels], columns, relation="baseline", tasks=list(known))[0]
    lines = tuple(_compared_line(name, columns, found, labels) for name in columns.by_name)
    num_tests = sum(one.difference.p is not None for one in lines)
    sentence = in_words(found, lines[-1].task) if have_one else _task_by_task(lines, labels, known)
    absent = ", ".join(task for task in tasks if task not in known)
    notes = [one for one in (corrected(num_tests),) if one]
    if (beyond := found.other_tasks) is not None:
        low, high, p = beyond.low, beyond.high, p_text(beyond.p)
        notes.append(f"The average on other tasks like these: {low:+.2f} to {high:+.2f} (p {p}), not corrected.")
    notes += [f"Not compared (no score): {absent}."] if absent else []
    untested: dict[str, list[str]] = {}
    for line in lines[:-1] if have_one else lines:  # the sentence covers the last one
        if line.difference.p is None:
            untested.setdefault(line.difference.reason, []).append(line.task)
    notes += [f"Not tested: {', '.join(names)} ({reason})." for reason, names in untested.items()]
    return Compared(lines=lines, sentence=sentence, notes=(*notes, *columns.remarks))


def _compared_line(name: str, columns: TableColumns, found: Comparison, labels: tuple[str, str]) -> ComparedLine:
    column = columns.by_name[name]
    ours, theirs = (float(column.means[column.place(label)]) for label in labels)
    return ComparedLine(
        task=name, measure=columns.measures[name].name, num_items=columns.sizes.get(name, (0, 0))[0],
        ours=ours, theirs=theirs, difference=found.differences[name],
    )  # fmt: skip


def _task_by_task(lines: Sequence[ComparedLine], labels: tuple[str, str], measures: Mapping[str, Measure]) -> str:
    """The sentence for tasks that have no common mean; tasks without a test are reported elsewhere."""
    tested = [line for line in lines if line.difference.p is not None]
    significant = [line for line in tested if line.difference.is_significant]
    groups = {
        "better": [line for line in significant if line.difference.difference > 0],
        "worse": [line for line in significant if line.difference.difference <= 0],
        "not shown to differ": [line for line in tested if line not in significant],
    }
    words = {line.task: f"{line.task} ({measures[line.task].title} {line.difference.difference:+.2f})" for line in tested}
    found = "; ".join(f"{verdict} in {listed([words[line.task] for line in some])}" for verdict, some in groups.items() if some)
    apart = listed(list(dict.fromkeys(measure.title for measure in measures.values())))
    return f"{labels[0]} against {labels[1]}: {found or 'no task can be tested'}. No average: {apart} are different measures."


def _row(label: str, one: Scored, tasks: Iterable[str]) -> ResultRow:
    scores = {task: one.scores[task] for task in tasks}
    return ResultRow(method="evaluated", label=label, params={}, seed=0, scores=scores, items=one.items, is_fixed=True)


def _left_out(file: Path) -> str:
    """The items that were not scored, from the metadata of a file of items; "" in files of older versions."""
    return (_items(file).schema.metadata or {}).get(b"left_out", b"").decode()


def _items(file: Path) -> pa.Table:
    return read_parquet(file, expected="items of a score", remedy=drop_remedy(file.parents[1]))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A trained encoder compared with the untouched one on one task of held-out rows, by a test over other rows.

    Args:
        ours: score × 100 of the trained encoder, `theirs`: of the untouched one.
        saturated: measures that were skipped because both encoders reach their maximum.
    """

    task: str
    measure: str
    num_items: int
    ours: float
    theirs: float
    difference: Difference
    saturated: tuple[str, ...] = ()

    @property
    def outcome(self) -> Literal["better", "worse", "not shown to be better"]:
        """The outcome of the test at the 5 % level."""
        if not self.difference.is_significant:
            return "not shown to be better"
        return "better" if self.difference.difference > 0 else "worse"

    @property
    def line(self) -> str:
        """The verdict as a sentence."""
        found = self.difference
        interval = "" if found.low is None or found.high is None else f" (95 % interval {found.low:+.2f} to {found.high:+.2f})"
        can_show = self.outcome == "not shown to be better" and found.detectable is not None
        seen = f" A true difference of {found.detectable:.1f} points would be found in 4 of 5 tests like this one." if can_show else ""
        why = f" No test is possible: {found.reason}." if found.p is None and found.reason else ""
        full = f" ({' and '.join(self.saturated)} cannot tell them apart: both reach {SATURATED:g} or more.)" if self.saturated else ""
        return (
            f"{self.outcome.capitalize()} than the untouched encoder: {self.measure} {self.ours:.2f} "
            f"against {self.theirs:.2f} on {self.num_items:,} held-out items, {found.difference:+.2f}{interval}.{seen}{why}{full}"
        )


def verdict(ours: Scored, untouched: Scored, tasks: Mapping[str, Measure]) -> Verdict:
    """Compare an encoder with the untouched one on the first of `tasks` on which they are not both saturated.

    Raises:
        DataError: as `compare_evaluated`.
    """
    defined = {name: measure for name, measure in tasks.items() if None not in (ours.scores[name], untouched.scores[name])} or tasks
    full = [name for name in defined if min(ours.scores[name] or 0.0, untouched.scores[name] or 0.0) >= SATURATED]
    name = next((name for name in defined if name not in full), next(iter(defined)))
    line = compare_evaluated(("trained", "untouched"), (ours, untouched), {name: tasks[name]}).lines[0]
    return Verdict(
        task=name, measure=tasks[name].title, num_items=line.num_items, ours=line.ours, theirs=line.theirs, difference=line.difference,
        saturated=tuple(tasks[one].title for one in full),
    )  # fmt: skip
