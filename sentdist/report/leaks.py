"""Find the systems of a sweep that were trained on test items, from the overlaps in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentdist.corpora.kind import CorpusStage
from sentdist.files import drop_remedy, read_parquet
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import Overlap, Scores, Train
from sentdist.store.record import Record, restored
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.sweep import SweepRecord
from sentdist.tasks.kinds import ScoredTask

LEAKS_TITLE = "Leaks"
# Name of each count in the record of an overlap -> its name in tables.
COUNTS = {"items": "items", "exact": "exact", "normalised": "folded", "near": "near", "sentences": "sentences", "one": "one sentence"}
LEAKS_HEADER = ("training data", "task", *COUNTS.values())
# Level of an item -> the column that counts it, if that has another name.
LEVEL_TITLES = {"normalised": COUNTS["normalised"], "sentence": COUNTS["sentences"], "one": COUNTS["one"]}
LEAKS_NOTE = (
    "Items of a test set (pairs, queries with a relevant document) that are in one row of the training data. Exact: as written. Folded: "
    "except for case, punctuation, order, entities, invisible and look-alike characters. Near: also with one word changed (in texts of 7 "
    "words or more), inside a longer text, or both texts joined into one. Each counts those before it. Sentences: items whose sentences "
    "all occur in the data (labelled texts also nearly). One sentence: other items with one sentence in the data, next to another text: "
    "of a pair, or the relevant answer of a query, which answers another query in training."
)
NOT_CHECKED = "Not checked for leakage: `sentdist plan RECIPE --leaks` compares training data with tests."


@dataclass(frozen=True, kw_only=True)
class Leaked:
    """Test items in the training data of a system: `num_leaked` of `num_items` pairs or queries, and `num_near` others nearly."""

    num_leaked: int
    num_items: int
    num_near: int = 0

    @property
    def words(self) -> str:
        """The text in the cell of a score."""
        whole = f"{self.num_leaked:,}" if self.num_leaked else ""
        near = f"{self.num_near:,} nearly" if self.num_near else ""
        return f"leaked {' and '.join(filter(None, (whole, near)))} of {self.num_items:,}"


@dataclass(frozen=True, kw_only=True)
class SweepLeaks:
    """The leaks of a sweep.

    Args:
        leaked: (cell, task) -> items in the cell's training data, as written, folded or nearly; only where there are some.
        rows: under LEAKS_HEADER.
        is_known: whether all training data were checked.
    """

    leaked: Mapping[tuple[str, str], Leaked]
    rows: tuple[tuple[str, ...], ...]
    is_known: bool

    def of_columns(self, columns: Sequence[str], task_of: Mapping[str, str]) -> dict[tuple[str, str], Leaked]:
        """Return `leaked` by (cell, column of a table); `task_of`: column -> task."""
        cells = dict.fromkeys(cell for cell, _ in self.leaked)
        found = {(cell, column): self.leaked.get((cell, task_of.get(column, ""))) for cell in cells for column in columns}
        return {place: leaked for place, leaked in found.items() if leaked is not None}


def sweep_leaks(sweep: SweepRecord, store: ArtifactStore, records: Mapping[str, Record]) -> SweepLeaks:
    """Collect the leaks of a sweep's finished trials from the overlaps in the store."""
    overlaps = [(overlap, restored(overlap.key, {overlap.key: overlap.record})) for overlap in current_overlaps(store)]
    leaked: dict[tuple[str, str], dict[ScoredTask, Leaked]] = {}  # each fold has its own task
    rows: dict[tuple[str, ...], None] = {}
    is_known = True
    for cell, trials in sweep.cells.items():
        for trial in (trial for trial in trials if trial.key in records and trial.train is not None):
            scores, train = restored(trial.key, records), restored(trial.train, records)
            built_on = () if train is None else topological((train,))
            corpora = {stage.key for stage in built_on if isinstance(stage, CorpusStage)}
            dev_tasks = [task for stage in built_on if isinstance(stage, Train) for task in stage.dev_tasks]
            of_these_tests = [
                (overlap, stage)
                for overlap, stage in overlaps
                if isinstance(stage, Overlap) and isinstance(scores, Scores) and stage.tasks == scores.tasks
            ]
            of_corpora = [overlap for overlap, _ in of_these_tests if set(overlap.record.inputs) & corpora]
            is_known = is_known and {key for overlap in of_corpora for key in overlap.record.inputs} >= corpora
            counts = _leaked(of_corpora, store)
            for task in scores.tasks if isinstance(scores, Scores) else ():
                if task.name in counts:
                    leaked.setdefault((cell, task.name), {})[task] = counts[task.name]
            dev_sets = [overlap for overlap, stage in of_these_tests if stage.of in dev_tasks]
            rows |= dict.fromkeys(row for overlap in (*of_corpora, *dev_sets) for row in leak_rows(overlap.record))
    together = {place: _together(parts.values()) for place, parts in leaked.items()}
    return SweepLeaks(
        leaked={place: one for place, one in together.items() if one.num_leaked + one.num_near}, rows=tuple(rows), is_known=is_known
    )


def _together(parts: Iterable[Leaked]) -> Leaked:
    """The counts of a test set, summed over its folds."""
    parts = tuple(parts)
    return Leaked(
        num_leaked=sum(one.num_leaked for one in parts),
        num_near=sum(one.num_near for one in parts),
        num_items=sum(one.num_items for one in parts),
    )


def current_overlaps(store: ArtifactStore) -> list[Artifact]:
    """Return the overlaps in the store that have the current revision."""
    return [one for one in store.artifacts(Overlap.kind) if one.record.stage["revision"] == Overlap.revision]


def leak_rows(overlap: Record) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one overlap under LEAKS_HEADER."""
    name = overlap.label if overlap.inputs else f"{overlap.label} (chooses weights)"
    for task, counts in _dict(overlap.results["tasks"]).items():
        numbers = _dict(counts)
        yield name, task, *(f"{numbers[part]:,}" for part in COUNTS)


def _leaked(overlaps: Sequence[Artifact], store: ArtifactStore) -> dict[str, Leaked]:
    """Task -> test items in any of these corpora, including tasks without any."""
    items: dict[str, dict[int, bool]] = {}  # item -> whether it was found only nearly
    sizes: dict[str, int] = {}
    for overlap in overlaps:
        sizes |= {task: int(str(_dict(counts)["items"])) for task, counts in _dict(overlap.record.results["tasks"]).items()}
        folder = store.folder(overlap, "items.parquet")
        table = read_parquet(folder / "items.parquet", columns=["task", "item", "level"], remedy=drop_remedy(folder))
        for task, item, level in zip(*(table[name].to_pylist() for name in ("task", "item", "level")), strict=True):
            if level in ("exact", "normalised", "near"):
                known = items.setdefault(task, {})
                known[item] = known.get(item, True) and level == "near"
    levels = {task: items.get(task, {}).values() for task in sizes}
    return {task: Leaked(num_leaked=len(found) - sum(found), num_near=sum(found), num_items=sizes[task]) for task, found in levels.items()}


def _dict(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value
