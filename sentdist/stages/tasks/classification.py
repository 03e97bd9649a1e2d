"""Score embeddings of labelled texts by a linear classifier, or by their clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.checked_rows import Labelled
from sentdist.data.leaks import TaskTexts
from sentdist.errors import DataError, brief, counted
from sentdist.evaluation.classification import check_folds, cross_validated, pair_features, score_clusters, split_classified, split_rows
from sentdist.evaluation.linear_models import senteval_cross_validated, senteval_dev, senteval_split
from sentdist.evaluation.nearest import Lexical
from sentdist.recipe.task_kinds import ClassificationTask, ClusteringTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore, labelled_rows, no_word_score


@dataclass(frozen=True, kw_only=True)
class LoadedClassification:
    """Texts, or pairs of texts, with labels; the main score is the accuracy of a linear classifier."""

    task: ClassificationTask
    rows: Labelled

    @property
    def sentences(self) -> Sequence[str]:
        return [text for column in self.rows.texts for text in column]

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        task, rows = self.task, self.rows
        features = pair_features(*np.split(embeddings_SD, 2)) if len(task.columns) == 2 else embeddings_SD
        if task.role == "dev":
            accuracy = senteval_dev(
                features,
                rows.labels,
                train=None if task.split is None else rows.rows_of("train"),
                dev=None if task.dev is None else rows.rows_of(task.dev),
                num_folds=task.num_folds,
                where=task.name,
            )
            # No test items to resample.
            return TaskScore(task=task.name, main=accuracy, measures={"accuracy": accuracy}, items=pa.table({"accuracy": [accuracy]}))
        if task.split is None:
            whole = senteval_cross_validated if task.classifier == "senteval" else cross_validated
            found = whole(features, rows.labels, num_folds=task.num_folds, where=task.name)
        else:
            parted = senteval_split if task.classifier == "senteval" else split_classified
            found = parted(
                features,
                rows.labels,
                train=rows.rows_of("train"),
                test=rows.rows_of(task.split),
                dev=None if task.dev is None else rows.rows_of(task.dev),
                num_folds=task.num_folds,
                where=task.name,
            )
        measures: dict[str, float | None] = {"accuracy": found.accuracy, **({} if found.f1 is None else {"f1": found.f1})}
        return TaskScore(task=task.name, main=found.accuracy, measures=measures, items=pa.table(found.items()))

    def score_words(self, kind: Lexical) -> TaskScore:
        raise no_word_score(self.task.name, kind)

    def texts(self) -> TaskTexts:
        split = self.task.split if self.task.role == "test" or self.task.split is None else self.task.dev or "train"
        tested = range(self.rows.num_rows) if split is None else self.rows.rows_of(split)
        items = tuple(tuple(column[row] for column in self.rows.texts) for row in tested)
        pairs = tuple((item, *both) for item, both in enumerate(items) if len(both) == 2)
        groups = tuple(self.rows.groups[row] for row in tested) if self.rows.groups else ()
        return TaskTexts(name=self.task.name, sentences=items, pairs=pairs, given_groups=groups)


def load_classification(task: ClassificationTask, root: Path | None) -> LoadedClassification:
    """Read the rows that a task fits and tests on; raise DataError as `read_labelled`, `split_rows` and `check_folds`."""
    splits = None if task.split is None else ("train", task.split, *([task.dev] if task.dev else []))
    rows = labelled_rows(task, task.columns, splits, root)
    if len(set(rows.labels)) < 2:
        raise DataError(
            where=task.source, found=f"one label, {brief(rows.labels[0])}, in all rows", expected="two or more",
            remedy="A classifier needs classes to distinguish.",
        )  # fmt: skip
    _check_parts(task, rows)
    return LoadedClassification(task=task, rows=rows)


def _check_parts(task: ClassificationTask, rows: Labelled) -> None:
    """Raise DataError as `check_folds` and `split_rows`, before an encoder is needed."""
    gold = np.asarray(rows.labels, dtype=np.str_)
    if task.split is None:
        check_folds(gold, task.num_folds, nested=True, where=task.name)
        return
    train, dev = rows.rows_of("train"), None if task.dev is None else rows.rows_of(task.dev)
    split_rows(gold, train=train, test=rows.rows_of(task.split), dev=dev, where=task.name)
    if dev is None:
        check_folds(gold[train], task.num_folds, nested=False, where=task.name)


@dataclass(frozen=True, kw_only=True)
class LoadedClustering:
    """Labelled texts; the main score is the V-measure of their clusters."""

    task: ClusteringTask
    rows: Labelled

    @property
    def sentences(self) -> Sequence[str]:
        return self.rows.texts[0]

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        found = score_clusters(embeddings_SD, self.rows.labels, num_runs=self.task.num_runs, where=self.task.name)
        items = pa.table({"label": list(self.rows.labels), "cluster": found.clusters})
        return TaskScore(task=self.task.name, main=found.v_measure, measures={"v_measure": found.v_measure}, items=items)

    def score_words(self, kind: Lexical) -> TaskScore:
        raise no_word_score(self.task.name, kind)

    def texts(self) -> TaskTexts:
        return TaskTexts(name=self.task.name, sentences=tuple((text,) for text in self.sentences), pairs=(), given_groups=self.rows.groups)


def load_clustering(task: ClusteringTask, root: Path | None) -> LoadedClustering:
    """Read the texts of a task; raise DataError as `read_labelled`, and for too few or too many labels."""
    rows = labelled_rows(task, (task.text,), None if task.split is None else (task.split,), root)
    num_labels, num_texts = len(set(rows.labels)), len(set(rows.texts[0]))
    if not 2 <= num_labels < num_texts:
        raise DataError(
            where=task.source, found=f"{counted(num_labels, 'label')} for {counted(num_texts, 'different text')}",
            expected="two labels or more, and more texts than labels", remedy="Name a label column that groups of texts share.",
        )  # fmt: skip
    return LoadedClustering(task=task, rows=rows)
