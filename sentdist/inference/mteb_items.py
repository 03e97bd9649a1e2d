"""Score the predictions that mteb saved, item by item, so that two encoders can be compared on mteb's tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentdist.data.leaks import TaskTexts, shared_groups
from sentdist.errors import DataError, named
from sentdist.evaluation.items import GROUP, SHARED, Scored
from sentdist.evaluation.retrieval import average_precision, ndcg, recall, reciprocal_rank, success
from sentdist.evaluation.sts import mean_of_all, score_paraphrases, score_similarities
from sentdist.files import read_json, read_parquet
from sentdist.inference.mteb_tasks import abstask, loading_data, mteb_tasks
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.task import Measure

Linked = tuple[tuple[str, str], ...]
_RANKED = re.compile(r"(?P<name>ndcg|map|mrr|recall|precision|hit_rate)_at_(?P<k>\d+)")
_TITLES = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR", "recall": "recall", "precision": "precision", "hit_rate": "hit rate"}
# First word of a main score -> the values that mteb saves for pairs, and -1 for distances.
_SIMILARITIES = {
    "cosine": ("cosine_scores", 1),
    "dot": ("dot_scores", 1),
    "manhattan": ("manhattan_distances", -1),
    "euclidean": ("euclidean_distances", -1),
}


class NotComparedError(Exception):
    """A task whose score cannot be computed item by item from its predictions; the message says why."""


class OtherRowsError(Exception):
    """Predictions of other rows than the task has; the message says which."""


@dataclass(frozen=True, kw_only=True)
class ScoredPart:
    """The scores of one split of one subset."""

    score: float | None  # × 100; None: undefined
    items: pa.Table
    texts: Sequence[tuple[str, ...]]  # of each item
    linked: Sequence[Linked]  # of each item the pairs of texts whose relation is the answer


@dataclass(frozen=True, kw_only=True)
class PredictionKind:
    """How tasks of one of mteb's base classes are scored."""

    base: str
    measure: Callable[[Any], Measure]  # task -> measure of its main score; raises NotComparedError
    parts: Callable[[Any, Any, Any], Iterator[ScoredPart]]  # (task, split, predictions); several if the score is a mean over sets
    remarks: Mapping[str, str] = field(default_factory=dict)  # main score -> how ours differs from mteb's


def _sts_measure(task: Any) -> Measure:
    return _one_of(task, ("spearman", "cosine_spearman", "manhattan_spearman", "euclidean_spearman"), TASK_KINDS["sts"].main)


def _sts(task: Any, rows: Any, found: Mapping[str, list[float]]) -> Iterator[ScoredPart]:
    first, second = (_texts(rows[column]) for column in task.column_names)
    word = task.metadata.main_score.partition("_")[0]
    # for STS, mteb saves negated distances
    similarities = _same_rows(found.get(_SIMILARITIES.get(word, ("similarity_scores", 1))[0]) or found["cosine_scores"], len(first))
    score = score_similarities(similarities, rows["score"], ["all"] * len(first))
    pairs = list(zip(first, second, strict=True))
    yield ScoredPart(score=score.spearman, items=pa.table({**score.items()}), texts=pairs, linked=[(pair,) for pair in pairs])


def _pairs_measure(task: Any) -> Measure:
    return _one_of(task, ("max_ap", "similarity_ap", "cosine_ap", "dot_ap", "manhattan_ap", "euclidean_ap"), TASK_KINDS["pairs"].main)


def _pairs(task: Any, rows: Any, found: Mapping[str, list[float]]) -> Iterator[ScoredPart]:
    columns = {name: rows[name] for name in (task.input1_column_name, task.input2_column_name, task.label_column_name)}
    first, second, labels = ((values[0] if len(values) == 1 and isinstance(values[0], list) else values) for values in columns.values())
    word = task.metadata.main_score.partition("_")[0]
    name, sign = _SIMILARITIES.get(word, ("similarity_scores", 1))
    score = score_paraphrases(sign * np.asarray(_same_rows(found[name], len(labels))), [int(label) for label in labels])
    pairs = list(zip(_texts(first), _texts(second), strict=True))
    items = pa.table({"label": score.labels, "similarity": score.similarities})
    yield ScoredPart(score=score.ap, items=items, texts=pairs, linked=[(pair,) for pair in pairs])


