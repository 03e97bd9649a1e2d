"""The kinds of evaluation task beside graded pairs and retrieval: labels, paraphrases, candidates, clusters, the shape of the embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sentdist.frozen import Frozen
from sentdist.plan.corpora.relations import LinkTask
from sentdist.plan.specs import Task


class ClassificationTask(Frozen):
    """Labels read out of frozen embeddings by a linear classifier."""

    name: str
    kind: Literal["classification"] = "classification"
    source: str
    revision: str
    columns: tuple[str, ...] = ("text",)  # two: a pair, told by |u − v| and u ∗ v
    label: str = "label"
    split: str | None = None  # that is tested, after training on `train`; None: all rows, in nested folds
    dev: str | None = None  # the split that chooses the penalty; None: folds
    num_folds: Annotated[int, Field(ge=2)] = 10
    # SentEval's, stopped early, which its published rows need; or one that is fitted to the end, which small data need.
    classifier: Literal["senteval", "converged"] = "converged"


class ParaphraseTask(Frozen):
    """Pairs that are paraphrases (label 1) or not (0), ranked by their cosine."""

    name: str
    kind: Literal["pairs"] = "pairs"
    source: str
    revision: str
    columns: tuple[str, str] = ("sentence1", "sentence2")
    label: str = "label"
    split: str | None = None


class RerankingTask(Frozen):
    """A few candidates for each query, to be put in order."""

    name: str
    kind: Literal["reranking"] = "reranking"
    source: str
    revision: str
    query: tuple[str, ...] = ("query",)  # columns whose texts are joined
    document: tuple[str, ...] = ("document",)
    split: str | None = None


class ClusteringTask(Frozen):
    """Labelled texts, as many k-means clusters as labels."""

    name: str
    kind: Literal["clustering"] = "clustering"
    source: str
    revision: str
    text: str = "text"
    label: str = "label"
    split: str | None = None
    num_runs: Annotated[int, Field(ge=1)] = 5  # with seeds 0, 1, …


class GeometryTask(Frozen):
    """The shape of the embeddings of graded pairs' sentences."""

    name: str
    kind: Literal["geometry"] = "geometry"
    source: str
    revision: str
    split: str | None = None
    positive_above: float = 4.0  # gold score from which a pair counts as one that means the same (SimCSE's practice)


LabelTask = ClassificationTask | ParaphraseTask | RerankingTask | ClusteringTask | GeometryTask
ChosenTask = Task | LabelTask  # those that have a name in the table, or are a user's own
ScoredTask = ChosenTask | LinkTask
