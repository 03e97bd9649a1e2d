"""How a finished sweep becomes the rows of a report: one an encoder and seed, folds averaged, with what its training was."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASKS
from sentdist.reading import drop_remedy, read_json_lines
from sentdist.report.cell_facts import CellFacts, cell_facts
from sentdist.report.figures import LearningCurve
from sentdist.report.score_rows import ResultRow, Scalar
from sentdist.report.seed_results import SeedResults, scores_of, seed_results
from sentdist.report.useb import RELATION, TASK_OF_COLUMN, has_useb, relations_of, useb_scores
from sentdist.store.curves import HISTORY_FILE
from sentdist.store.record import Record
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord

TASK_TITLES = {name: card.title for name, card in TASKS.items() if card.title is not None}
RETRIEVAL_TITLES = {"acc@1": "Acc@1", "acc@3": "Acc@3", "acc@5": "Acc@5", "map": "MAP", "mrr": "MRR", "ndcg@10": "nDCG@10"}

# Kinds of task that have one table, a column a task: its title.
KIND_TABLES = {kind.name: kind.table for kind in TASK_KINDS.values() if kind.table is not None}


@dataclass(frozen=True, kw_only=True)
class SweepRows:
    """All that a report of a sweep says numbers about."""

    sts: list[ResultRow]
    retrieval: dict[str, list[ResultRow]]  # task -> rows of its measures
    other: dict[str, list[ResultRow]]  # kind of task -> rows of its tasks
    facts: dict[str, CellFacts]  # by label
    useb: list[ResultRow]  # of the whole benchmark, where all of it was scored
    useb_by_relation: list[ResultRow]  # the same for each relation alone
    curves: list[LearningCurve]
    tasks: list[str]
    unfinished: list[TrialRecord] = field(default_factory=list)
    exploratory: dict[str, str] = field(default_factory=dict)  # label -> why it is no evidence


def sweep_rows(sweep: SweepRecord, store: ArtifactStore, records: dict[str, Record]) -> SweepRows:
    """Rows of every cell and seed all of whose folds have scores in the store; trials without scores are listed as unfinished. A mean over
    fewer folds would be another number, of other test items."""
    scores = scores_of(sweep, records)
    found = SweepRows(
        sts=[],
        retrieval={},
        other={},
        useb=[],
        useb_by_relation=[],
        facts={},
        curves=[],
        tasks=[],
        unfinished=[t for t in sweep.trials if t.key not in scores],
    )
    found.exploratory.update(_incomplete(sweep, scores))
    for one in seed_results(sweep, records):
        found.facts.setdefault(one.cell, cell_facts(one.trials[0], records))
        kinds = {kind: one.tasks(kind) for kind in ("sts", "retrieval", *KIND_TABLES)}
        for task in itertools.chain.from_iterable(kinds.values()):
            found.tasks.append(task) if task not in found.tasks else None
        if kinds["sts"]:
            found.sts.append(_row(one, store, records, _main_scores(kinds["sts"])))
        for task in kinds["retrieval"]:
            columns = {f"{task}:{measure}": (task, f"{task}.{measure}") for measure in RETRIEVAL_TITLES}
            found.retrieval.setdefault(task, []).append(_row(one, store, records, columns))
        for kind in KIND_TABLES:
            if kinds[kind]:
                found.other.setdefault(kind, []).append(_row(one, store, records, _main_scores(kinds[kind])))
        if has_useb([task.name for task in one.scores.tasks]):
            found.useb.append(_useb_row(one, store, records))
            found.useb_by_relation.extend(_by_one_relation(found.useb[-1], relation, one.results) for relation in relations_of(one.results))
        found.curves.extend(_curves(one, store, records))
    return found


def _incomplete(sweep: SweepRecord, scores: Container[str]) -> Iterator[tuple[str, str]]:
    """Cells of which some trials have no scores: whoever compares them compares what was left over."""
    for cell in dict.fromkeys(trial.cell for trial in sweep.trials):
        done = [trial.key in scores for trial in sweep.trials if trial.cell == cell]
        if not all(done):
            yield cell, f"{cell} has scores of {sum(done)} of its {len(done)} trials; the others were stopped early, failed or still run"


def shared_trainings(sweep: SweepRecord, records: dict[str, Record]) -> tuple[int, int, float]:
    """Trainings of encoders whose embeddings fill banks: how often trials mention them, as a part or for themselves, how many differ,
    and the seconds that building each once has spared."""
    mentions = sweep.mentions
    inputs_of_banks = {key for record in records.values() if record.kind == "bank" for key in record.inputs}
    entropy = {key for key in inputs_of_banks if key in records and records[key].kind == "train"}
    spared = sum((mentions[key] - 1) * records[key].seconds for key in entropy)
    return sum(mentions[key] for key in entropy), len(entropy), spared


def _main_scores(tasks: list[str]) -> dict[str, tuple[str, str]]:
    """Columns of tasks by their main scores, as `_row` takes them."""
    return {TASK_TITLES.get(task, task): (task, task) for task in tasks}


def _row(one: SeedResults, store: ArtifactStore, records: dict[str, Record], columns: dict[str, tuple[str, str]]) -> ResultRow:
    """One row of a cell and seed; columns: title -> (task, name of the result)."""
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
    """One row of the benchmark; items stand behind the columns that are single tasks read in one way."""
    columns = {} if relations_of(one.results) else {title: (task, task) for title, task in TASK_OF_COLUMN.items()}
    return replace(_row(one, store, records, columns), scores=useb_scores(one.results))


def _by_one_relation(row: ResultRow, relation: str, results: Mapping[str, float | None]) -> ResultRow:
    params = {**row.params, RELATION: relation}
    return replace(row, label=f"{row.label}, {relation}", params=params, items=None, scores=useb_scores(results, relation))


def _items_name(task: str) -> str:
    return f"items/{task}.parquet"


def _folder(record: Record, store: ArtifactStore, names: list[str]) -> Path:
    """The folder of an artifact of which only these files, where it has them, are read."""
    return store.folder(Artifact(record=record, uri=""), *(name for name in names if name in record.files))


def _curves(one: SeedResults, store: ArtifactStore, records: dict[str, Record]) -> Iterator[LearningCurve]:
    """The learning curve of the first fold (a mean over folds would mix different corpora)."""
    key = one.trials[0].train
    if key is None or key not in records or one.seed is None:
        return
    folder = _folder(records[key], store, [HISTORY_FILE])
    points = read_json_lines(folder / HISTORY_FILE, expected="the curve of a training", remedy=drop_remedy(folder))
    losses = [point for point in points if "loss" in point]
    scores = [point for point in points if point.get("dev_score") is not None]
    if losses:
        yield LearningCurve(
            label=one.cell,
            seed=one.seed,
            steps=[point["step"] for point in losses],
            losses=[point["loss"] for point in losses],
            dev_steps=[point["step"] for point in scores],
            dev_scores=[point["dev_score"] for point in scores],
        )
