"""A score for each item of mteb's tasks: what an encoder answered, as mteb has kept it, against the task's own answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sentdist.evaluation.paraphrases import score_paraphrases
from sentdist.evaluation.ranking_measures import average_precision, ndcg, recall, reciprocal_rank, success
from sentdist.evaluation.sts import score_similarities
from sentdist.plan.measures import Measure
from sentdist.plan.task_kinds import TASK_KINDS

Linked = tuple[tuple[str, str], ...]
_RANKED = re.compile(r"(?P<name>ndcg|map|mrr|recall|precision|hit_rate)_at_(?P<k>\d+)")
_TITLES = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR", "recall": "recall", "precision": "precision", "hit_rate": "hit rate"}
# Of a main score's first word: what mteb keeps of pairs, and its sign where less is more alike.
_SIMILARITIES = {
    "cosine": ("cosine_scores", 1),
    "dot": ("dot_scores", 1),
    "manhattan": ("manhattan_distances", -1),
    "euclidean": ("euclidean_distances", -1),
}


class NotComparedError(Exception):
    """Why a task's predictions do not say what its score is made of."""


class OtherRowsError(Exception):
    """Predictions of other rows than the task has: what was found, what was expected."""


@dataclass(frozen=True, kw_only=True)
class ScoredPart:
    """One split of one subset. score: × 100, None where it is not defined. texts: of each item its own. linked: of each item the pairs of
    texts whose relation is the answer."""

    score: float | None
    items: pa.Table
    texts: Sequence[tuple[str, ...]]
    linked: Sequence[Linked]


@dataclass(frozen=True, kw_only=True)
class PredictionKind:
    """Tasks on one of mteb's base classes. measure: of a task's main score; raises NotComparedError. parts: of a task, its split and what
    an encoder answered to it (several where its score is a mean over sets). remarks: by main score, what else there is to say of ours."""

    base: str
    measure: Callable[[Any], Measure]
    parts: Callable[[Any, Any, Any], Iterator[ScoredPart]]
    remarks: Mapping[str, str] = field(default_factory=dict)


def _sts_measure(task: Any) -> Measure:
    return _one_of(task, ("spearman", "cosine_spearman", "manhattan_spearman", "euclidean_spearman"), TASK_KINDS["sts"].main)


def _sts(task: Any, rows: Any, found: Mapping[str, list[float]]) -> Iterator[ScoredPart]:
    first, second = (_texts(rows[column]) for column in task.column_names)
    word = task.metadata.main_score.partition("_")[0]
    # of STS mteb keeps distances with their sign turned
    similarities = _same_rows(found.get(_SIMILARITIES.get(word, ("similarity_scores", 1))[0]) or found["cosine_scores"], len(first))
    score = score_similarities(similarities, rows["score"], ["all"] * len(first), where=task.metadata.name)
    pairs = list(zip(first, second, strict=True))
    yield ScoredPart(score=score.spearman, items=pa.table({**score.items()}), texts=pairs, linked=[(pair,) for pair in pairs])


def _pairs_measure(task: Any) -> Measure:
    return _one_of(task, ("max_ap", "similarity_ap", "cosine_ap", "dot_ap", "manhattan_ap", "euclidean_ap"), TASK_KINDS["pairs"].main)


def _pairs(task: Any, rows: Any, found: Mapping[str, list[float]]) -> Iterator[ScoredPart]:
    columns = {name: rows[name] for name in (task.input1_column_name, task.input2_column_name, task.label_column_name)}
    first, second, labels = ((values[0] if len(values) == 1 and isinstance(values[0], list) else values) for values in columns.values())
    word = task.metadata.main_score.partition("_")[0]
    name, sign = _SIMILARITIES.get(word, ("similarity_scores", 1))
    score = score_paraphrases(
        sign * np.asarray(_same_rows(found[name], len(labels))), [int(label) for label in labels], where=task.metadata.name
    )
    pairs = list(zip(_texts(first), _texts(second), strict=True))
    items = pa.table({"label": score.labels, "similarity": score.similarities})
    yield ScoredPart(score=score.ap, items=items, texts=pairs, linked=[(pair,) for pair in pairs])