def _classification_measure(task: Any) -> Measure:
    if task.is_cross_validation:
        raise NotComparedError("its classifiers are cross-validated, and mteb does not save which rows each has seen")
    return _one_of(task, ("accuracy",), TASK_KINDS["classification"].main)


def _classification(task: Any, rows: Any, found: Sequence[Sequence[Any]]) -> Iterator[ScoredPart]:
    """An item's accuracy is the share of correct classifiers; mteb fits each on another sample."""
    labels, texts = list(rows[task.label_column_name]), _texts(rows[task.input_column_name])
    right = np.asarray([[one == label for one, label in zip(_same_rows(run, len(labels)), labels, strict=True)] for run in found])
    accuracy = 100.0 * right.mean(axis=0)
    items = pa.table({"label": [str(label) for label in labels], "accuracy": accuracy})
    yield ScoredPart(score=float(accuracy.mean()), items=items, texts=[(text,) for text in texts], linked=[()] * len(texts))


def _clustering_measure(task: Any) -> Measure:
    return _one_of(task, ("v_measure",), TASK_KINDS["clustering"].main)


def _clustering(task: Any, rows: Any, found: Sequence[Sequence[int]]) -> Iterator[ScoredPart]:
    """Yield a part for each set; mteb saves nothing for sets with one label, whose V-measure is always 1."""
    from sklearn.metrics import v_measure_score

    sets = [one for one in rows if len(set(one[task.label_column_name])) > 1]
    if len(sets) != len(rows):
        raise NotComparedError("some of its sets have one label only, whose score does not depend on the encoder")
    for one, clusters in zip(sets, _same_rows(found, len(sets)), strict=True):
        labels, texts = [str(label) for label in one[task.label_column_name]], _texts(one[task.input_column_name])
        items = pa.table({"label": labels, "cluster": _same_rows(clusters, len(labels))})
        score = 100.0 * float(v_measure_score(labels, clusters))
        yield ScoredPart(score=score, items=items, texts=[(text,) for text in texts], linked=[()] * len(texts))


def _retrieval_measure(task: Any) -> Measure:
    main = task.metadata.main_score
    if main == "accuracy":  # multiple choice: recall at 1
        main = "recall_at_1"
    found = _RANKED.fullmatch(main)
    if found is None:
        raise NotComparedError(f"its main score is {main}")
    return Measure(name=f"{found['name']}@{found['k']}", title=f"{_TITLES[found['name']]}@{found['k']}", unit="mean over queries × 100")


def _retrieval(task: Any, split: Any, found: Mapping[str, Mapping[str, float]]) -> Iterator[ScoredPart]:
    """Rank as trec_eval does: scores in float32, ties by document id, descending."""
    name, _, depth = _retrieval_measure(task).name.partition("@")
    texts = dict(zip(split["queries"]["id"], _texts(split["queries"]["text"]), strict=True))
    judged = {query: grades for query, grades in split["relevant_docs"].items() if grades and query in texts}
    if missing := sum(query not in found for query in judged):
        raise OtherRowsError(f"no answer to {missing} of {len(judged)} queries")
    values = [100.0 * _of_query(name, int(depth), _ranked(task, query, found[query]), grades) for query, grades in judged.items()]
    relevant = {document for grades in judged.values() for document, grade in grades.items() if grade > 0}
    text_of = _document_texts(split["corpus"], relevant)
    linked = [
        tuple((texts[query], text_of[document]) for document, grade in grades.items() if grade > 0 and document in text_of)
        for query, grades in judged.items()
    ]
    yield ScoredPart(
        score=float(np.mean(values)), items=pa.table({"query_id": list(judged), f"{name}@{depth}": values}),
        texts=[(texts[query],) for query in judged], linked=linked,
    )  # fmt: skip


