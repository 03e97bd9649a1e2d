"""Read what reports are made from: rows of scores and files of items of every encoder, and the facts on its training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentdist.corpora.kind import CorpusStage
from sentdist.evaluation.items import Items, items_of, joined
from sentdist.evaluation.sts import mean_of_all
from sentdist.files import drop_remedy, read_parquet
from sentdist.recipe.objectives import Sum, phi_of, terms_of
from sentdist.recipe.specs import EncoderSpec, Regularizers, View
from sentdist.recipe.stage import Json, as_number
from sentdist.recipe.stages import Bank, Scores, Train, chosen_and_scored
from sentdist.store.record import Record, restored
from sentdist.store.sweep import SweepRecord, TrialRecord, with_all_folds
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.task import Measure

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """The scores (× 100) of one encoder.

    Args:
        label: name in tables; rows of one label are the seeds of one system.
        params: fields that the sweep varied (φ set, batch size, p).
        scores: task -> score; None: not defined.
        items: task -> its parquet file of items, or one file per fold.
        is_fixed: an untouched checkpoint, with one score and no seeds.
    """

    method: str
    label: str
    params: Mapping[str, Scalar]
    seed: int
    scores: Mapping[str, float | None]
    items: Mapping[str, Path | tuple[Path, ...]] | None = None
    is_fixed: bool = False

    def mean(self, tasks: Sequence[str]) -> float | None:
        """Return the mean over these tasks; None if one of them has no score."""
        return mean_of_all(self.scores.get(task) for task in tasks)


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """The input of one table of scores.

    Args:
        columns: keys of `ResultRow.scores`: tasks, or measures of one task (`of_task`).
        measure: measure of all columns, or one with their range and unit.
        average: whether the table has an average over its columns.
        is_compared: whether its rows are compared with each other.
        task_of: column -> task of its test set, by which leaks are marked.
    """

    title: str
    rows: Sequence[ResultRow]
    columns: Sequence[str]
    measure: Measure
    average: bool
    is_compared: bool = True
    of_task: str = ""
    task_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SystemRows:
    """The rows of one system, one per seed, in ascending order of seeds."""

    label: str
    method: str
    params: Mapping[str, Scalar]
    is_fixed: bool
    rows: tuple[ResultRow, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(row.seed for row in self.rows)

    def complete(self, tasks: Sequence[str]) -> list[ResultRow]:
        """Return the rows with a score of every task."""
        return [row for row in self.rows if row.mean(tasks) is not None]


def group_rows(rows: Sequence[ResultRow]) -> list[SystemRows]:
    """Group rows by label, in order of first appearance."""
    by_label: dict[str, list[ResultRow]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    systems = []
    for label, members in by_label.items():
        first, *_ = ordered = tuple(sorted(members, key=lambda row: row.seed))
        # A duplicate would make differences look more certain than they are.
        assert len({row.seed for row in members}) == len(members) and not (first.is_fixed and len(members) > 1), f"seeds of {label}"
        assert all((row.method, row.is_fixed) == (first.method, first.is_fixed) for row in members), f"two systems are named {label}"
        systems.append(SystemRows(label=label, method=first.method, params=first.params, is_fixed=first.is_fixed, rows=ordered))
    return systems


def read_items(row: ResultRow, task: str) -> Items | None:
    """Return the items of a task, folds concatenated; None if the row has none or all items have one value."""
    if row.items is None or task not in row.items:
        return None
    paths = row.items[task]
    folds = []
    for path in (paths,) if isinstance(paths, Path) else paths:
        table = read_parquet(path, expected="items of a score", remedy=drop_remedy(path.parents[1]))
        columns = {name: table[name].to_numpy() for name in table.column_names}
        folds.append(items_of(columns, task=task, where=f"report: items of {row.label!r}, task {task!r}"))
    known = [fold for fold in folds if fold is not None]
    return joined(known) if len(known) == len(folds) else None


@dataclass(frozen=True, kw_only=True)
class SeedResults:
    """The results of a cell and seed with scores of all folds.

    Args:
        scores: stage of the first fold.
        results: numeric results, means over folds; None if a fold has none.
    """

    cell: str
    seed: int | None
    trials: tuple[TrialRecord, ...]
    scores: Scores
    results: Mapping[str, float | None]

    def tasks(self, kind: str) -> list[str]:
        """Return the names of the tasks of a kind that have a main score, user tasks included."""
        return [task.name for task in self.scores.tasks if task.kind == kind and task.name in self.results]


def scores_of(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, Scores]:
    """Return the scores stages of the finished trials, by key."""
    stages = {trial.key: restored(trial.key, records) for trial in sweep.trials}
    return {key: stage for key, stage in stages.items() if isinstance(stage, Scores)}


def seed_results(sweep: SweepRecord, records: Mapping[str, Record]) -> list[SeedResults]:
    """Return the results of every cell and seed with scores of all folds, in sweep order."""
    scores = scores_of(sweep, records)
    return [
        SeedResults(
            cell=cell,
            seed=seed,
            trials=trials,
            scores=scores[trials[0].key],
            results=means_over_folds([records[trial.key].results for trial in trials]),
        )
        for (cell, seed), trials in with_all_folds(sweep.trials, scores).items()
    ]


def means_over_folds(folds: Sequence[Mapping[str, Json]]) -> dict[str, float | None]:
    """Return the numeric results of one seed as means over folds; None if a fold has none."""
    named = [name for name, value in folds[0].items() if value is None or as_number(value) is not None]
    return {name: mean_of_all(as_number(results.get(name)) for results in folds) for name in named}


def lead_tasks(seeds: Sequence[SeedResults]) -> tuple[str, Sequence[str]]:
    """Return the name of a sweep's leading column and the tasks it averages: those of the report's first table, or one task."""
    for name, kind in TASK_KINDS.items():
        tasks = list(dict.fromkeys(task for one in seeds for task in one.tasks(name)))
        if tasks:
            return (f"average of {name}", tasks) if has_average(tasks) and not kind.measures_in_table else (tasks[0], tasks[:1])
    return "", ()


def has_average(tasks: Iterable[str]) -> bool:
    """Return whether these tasks, all of one kind, get an average: if there are at least two."""
    return len(set(tasks)) > 1


@dataclass(frozen=True, kw_only=True)
class CellFacts:
    """Training and scores stage of a cell's first trial, from their records.

    Args:
        train: None if nothing was trained, or its record is gone; its inputs may be `MissingStage`.
    """

    train: Train | None = None
    scores: Scores | None = None

    @property
    def untouched(self) -> EncoderSpec | None:
        """The encoder that was scored untrained; None: trained, or a lexical baseline."""
        return self.scores.encoder if self.scores is not None and isinstance(self.scores.encoder, EncoderSpec) else None

    @property
    def is_as_it_is(self) -> bool:
        """Whether a complete pretrained checkpoint was scored by plain cosine."""
        encoder = self.untouched
        return encoder is not None and encoder.initialization == "pretrained" and encoder.layers is None and self.view == View()

    @property
    def view(self) -> View:
        """How embeddings are scored (dropped channels, relations …)."""
        return View() if self.scores is None else self.scores.view

    @property
    def objective(self) -> str | None:
        return None if self.train is None else self.train.objective.name

    @property
    def phis(self) -> tuple[float, ...]:
        """φ of the entropy encoders that fill its banks; without banks, of the training itself."""
        if self.train is None:
            return ()
        known = [bank.encoder for bank in self.train.banks if isinstance(bank, Bank) and isinstance(bank.encoder, Train)]
        objectives = [encoder.objective for encoder in known] if self.train.banks else [self.train.objective]
        return tuple(phi for one in objectives if not isinstance(one, Sum) and (phi := phi_of(one)) is not None)

    @property
    def num_regulators(self) -> int:
        """Number of regulators of all banks together."""
        return 0 if self.train is None else len(self.phis) * sum(term.regulators_per_bank for term in terms_of(self.train.objective))

    @property
    def without_bank(self) -> str | None:
        """Name of its objective without regulators; None if there is none."""
        objective = None if self.train is None or isinstance(self.train.objective, Sum) else self.train.objective.without_bank
        return None if objective is None else objective.model_fields["name"].default

    @property
    def batch_size(self) -> int | None:
        return None if self.train is None else self.train.training.batch_size

    @property
    def regularizers(self) -> Regularizers | None:
        return None if self.train is None else self.train.regularizers

    @property
    def attention_dropout(self) -> float | None:
        return None if self.train is None else self.train.regularizers.attention_dropout

    @property
    def drophead(self) -> float:
        return 0.0 if self.train is None else self.train.regularizers.drophead

    @property
    def corpus(self) -> CorpusStage | None:
        """Training corpus; None: untouched, or its record is gone."""
        return self.train.corpus if self.train is not None and isinstance(self.train.corpus, CorpusStage) else None

    @property
    def source(self) -> str | None:
        """First source of its corpus."""
        return None if self.corpus is None else self.corpus.sources[0].source

    @property
    def chosen_on_test(self) -> tuple[str, ...]:
        """Tasks that chose the weights and are also scored."""
        return () if self.train is None or self.scores is None else chosen_and_scored(self.train.selection, self.scores.tasks)

    @property
    def line(self) -> str:
        """What a reader must know to compare a row with a printed one; "" for lexical baselines."""
        encoder = self.untouched if self.train is None else self.train.encoder
        if encoder is None:
            return ""
        parts = [encoder.checkpoint.rpartition("/")[2], "random weights" if encoder.initialization == "random" else "", encoder.pooling]
        if self.train is not None:
            training, selection = self.train.training, self.train.selection
            parts += [f"batch {training.batch_size}", f"epochs {training.epochs}", "encoder frozen" if training.freeze_encoder else ""]
            parts += ["last weights" if selection is None else f"selected on {selection.name}"]
            parts += [f"weights chosen by {' and '.join(self.chosen_on_test)}, which are scored"] if self.chosen_on_test else []
        is_best = self.view.relations is not None and self.view.relations.combine == "best"
        return ", ".join(filter(None, (*parts, "relation chosen by the test" if is_best else "")))


def cell_facts(trial: TrialRecord, records: Mapping[str, Record]) -> CellFacts:
    """Read the facts from a trial's records."""
    train, scores = restored(trial.train, records), restored(trial.key, records)
    return CellFacts(train=train if isinstance(train, Train) else None, scores=scores if isinstance(scores, Scores) else None)