def _classification_measure(task: Any) -> Measure:
    if task.is_cross_validation:
        raise NotComparedError("its classifiers are cross-validated, and mteb does not keep which rows each has seen")
    return _one_of(task, ("accuracy",), TASK_KINDS["classification"].main)


def _classification(task: Any, rows: Any, found: Sequence[Sequence[Any]]) -> Iterator[ScoredPart]:
    """An item's accuracy is the share of mteb's classifiers, each fitted on a draw of its own, that are right."""
    labels, texts = list(rows[task.label_column_name]), _texts(rows[task.input_column_name])
    right = np.asarray([[one == label for one, label in zip(_same_rows(run, len(labels)), labels, strict=True)] for run in found])
    accuracy = 100.0 * right.mean(axis=0)
    items = pa.table({"label": [str(label) for label in labels], "accuracy": accuracy})
    yield ScoredPart(score=float(accuracy.mean()), items=items, texts=[(text,) for text in texts], linked=[()] * len(texts))


def _clustering_measure(task: Any) -> Measure:
    return _one_of(task, ("v_measure",), TASK_KINDS["clustering"].main)


def _clustering(task: Any, rows: Any, found: Sequence[Sequence[int]]) -> Iterator[ScoredPart]:
    """A part a set; mteb keeps nothing of sets of one label, whose V-measure is always 1."""
    from sklearn.metrics import v_measure_score

    sets = [one for one in rows if len(set(one[task.label_column_name])) > 1]
    if len(sets) != len(rows):
        raise NotComparedError("some of its sets have one label only, and a score whatever the encoder says")
    for one, clusters in zip(sets, _same_rows(found, len(sets)), strict=True):
        labels, texts = [str(label) for label in one[task.label_column_name]], _texts(one[task.input_column_name])
        items = pa.table({"label": labels, "cluster": _same_rows(clusters, len(labels))})
        score = 100.0 * float(v_measure_score(labels, clusters))
        yield ScoredPart(score=score, items=items, texts=[(text,) for text in texts], linked=[()] * len(texts))


def _retrieval_measure(task: Any) -> Measure:
    main = task.metadata.main_score
    if main == "accuracy":  # of multiple choice: recall at 1
        main = "recall_at_1"
    found = _RANKED.fullmatch(main)
    if found is None:
        raise NotComparedError(f"its main score is {main}")
    return Measure(name=f"{found['name']}@{found['k']}", title=f"{_TITLES[found['name']]}@{found['k']}", unit="mean over queries × 100")


def _retrieval(task: Any, split: Any, found: Mapping[str, Mapping[str, float]]) -> Iterator[ScoredPart]:
    """The scored parts of a retrieval task, in trec_eval's order: scores in float32, equal ones by the document's name, the later first."""
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
WITHOUT_ITEMS = {  # the first two derive from the class of classification
    "multilabel_classification.AbsTaskMultilabelClassification": "an item has several labels",
    "regression.AbsTaskRegression": "its score is a mean of correlations over classifiers",
    "clustering.AbsTaskClustering": "its score is a mean over random draws of its rows, which mteb does not keep",
}


def kind_of(task: Any, base: Callable[[str], type]) -> PredictionKind:
    """The kind of a task of mteb. base: the class of mteb's of a name. Raises NotComparedError."""
    for name, why in WITHOUT_ITEMS.items():
        if isinstance(task, base(name)):
            raise NotComparedError(why)
    found = next((kind for kind in KINDS if isinstance(task, base(kind.base))), None)
    if found is None:
        raise NotComparedError(f"tasks of the kind {task.metadata.type} have no scores of single items here")
    return found
