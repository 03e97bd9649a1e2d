"""Read the tables that papers printed (`papers/*.yaml`) and match our cells to their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sentdist.corpora.graded import GradedCorpus
from sentdist.corpora.relations import RelationalCorpus
from sentdist.corpora.rows import RowsCorpus
from sentdist.objectives.regression import Regression
from sentdist.recipe.objectives import terms_of
from sentdist.recipe.shipped import PAPERS
from sentdist.recipe.specs import View
from sentdist.recipe.stages import Train
from sentdist.recipe.wording import parsed_yaml
from sentdist.report.comparisons import AVERAGE
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows, means_over_folds
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, with_all_folds
from sentdist.tasks.kinds import TASK_KINDS

STS_COLUMNS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", AVERAGE)
FOLDER = Path(__file__).parent / "papers"


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One printed row.

    Args:
        scores: × 100, in the order of the table's columns.
        starred: columns printed with a star (p < 0.05).
        printed: column -> misprinted number; `scores` then has what it must have meant.
        recipe: the recipe that reproduces it; None: none does.
        ours: the values of a cell of ours that reproduces it (`cell_values`); None: no cell does.
        results: name of our scores without the measure, of a table with `kind`.
    """

    label: str
    scores: tuple[float, ...]
    starred: Sequence[str] = ()
    printed: Mapping[str, float] = field(default_factory=dict)
    recipe: str | None = None
    ours: Mapping[str, Any] | None = None
    results: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One printed table.

    Args:
        notes: misprints and doubts.
        base: label of the row that gains are measured from; None: there is none.
        title_of_ours: title of our table, if the columns are ambiguous (two benchmarks have a column CR).
        also: our column -> printed column that it also reproduces, if the paper scored its rows that way.
        kind: kind of the task whose results reproduce it, if our tables do not have its columns.
    """

    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    notes: Sequence[str] = ()
    base: str | None = None
    title_of_ours: str | None = None
    also: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None

    @property
    def by_label(self) -> dict[str, PaperRow]:
        return {row.label: row for row in self.rows}

    def columns_in(self, columns: Sequence[str]) -> dict[str, str]:
        """Return printed column -> our column; averages are compared only over the same tasks."""
        known = {printed: ours for ours, printed in self.also.items() if ours in columns}
        tasks = set(self.columns if len(self.columns) > 1 else STS_COLUMNS) - {AVERAGE}
        is_same = {known.get(task, task) for task in tasks} == set(columns) - {AVERAGE}
        found = {printed: known.get(printed, printed) for printed in self.columns}
        return {printed: ours for printed, ours in found.items() if ours in columns and (ours != AVERAGE or is_same)}

    def also_line(self, columns: Sequence[str]) -> str:
        """Return in words whether our table has the columns of `also`; "" if there are none."""
        if not self.also:
            return ""
        return f"{'with' if set(self.also) <= set(columns) else 'without'} {' and '.join(self.also)}"

    def matches(self, cells: Mapping[str, CellFacts]) -> dict[str, str]:
        """Return our label -> printed row that it reproduces."""
        found = {}
        for label, cell in cells.items():
            values = cell_values(cell)
            row = next((row.label for row in self.rows if row.ours is not None and meets(values, row.ours)), None)
            if row is not None:
                found[label] = row
        return found

    def base_label(self, matches: Mapping[str, str]) -> str | None:
        """Return our label of the row that gains are measured from."""
        return next((label for label, row in matches.items() if row == self.base), None)


@dataclass(frozen=True, kw_only=True)
class PaperTables:
    """The tables of a paper.

    Args:
        regulators: number of regulators -> printed score, for the curve in a sweep's report.
    """

    title: str
    tables: Mapping[str, PaperTable]
    regulators: Mapping[int, float] | None = None

    def our_rows(self, cells: Mapping[str, CellFacts]) -> dict[str, dict[str, str]]:
        """Return table -> our label -> printed row, of the tables whose columns our tables have."""
        return {number: table.matches(cells) for number, table in self.tables.items() if table.kind is None}


def tables_from_results(
    paper: PaperTable, sweep: SweepRecord, records: Mapping[str, Record], cells: Mapping[str, CellFacts]
) -> Iterator[tuple[ResultTable, dict[str, str]]]:
    """Yield our tables of a printed one with `kind` (retrieval of questions, links), and our label -> printed row; means over folds."""
    if paper.kind is None:
        return
    for results in dict.fromkeys(row.results for row in paper.rows):
        matches = replace(paper, rows=tuple(row for row in paper.rows if row.results == results)).matches(cells)
        columns = {title: f"{results}.{title.lower()}" for title in paper.columns}
        rows = [row for row in fold_means(sweep, records, columns) if row.label in matches]
        if rows:
            measure = TASK_KINDS[paper.kind].main
            given = TableRows(title=paper.caption, rows=rows, columns=paper.columns, measure=measure, average=False, is_compared=False)
            yield build_table(given, baseline=None), matches


def fold_means(sweep: SweepRecord, records: Mapping[str, Record], columns: Mapping[str, str]) -> list[ResultRow]:
    """Return a row per cell and seed with means over folds; `columns`: title -> name of the result. Incomplete cells are left out."""
    found = []
    for (label, seed), trials in with_all_folds(sweep.trials, records).items():  # the mean over some folds is another number
        results = means_over_folds([records[trial.key].results for trial in trials])
        scores = {title: score for title, name in columns.items() if (score := results.get(name)) is not None}
        if len(scores) == len(columns):
            found.append(ResultRow(method=trials[0].method, label=label, params={}, seed=seed or 0, scores=scores, is_fixed=seed is None))
    return found


@cache
def tables_of(name: str) -> PaperTables:
    """Return the tables of a paper of `plan/shipped.py`."""
    assert name in PAPERS, name
    paper = _read(FOLDER / "papers.yaml")[name]
    tables = {number: _table(_read(FOLDER / name / f"{file}.yaml"), number) for number, file in paper["tables"].items()}
    regulators = paper.get("regulators")
    curve = None if regulators is None else {int(row.label): row.scores[0] for row in tables[regulators].rows}
    return PaperTables(title=paper["title"], tables=tables, regulators=curve)


def _table(given: dict[str, Any], number: str) -> PaperTable:
    """Make the table that a file describes; a key that no field reads is a TypeError."""
    scores, ours, shared = given.pop("rows"), given.pop("ours"), given.pop("all_of_ours", {})
    starred, misprinted = given.pop("starred", {}), given.pop("misprinted", {})
    recipe, recipes, results = given.pop("recipe"), given.pop("recipes", {}), given.pop("results", "")
    rows = tuple(
        PaperRow(
            label=label,
            scores=tuple(row),
            starred=starred.get(label, ()),
            printed=misprinted.get(label, {}),
            recipe=recipes.get(label, recipe) if label in ours else None,
            ours=_conditions(ours, label, shared) if label in ours else None,
            results=results if isinstance(results, str) else results[label],
        )
        for label, row in scores.items()
    )
    return PaperTable(**{"number": number, **given, "columns": tuple(given["columns"]), "rows": rows})


def _conditions(ours: Mapping[str, Any], label: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a cell must have for a row; `like` names a row whose conditions it has, too."""
    own = dict(ours[label])
    return {**shared, **ours.get(own.pop("like", None), {}), **own}