def _ranked(task: Any, query: str, scores: Mapping[str, float]) -> list[str]:
    kept = {document: score for document, score in scores.items() if not (task.ignore_identical_ids and document == query)}
    if task.skip_first_result:
        kept = dict(sorted(kept.items(), key=lambda one: one[1], reverse=True)[1:])
    return [document for _, document in sorted(((np.float32(score), document) for document, score in kept.items()), reverse=True)]


def _of_query(name: str, k: int, ranked: Sequence[str], grades: Mapping[str, int]) -> float:
    num_relevant = sum(grade > 0 for grade in grades.values())
    if not num_relevant:
        return 0.0
    found = {rank: grades.get(document, 0) for rank, document in enumerate(ranked[:k], 1)}
    return {
        "ndcg": lambda: ndcg(found, grades.values(), k),
        "map": lambda: average_precision(found, num_relevant),
        "mrr": lambda: reciprocal_rank(found, k),
        "recall": lambda: recall(found, num_relevant, k),
        "precision": lambda: sum(grade > 0 for grade in found.values()) / k,
        "hit_rate": lambda: success(found, k),
    }[name]()


def _document_texts(corpus: Any, wanted: set[str]) -> dict[str, str]:
    rows = [row for row, document in enumerate(corpus["id"]) if document in wanted]
    return {one["id"]: f"{one.get('title') or ''} {one['text']}".strip() for one in corpus.select(rows)}


def _one_of(task: Any, known: Sequence[str], measure: Measure) -> Measure:
    if (main := task.metadata.main_score) not in known:
        raise NotComparedError(f"its main score is {main}")
    return measure


def _same_rows(found: Sequence[Any], size: int) -> Sequence[Any]:
    if len(found) != size:
        raise OtherRowsError(f"{len(found):,} of them for {size:,} rows")
    return found


def _texts(column: Sequence[object]) -> list[str]:
    return [text if isinstance(text, str) else str(text) for text in column]


KINDS = (
    PredictionKind(base="sts.AbsTaskSTS", measure=_sts_measure, parts=_sts),
    PredictionKind(
        base="pair_classification.AbsTaskPairClassification", measure=_pairs_measure, parts=_pairs,
        remarks={"max_ap": "by each encoder's own similarity; mteb's max_ap takes the best of five similarities, chosen on the test"},
    ),
    PredictionKind(base="retrieval.AbsTaskRetrieval", measure=_retrieval_measure, parts=_retrieval),
    PredictionKind(base="clustering_legacy.AbsTaskClusteringLegacy", measure=_clustering_measure, parts=_clustering),
    PredictionKind(base="classification.AbsTaskClassification", measure=_classification_measure, parts=_classification),
)  # fmt: skip
WITHOUT_ITEMS = {  # the first two derive from the classification class
    "multilabel_classification.AbsTaskMultilabelClassification": "an item has several labels",
    "regression.AbsTaskRegression": "its score is a mean of correlations over classifiers",
    "clustering.AbsTaskClustering": "its score is a mean over random samples of its rows, which mteb does not save",
}


def kind_of(task: Any, base: Callable[[str], type]) -> PredictionKind:
    """Return the kind of a task of mteb; raise NotComparedError if there is none. base: name -> base class of mteb."""
    for name, why in WITHOUT_ITEMS.items():
        if isinstance(task, base(name)):
            raise NotComparedError(why)
    found = next((kind for kind in KINDS if isinstance(task, base(kind.base))), None)
    if found is None:
        raise NotComparedError(f"tasks of type {task.metadata.type} are not scored item by item here")
    return found


