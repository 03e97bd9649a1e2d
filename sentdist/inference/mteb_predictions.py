"""What mteb has kept of single items (its folders of predictions), as scored items: encoders that mteb has run are compared by our test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentdist.data.task_texts import TaskTexts, shared_groups
from sentdist.errors import DataError, named
from sentdist.evaluation.items import GROUP, SHARED, Scored
from sentdist.evaluation.means import mean_of_all
from sentdist.inference.mteb_items import NotComparedError, OtherRowsError, PredictionKind, ScoredPart, kind_of
from sentdist.inference.mteb_tasks import abstask, loading_data, mteb_tasks
from sentdist.plan.measures import Measure
from sentdist.reading import read_json, read_parquet

ENDING = "_predictions.json"
_Grouped = tuple[TaskTexts, NDArray[np.int64]]  # what a task tests, with the groups of its items
_Answers = Mapping[tuple[str, str], Any]  # of (subset, split): what mteb has kept
_META = "mteb_model_meta"  # the one key of a file that is no subset
_MOST_BYTES = 4 * 2**30  # a thousand documents for each of a hundred thousand queries; in memory five times as much
_AGAIN = "Run both again with one version of mteb (prediction_folder=…), or `sentdist evaluate ENCODER --mteb TASK --out DIR`."


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The predictions of one encoder: a file for each task, as written by `evaluate(…, prediction_folder=…)` of mteb, or by our `--out`."""

    folder: Path
    files: Mapping[str, Path]

    @classmethod
    def of(cls, name: str) -> Self | None:
        """The predictions in a folder or below it; None for what is no folder of mteb's.

        Raises:
            DataError: results without predictions, or predictions of several encoders.
        """
        given = Path(name)
        if not name or not given.is_dir() or (given / "config.json").exists():  # an encoder
            return None
        found = sorted(given.rglob(f"*{ENDING}"))
        folders = list(dict.fromkeys(path.parent for path in found))
        if len(folders) > 1:
            raise DataError(
                where=name, found=f"predictions of {len(folders)} encoders", expected="those of one",
                remedy=f"Name one of {', '.join(map(str, folders))}.",
            )  # fmt: skip
        if not folders and next(given.rglob("model_meta.json"), None) is not None:
            raise DataError(
                where=name, found=f"results of mteb without predictions (TASK{ENDING})", expected="scores of single items", remedy=_AGAIN
            )
        return cls(folder=folders[0], files={path.name.removesuffix(ENDING): path for path in found}) if folders else None

    def of_task(self, task: str) -> dict[str, Mapping[str, Any]]:
        """subset -> split -> what mteb has kept.

        Raises:
            DataError: no JSON of that form.
        """
        path = self.files[task]
        found = read_json(path, remedy=_AGAIN, most_bytes=_MOST_BYTES)
        if not isinstance(found, dict) or not all(isinstance(splits, dict) for splits in found.values()):
            raise DataError(where=str(path), found="other JSON", expected="{subset: {split: predictions}}", remedy=_AGAIN)
        return {subset: splits for subset, splits in found.items() if subset != _META}


@dataclass(frozen=True, kw_only=True)
class PredictedScores:
    """Two encoders, as far as both have predictions. measures: of the tasks that can be compared. notes: on those that cannot."""

    both: tuple[Scored, Scored]
    measures: Mapping[str, Measure]
    notes: tuple[str, ...]


def predicted_scores(folders: tuple[Predictions, Predictions], names: Sequence[str] | None, into: Path) -> PredictedScores:
    """Score what two folders hold against the answers of mteb's tasks, with our measures.

    names: as `mteb_tasks` takes them; None: all tasks of both. into: an empty folder for the files of items.

    Raises:
        DataError: no task in both, a task's data is not to be had, predictions of other rows than the task has.
    """
    common = [task for task in folders[0].files if task in folders[1].files]
    given = mteb_tasks(common if names is None else names)
    tasks = [part for task in given for part in getattr(task, "tasks", (task,))]  # of one that is a mean of others mteb keeps the parts
    lacking = [task.metadata.name for task in tasks if task.metadata.name not in common]
    if lacking or not tasks:
        raise DataError(
            where="predictions of mteb", found=f"none of {', '.join(lacking) or 'any task'} in both folders",
            expected="a file of each task in both", remedy=f"Both have: {', '.join(common)}." if common else _AGAIN,
        )  # fmt: skip
    measures: dict[str, Measure] = {}
    notes: list[str] = []
    scored: tuple[dict[str, _Scores], dict[str, _Scores]] = ({}, {})
    grouped: dict[str, _Grouped] = {}
    for task in tasks:
        name = task.metadata.name
        try:
            kind = kind_of(task, abstask)
            measure = kind.measure(task)
            answers = _same_parts(folders, name)
            with loading_data():
                _load(task)
            for folder, found, own, place in zip(folders, answers, scored, "01", strict=True):
                own[name], grouped[name] = _scored(kind, task, found, into / place / name, where=str(folder.files[name]))
            task.unload_data()
        except NotComparedError as why:
            notes.append(f"Not compared: {name}, for {why}.")
            continue
        measures[name] = measure
        if remark := kind.remarks.get(task.metadata.main_score):
            notes.append(f"{name}: {remark}.")
    _note_shared({name: grouped[name] for name in measures}, scored)
    ours, theirs = (
        Scored(scores={name: one.score for name, one in own.items()}, items={name: one.files for name, one in own.items()})
        for own in scored
    )
    return PredictedScores(both=(ours, theirs), measures=measures, notes=tuple(notes))


