"""Turn a finished sweep into the rows and tables of its report: one row per encoder and seed, folds averaged; USEB included."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.evaluation.relational import BY
from sentdist.evaluation.sts import mean_of_all
from sentdist.files import drop_remedy, read_json_lines
from sentdist.report.comparisons import AVERAGE
from sentdist.report.figures import LearningCurve
from sentdist.report.score_rows import (
    CellFacts,
    ResultRow,
    Scalar,
    SeedResults,
    TableRows,
    cell_facts,
    has_average,
    scores_of,
    seed_results,
)
from sentdist.store.record import Record
from sentdist.store.searches import HISTORY_FILE
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.tasks.cards import TASK_GROUPS, TASKS
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.task import Measure, TaskKind

TITLE = "Universal sentence embedding benchmark (USEB)"
TITLE_BY_RELATION = f"{TITLE}, each relation alone (RSE, Figure 5)"
RELATION = "relation"  # the parameter of rows that were scored by one relation
MEASURE = Measure(name="map", title="MAP", unit="mean average precision (TwitterPara: average precision) × 100")

# Tasks of the benchmark with the titles of RSE's Table 5: column of the mean if there are several parts, column of each part -> task.
_PARTS: tuple[tuple[str | None, Mapping[str, str]], ...] = (
    (None, {"AskUbuntu": "askubuntu"}),
    (None, {"CQADupStack": "cqadupstack"}),
    ("TwitterPara Avg", {"TURL": "twitter-url", "PIT": "twitter-pit"}),
    ("SciDocs Avg", {"Cite": "scidocs-cite", "CC": "scidocs-cocite", "CR": "scidocs-coread", "CV": "scidocs-coview"}),
)
COLUMNS = (*(column for mean, parts in _PARTS for column in (*parts, *([mean] if mean else []))), AVERAGE)
TASK_OF_COLUMN = {column: task for _, parts in _PARTS for column, task in parts.items()}
FOUR = tuple(mean or next(iter(parts)) for mean, parts in _PARTS)


def has_useb(tasks: Sequence[str]) -> bool:
    """Return whether the whole benchmark was scored."""
    return set(TASK_GROUPS["useb"]) <= set(tasks)


def useb_scores(results: Mapping[str, float | None], relation: str | None = None) -> dict[str, float | None]:
    """Return column -> score from the results of an evaluation (means over folds).

    If the tasks were scored by each relation alone, all parts of a task use the relation with the best mean over them, chosen on the test
    data as in RSE's table.

    Args:
        relation: use this relation for every task.
    """
    found: dict[str, float | None] = {}
    for mean, parts in _PARTS:
        rows = _by_relation(results, parts, relation)
        complete = {name: row for name, row in rows.items() if None not in row.values()}
        best = max(complete, key=lambda name: sum(one or 0.0 for one in complete[name].values())) if complete else next(iter(rows))
        found |= rows[best]
        if mean is not None:
            found[mean] = mean_of_all(rows[best].values())
    return found | {AVERAGE: mean_of_all(found[column] for column in FOUR)}


def relations_of(results: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return the relations by each of which the benchmark was scored."""
    first = f"askubuntu.{BY}"
    return tuple(name.removeprefix(first) for name in results if name.startswith(first))


def _by_relation(results: Mapping[str, float | None], parts: Mapping[str, str], relation: str | None) -> dict[str, dict[str, float | None]]:
    """Relation -> column -> score; one row under "" if there are no relations."""
    names = relations_of(results) if relation is None else (relation,)
    ends = {name: f".{BY}{name}" for name in names} or {"": ""}
    return {name: {column: results.get(f"{task}{end}") for column, task in parts.items()} for name, end in ends.items()}


TASK_TITLES = {name: card.title for name, card in TASKS.items() if card.title is not None}


@dataclass(frozen=True, kw_only=True)
class KindRows:
    """The rows of a table of one kind of tasks. task: the only task of the table; None: all tasks, a column each."""

    kind: TaskKind
    task: str | None = None
    rows: list[ResultRow]


@dataclass(frozen=True, kw_only=True)
class SweepRows:
    """All numbers that the report of a sweep needs."""

    kinds: list[KindRows]  # in the order of TASK_KINDS
    facts: dict[str, CellFacts]  # by label
    useb: list[ResultRow]  # empty unless the whole benchmark was scored
    useb_by_relation: list[ResultRow]  # the same for each relation alone
    curves: list[LearningCurve]
    tasks: list[str]
    unfinished: list[TrialRecord]
    exploratory: dict[str, str]  # label -> why it is no evidence

    def of_kind(self, kind: str, task: str | None = None) -> list[ResultRow]:
        """Return the rows of a kind of task, or of one task with its own table; [] if it was not scored."""
        return next((one.rows for one in self.kinds if (one.kind.name, one.task) == (kind, task)), [])