ENDING = "_predictions.json"
_Grouped = tuple[TaskTexts, NDArray[np.int64]]  # a task's texts, with the groups of its items
_Answers = Mapping[tuple[str, str], Any]  # (subset, split) -> saved predictions
_META = "mteb_model_meta"  # the only key of a file that is no subset
_MOST_BYTES = 4 * 2**30  # 1,000 documents for each of 100,000 queries; in memory five times as much
_AGAIN = "Run both again with one version of mteb (prediction_folder=…), or `sentdist evaluate ENCODER --mteb TASK --out DIR`."


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The predictions of one encoder, a file a task, as written by mteb's `evaluate(…, prediction_folder=…)` or our `--out`."""

    folder: Path
    files: Mapping[str, Path]

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Return the predictions in or below a folder, or None if it holds none.

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
            raise DataError(where=name, found=f"results of mteb without predictions (TASK{ENDING})", expected="predictions", remedy=_AGAIN)
        return cls(folder=folders[0], files={path.name.removesuffix(ENDING): path for path in found}) if folders else None

    def of_task(self, task: str) -> dict[str, Mapping[str, Any]]:
        """Return subset -> split -> saved predictions.

        Raises:
            DataError: not JSON of that form.
        """
        path = self.files[task]
        found = read_json(path, remedy=_AGAIN, most_bytes=_MOST_BYTES)
        if not isinstance(found, dict) or not all(isinstance(splits, dict) for splits in found.values()):
            raise DataError(where=str(path), found="other JSON", expected="{subset: {split: predictions}}", remedy=_AGAIN)
        return {subset: splits for subset, splits in found.items() if subset != _META}


@dataclass(frozen=True, kw_only=True)
class PredictedScores:
    """The scores of two encoders on their common tasks."""

    both: tuple[Scored, Scored]
    measures: Mapping[str, Measure]  # of the tasks that can be compared
    notes: tuple[str, ...]  # on those that cannot


def predicted_scores(folders: tuple[Predictions, Predictions], names: Sequence[str] | None, into: Path) -> PredictedScores:
    """Score the predictions in two folders against the labels of mteb's tasks, with our measures.

    Args:
        folders: the predictions of the two encoders.
        names: tasks, as for `mteb_tasks`; None: all common ones.
        into: an empty folder for files of items.

    Raises:
        DataError: no common task, a task's data is unavailable, or predictions of other rows than the task has.
    """
    common = [task for task in folders[0].files if task in folders[1].files]
    given = mteb_tasks(common if names is None else names)
    tasks = [part for task in given for part in getattr(task, "tasks", (task,))]  # for a mean of tasks, mteb saves the parts
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
            notes.append(f"Not compared: {name}: {why}.")
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
    """Load the data of a task as mteb's `evaluate` does."""
    if not task.data_loaded:
        task.load_data()
    if hasattr(task, "convert_v1_dataset_format_to_v2"):
        task.convert_v1_dataset_format_to_v2(num_proc=None)


def _same_parts(folders: tuple[Predictions, Predictions], name: str) -> list[_Answers]:
    """The predictions of both for a task, in one order; DataError if subsets or splits differ."""
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
    """Score a task of one encoder; write its items, a file a part, with groups over all parts."""
    parts: list[ScoredPart] = []
    for (subset, split), found in answers.items():
        try:
            parts += kind.parts(task, _rows(task, subset, split), found)
        except (OtherRowsError, KeyError, TypeError) as error:
            problem = str(error) if isinstance(error, OtherRowsError) else named(error)
            raise DataError(
                where=f"{where}: {subset}, {split}", found=problem, expected="mteb's predictions for this task", remedy=_AGAIN
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
    """Add the groups that tasks share to the items of both encoders."""
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
    """The rows of a split; mteb's tasks of one language have no subsets."""
    data = task.dataset
    return data[split] if subset not in data and subset == "default" else data[subset][split]