def _read(path: Path) -> Any:
    return parsed_yaml(path.read_text(encoding="utf-8"), where=path.name, expected="YAML", remedy="Correct the file.")


def cell_values(cell: CellFacts) -> dict[str, Any]:
    """Return the values by name; `start` has those of the training that the cell's training continues."""
    encoder = cell.untouched if cell.train is None else cell.train.encoder
    checkpoint = "" if encoder is None else encoder.checkpoint.lower()
    scoring = cell.view.relations
    return {
        "is_as_it_is": cell.is_as_it_is,
        "encoder": encoder,
        "checkpoint": checkpoint.rpartition("/")[2],
        "encoder_family": "RoBERTa" if "roberta" in checkpoint else "BERT",  # encoders that the papers do not have count as BERT-base
        "encoder_size": "large" if "large" in checkpoint else "base",
        "phis": cell.phis,
        "attention_dropout": cell.attention_dropout,
        "drophead": cell.drophead,
        "channels": _channels(cell.view),
        "relation_weights": None if scoring is None else {name: weight for name, weight in scoring.by_name.items() if weight},
        "combine": None if scoring is None else scoring.combine,
        **({} if cell.train is None else _of_training(cell.train)),
    }


def meets(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Return whether every value, named by a dotted path, is the one that a condition wants; what a cell lacks is None."""
    return all(_value(values, path) == wanted for path, wanted in conditions.items())


def regression_of(cell: CellFacts) -> Regression | None:
    """Return the regression that a cell was trained by; None if it was another objective, or nothing was trained."""
    objective = None if cell.train is None else cell.train.objective
    return objective if isinstance(objective, Regression) else None


def _value(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else getattr(values, name, None)
    return list(values) if isinstance(values, tuple) else values


def _of_training(train: Train) -> dict[str, Any]:
    start = _of_training(train.start) if isinstance(train.start, Train) else None
    terms = {term.name: term for term in terms_of(train.objective)}
    return {
        "objective": train.objective,
        "term": terms,
        "terms": sorted(terms),
        "training": train.training,
        "start": start,
        "continues": train.start is not None,
        "ever_frozen": train.training.freeze_encoder or (start is not None and start["ever_frozen"]),
        "corpus": train.corpus,
        **_of_corpus(train.corpus),
    }


def _of_corpus(corpus: object) -> dict[str, Any]:
    match corpus:
        case RowsCorpus(columns=columns):  # "aa": each sentence with itself; "abc": triplets
            return {"columns": "".join("abc"[columns.index(column)] for column in columns)}
        case RelationalCorpus():
            return {"relations": sorted(corpus.relation_names)}
        case GradedCorpus(parts=parts):
            return {
                "sources": sorted({part.source for part in parts}),
                "scales": sorted({part.scale for part in parts}),
                "is_filtered": bool(corpus.without),
            }
    return {"is_filtered": False}


def _channels(view: View) -> str:
    """Which part of the embedding is scored."""
    if view.channels is None:
        return "whole"
    return "tags" if view.channels == "tags" or (view.channels != "words" and view.channels[0] == 0) else "words"