def sweep_rows(sweep: SweepRecord, store: ArtifactStore, records: dict[str, Record]) -> SweepRows:
    """Read the rows of every cell and seed with scores of all folds; trials without scores are listed as unfinished."""
    scores = scores_of(sweep, records)
    results = seed_results(sweep, records)
    kinds = [kind for kind in TASK_KINDS.values() if kind.table is not None]
    tasks = list(dict.fromkeys(task for result in results for kind in kinds for task in result.tasks(kind.name)))
    first_of_cell: dict[str, TrialRecord] = {}
    for result in results:
        first_of_cell.setdefault(result.cell, result.trials[0])

    def of_kind(kind: TaskKind) -> Iterator[KindRows]:
        if not kind.measures_in_table:
            rows = [_row(result, store, records, _main_scores(found)) for result in results if (found := result.tasks(kind.name))]
            yield KindRows(kind=kind, rows=rows)
            return
        for task in tasks:
            columns = {f"{task}:{measure}": (task, f"{task}.{measure}") for measure in kind.measures_in_table}
            rows = [_row(result, store, records, columns) for result in results if task in result.tasks(kind.name)]
            yield KindRows(kind=kind, task=task, rows=rows)

    of_useb = [(result, _useb_row(result, store, records)) for result in results if has_useb([task.name for task in result.scores.tasks])]
    return SweepRows(
        kinds=[one for kind in kinds for one in of_kind(kind) if one.rows],
        facts={cell: cell_facts(trial, records) for cell, trial in first_of_cell.items()}, useb=[row for _, row in of_useb],
        useb_by_relation=[_by_one_relation(row, name, result.results) for result, row in of_useb for name in relations_of(result.results)],
        curves=[curve for result in results for curve in _curves(result, store, records)], tasks=tasks,
        unfinished=[trial for trial in sweep.trials if trial.key not in scores], exploratory=dict(_incomplete(sweep, scores)),
    )  # fmt: skip


def table_rows(scored: SweepRows) -> Iterator[TableRows]:
    """Yield the tables of a sweep: one per kind of task (or per task, for some kinds), then USEB."""
    task_of = {TASK_TITLES.get(task, task): task for task in scored.tasks}
    for one in scored.kinds:
        title, columns = str(one.kind.table), list(one.rows[0].scores)
        if one.task is None:
            yield TableRows(
                title=title, rows=one.rows, columns=columns, task_of=task_of, measure=one.kind.main, average=has_average(columns)
            )
        else:
            yield TableRows(
                title=f"{title}: {one.task}", rows=one.rows, columns=columns, task_of=dict.fromkeys(columns, one.task),
                measure=one.kind.main, average=False, of_task=one.task,
            )  # fmt: skip
    if scored.useb:
        columns = list(COLUMNS)
        yield TableRows(title=TITLE, rows=scored.useb, columns=columns, task_of=TASK_OF_COLUMN, measure=MEASURE, average=False)
    if scored.useb_by_relation:
        yield TableRows(
            title=TITLE_BY_RELATION, rows=scored.useb_by_relation, columns=list(FOUR), task_of={},
            measure=MEASURE, average=True, is_compared=False,
        )  # fmt: skip


def _incomplete(sweep: SweepRecord, scores: Container[str]) -> Iterator[tuple[str, str]]:
    """(cell, why it is no evidence) of cells that lack scores of some trials: the remaining trials may be a biased choice."""
    for cell, trials in sweep.cells.items():
        done = [trial.key in scores for trial in trials]
        if not all(done):
            yield (cell, f"{cell} has scores of {sum(done)} of its {len(done)} trials; the others were stopped early, failed or still run")


def _main_scores(tasks: list[str]) -> dict[str, tuple[str, str]]:
    """The `columns` of `_row` for the main scores of tasks."""
    return {TASK_TITLES.get(task, task): (task, task) for task in tasks}


def _row(one: SeedResults, store: ArtifactStore, records: dict[str, Record], columns: dict[str, tuple[str, str]]) -> ResultRow:
    """The row of a cell and seed; columns: title -> (task, name of the result)."""
    first = one.trials[0]
    names = [_items_name(task) for task, _ in columns.values()]
    folders = [_folder(records[trial.key], store, names) for trial in one.trials]
    scores = {title: one.results.get(result) for title, (_, result) in columns.items()}
    items: dict[str, Path | tuple[Path, ...]] = {
        title: tuple(folder / _items_name(task) for folder in folders) for title, (task, _) in columns.items()
    }
    params: dict[str, Scalar] = {
        name: value if isinstance(value, str | int | float | bool) or value is None else json.dumps(value)
        for name, value in first.params.items()
    }
    return ResultRow(
        method=first.method, label=first.cell, params=params, seed=one.seed or 0, scores=scores, items=items, is_fixed=first.seed is None
    )


def _useb_row(one: SeedResults, store: ArtifactStore, records: dict[str, Record]) -> ResultRow:
    """The row of USEB; only columns of single tasks, not scored by relations, have items."""
    columns = {} if relations_of(one.results) else {title: (task, task) for title, task in TASK_OF_COLUMN.items()}
    return replace(_row(one, store, records, columns), scores=useb_scores(one.results))


def _by_one_relation(row: ResultRow, relation: str, results: Mapping[str, float | None]) -> ResultRow:
    params = {**row.params, RELATION: relation}
    return replace(row, label=f"{row.label}, {relation}", params=params, items=None, scores=useb_scores(results, relation))


def _items_name(task: str) -> str:
    return f"items/{task}.parquet"


def _folder(record: Record, store: ArtifactStore, names: list[str]) -> Path:
    """The folder of an artifact, with only these files (if it has them)."""
    return store.folder(Artifact(record=record, uri=""), *(name for name in names if name in record.files))


def _curves(one: SeedResults, store: ArtifactStore, records: dict[str, Record]) -> Iterator[LearningCurve]:
    """The learning curve of the first fold; a mean over folds would mix corpora."""
    key = one.trials[0].train
    if key is None or key not in records or one.seed is None:
        return
    folder = _folder(records[key], store, [HISTORY_FILE])
    points = read_json_lines(folder / HISTORY_FILE, expected="the curve of a training", remedy=drop_remedy(folder))
    losses = [point for point in points if "loss" in point]
    scores = [point for point in points if point.get("dev_score") is not None]
    if losses:
        yield LearningCurve(
            label=one.cell, seed=one.seed, steps=[point["step"] for point in losses], losses=[point["loss"] for point in losses],
            dev_steps=[point["step"] for point in scores], dev_scores=[point["dev_score"] for point in scores],
        )  # fmt: skip
