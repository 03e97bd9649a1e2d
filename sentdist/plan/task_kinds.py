"""The kinds of evaluation task beside graded pairs and retrieval: labels, paraphrases, candidates, clusters, the shape of the embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sentdist.plan.corpora.relations import LinkTask
from sentdist.plan.specs import Task
from sentdist.plan.stage import Frozen


class ClassificationTask(Frozen):
    """Labels read out of frozen embeddings by a linear classifier (SentEval's transfer tasks)."""

    name: str
    kind: Literal["classification"] = "classification"
    source: str
    revision: str
    columns: tuple[str, ...] = ("text",)  # two: a pair, told by |u − v| and u ∗ v
    label: str = "label"
    split: str | None = None  # that is tested, after training on `train`; None: all rows, in nested folds
    dev: str | None = None  # the split that chooses the penalty; None: folds
    num_folds: Annotated[int, Field(ge=2)] = 10


ChosenTask = Task | ClassificationTask  # those that have a name in the table
ScoredTask = ChosenTask | LinkTask