@dataclass(frozen=True, kw_only=True)
class _Scores:
    score: float | None
    files: tuple[Path, ...]


def _load(task: Any) -> None:
    """Load a task's data, as mteb's `evaluate` does."""
    if not task.data_loaded:
        task.load_data()
    if hasattr(task, "convert_v1_dataset_format_to_v2"):
        task.convert_v1_dataset_format_to_v2(num_proc=None)


def _same_parts(folders: tuple[Predictions, Predictions], name: str) -> list[_Answers]:
    """What both hold of a task, in one order. Raises DataError where one has other subsets or splits."""
    found: list[_Answers] = []
    for folder in folders:
        parts = {(subset, split): kept for subset, splits in folder.of_task(name).items() for split, kept in splits.items()}
        found.append({part: parts[part] for part in sorted(parts)})
    if found[0].keys() != found[1].keys():
        both = (
            f"{', '.join('/'.join(part) for part in one) or 'none'} in {folder.folder}" for folder, one in zip(folders, found, strict=True)
        )
        raise DataError(
            where=f"predictions of {name}", found="; ".join(both), expected="the same subsets and splits in both", remedy=_AGAIN
        )
    return found


def _scored(kind: PredictionKind, task: Any, answers: _Answers, into: Path, *, where: str) -> tuple[_Scores, _Grouped]:
    """A task of one encoder; its items are written into a file a part, with the groups of all parts together."""
    parts: list[ScoredPart] = []
    for (subset, split), found in answers.items():
        try:
            parts += kind.parts(task, _rows(task, subset, split), found)
        except (OtherRowsError, KeyError, TypeError) as error:
            said = str(error) if isinstance(error, OtherRowsError) else named(error)
            raise DataError(
                where=f"{where}: {subset}, {split}", found=said, expected="what mteb keeps of this task", remedy=_AGAIN
            ) from error
    texts = [texts for part in parts for texts in part.texts]
    linked = [pairs for part in parts for pairs in part.linked]
    pairs = tuple((item, *pair) for item, pairs in enumerate(linked) for pair in pairs)
    tested = TaskTexts(name=into.name, sentences=tuple(texts), pairs=pairs)
    groups = tested.groups()
    into.mkdir(parents=True)
    files, start = [], 0
    for number, part in enumerate(parts):
        files.append(into / f"{number}.parquet")
        pq.write_table(part.items.append_column(GROUP, pa.array(groups[start : start + part.items.num_rows])), files[-1])
        start += part.items.num_rows
    return _Scores(score=mean_of_all([part.score for part in parts]), files=tuple(files)), (tested, groups)


def _note_shared(grouped: Mapping[str, _Grouped], scored: Iterable[Mapping[str, _Scores]]) -> None:
    """Write into the items of both encoders what tasks have in common, where they have anything."""
    for name, shared in zip(grouped, shared_groups(list(grouped.values())), strict=True):
        if not (shared >= 0).any():
            continue
        for files in (own[name].files for own in scored):
            start = 0
            for file in files:
                items = read_parquet(file)
                pq.write_table(items.append_column(SHARED, pa.array(shared[start : start + items.num_rows])), file)
                start += items.num_rows


def _rows(task: Any, subset: str, split: str) -> Any:
    """The rows of a split, where mteb's tasks keep them: tasks of one language have no subsets."""
    data = task.dataset
    return data[split] if subset not in data and subset == "default" else data[subset][split]
