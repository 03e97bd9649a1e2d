"""Score embeddings of pairs and triplets: graded similarity, paraphrases, triplet accuracy, geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.checked_rows import Labelled, Pairs, read_pairs, read_texts, truths_of
from sentdist.data.leaks import TaskTexts
from sentdist.errors import DataError, counted
from sentdist.evaluation.geometry import Geometry, measure_geometry
from sentdist.evaluation.nearest import Lexical
from sentdist.evaluation.sts import jaccard_scores, score_paraphrases, score_similarities
from sentdist.recipe.specs import Task
from sentdist.recipe.task_kinds import GeometryTask, ParaphraseTask, TripletTask, is_own_task
from sentdist.stages.scores.scorer import RelationalScorer, Scorer
from sentdist.stages.tasks.loaded_task import TaskScore, drawn_rows, labelled_rows, no_word_score


@dataclass(frozen=True, kw_only=True)
class LoadedSts:
    """Graded sentence pairs; the main score is Spearman's correlation."""

    task: Task
    pairs: Pairs

    def __post_init__(self) -> None:
        # Published pairs may pass: the geometry of their embeddings is reported even without a score.
        if is_own_task(self.task) and len(set(self.pairs.score.tolist())) < 2:
            alike = counted(self.pairs.num_pairs, "pair")
            raise DataError(
                where=self.task.name, found=f"one score, {self.pairs.score[0]:g}, in all of {alike}", expected="scores that differ",
                remedy="A correlation needs pairs with different scores: give more rows.",
            )  # fmt: skip

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.pairs.sentence1, *self.pairs.sentence2)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(scorer.similarities(*np.split(embeddings_SD, 2), where=self.task.name))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Score by word overlap; the plan refuses BM25, which ranks documents."""
        return self._task_score(jaccard_scores(self.pairs.sentence1, self.pairs.sentence2))

    def texts(self) -> TaskTexts:
        left_out = f"{counted(self.pairs.num_ungraded, 'pair')} without a score" if self.pairs.num_ungraded else ""
        both = zip(self.pairs.sentence1, self.pairs.sentence2, strict=True)
        return TaskTexts.of_pairs(self.task.name, both, left_out=left_out, given_groups=self.pairs.group)

    def curve(self, embeddings_SD: np.ndarray, scorer: RelationalScorer) -> list[float | None]:
        """Return the main score at each weight of the view's curve."""
        first_PD, second_PD = np.split(embeddings_SD, 2)
        return scorer.curve(first_PD, second_PD, self.pairs.score, self.pairs.subset, where=self.task.name)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        found = score_similarities(similarities_P, self.pairs.score, self.pairs.subset, self.task.aggregation, where=self.task.name)
        items = pa.table(found.items())
        return TaskScore(
            task=self.task.name, main=found.spearman, measures={"spearman": found.spearman, "pearson": found.pearson}, items=items
        )


def load_sts(task: Task, root: Path | None) -> LoadedSts:
    """Read the graded pairs of a task; raise DataError as `read_pairs`, and if all scores of a user file are equal."""
    pairs = read_graded_pairs(task, root)
    return LoadedSts(task=task, pairs=pairs if task.limit is None else pairs.only(drawn_rows(pairs.num_pairs, task)))


def read_graded_pairs(task: Task | GeometryTask, root: Path | None) -> Pairs:
    """Read graded pairs; those of a user file may have any scale, since only ranks count."""
    scale = (-math.inf, math.inf) if is_own_task(task) else (0.0, 5.0)
    return read_pairs(task.source, split=task.split, data_root=root, hub_revision=task.revision, score_range=scale)


@dataclass(frozen=True, kw_only=True)
class LoadedGeometry:
    """Sentences of graded pairs; there is no main score, since no single measure rates a cloud of embeddings."""

    task: GeometryTask
    pairs: Pairs

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.pairs.sentence1, *self.pairs.sentence2)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        found = geometry_of(self.pairs, embeddings_SD, positive_above=self.task.positive_above)
        measures: dict[str, float | None] = {
            "alignment": found.alignment,
            "uniformity": found.uniformity,
            "mean_cosine": found.mean_cosine,
            "effective_rank": found.effective_rank,
        }
        items = pa.table({"singular_value": found.singular_values})
        return TaskScore(task=self.task.name, main=None, measures=measures, items=items, has_main=False)

    def score_words(self, kind: Lexical) -> TaskScore:
        raise no_word_score(self.task.name, kind)

    def texts(self) -> TaskTexts:
        return TaskTexts.of_pairs(self.task.name, zip(self.pairs.sentence1, self.pairs.sentence2, strict=True))


def load_geometry(task: GeometryTask, root: Path | None) -> LoadedGeometry:
    """Read the pairs of a task; raise DataError as `read_pairs`."""
    return LoadedGeometry(task=task, pairs=read_graded_pairs(task, root))


def geometry_of(pairs: Pairs, embeddings_SD: np.ndarray, *, positive_above: float) -> Geometry:
    """Return the geometry of the distinct sentences of P pairs, from (2P, D) embeddings of the first, then the second sentences."""
    sentences = (*pairs.sentence1, *pairs.sentence2)
    first_row: dict[str, int] = {}
    for row, sentence in enumerate(sentences):
        first_row.setdefault(sentence, row)
    place = {sentence: number for number, sentence in enumerate(first_row)}
    positive = [
        (place[one], place[other])
        for one, other, score in zip(pairs.sentence1, pairs.sentence2, pairs.score, strict=True)
        if score > positive_above
    ]
    return measure_geometry(embeddings_SD[list(first_row.values())], positive_rows=positive or None)


@dataclass(frozen=True, kw_only=True)
class LoadedPairs:
    """Pairs that are paraphrases or not; the main score is average precision."""

    task: ParaphraseTask
    rows: Labelled
    labels: tuple[int, ...]

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.rows.texts[0], *self.rows.texts[1])

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(scorer.similarities(*np.split(embeddings_SD, 2), where=self.task.name))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Score by word overlap; the plan refuses BM25."""
        return self._task_score(jaccard_scores(*self.rows.texts))

    def texts(self) -> TaskTexts:
        first, second = self.rows.texts
        return TaskTexts.of_pairs(self.task.name, zip(first, second, strict=True), given_groups=self.rows.groups)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        found = score_paraphrases(similarities_P, self.labels, where=self.task.name)
        items = pa.table({"label": found.labels, "similarity": found.similarities})
        return TaskScore(task=self.task.name, main=found.ap, measures={"ap": found.ap, "share": found.share}, items=items)


def load_pairs(task: ParaphraseTask, root: Path | None) -> LoadedPairs:
    """Read the pairs of a task; raise DataError as `read_labelled` and `truths_of`, and if all labels are equal."""
    rows = labelled_rows(task, task.columns, None if task.split is None else (task.split,), root)
    labels = truths_of(rows, where=task.source)
    if len(set(labels)) < 2:
        raise DataError(
            where=task.source, found=f"one label, {labels[0]}, in all of {counted(len(labels), 'row')} read",
            expected="pairs of both labels, 1 and 0",
            remedy="Add pairs of the other label: pairs of one label cannot be ranked.",
        )  # fmt: skip
    return LoadedPairs(task=task, rows=rows, labels=labels)


@dataclass(frozen=True, kw_only=True)
class LoadedTriplets:
    """Anchors, their positives and their negatives; the main score is accuracy.

    A triplet is right if s(anchor, positive) > s(anchor, negative), with s the cosine or the relational score in float64. A tie is wrong,
    as in sentence-transformers' TripletEvaluator; random embeddings score 50. If all are ties, the score is undefined.
    """

    task: TripletTask
    anchors: tuple[str, ...]
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    groups: tuple[str, ...] = ()  # by the file's column of groups

    def __post_init__(self) -> None:
        if self.positives == self.negatives:
            raise DataError(
                where=self.task.name, found=f"a negative that equals the positive in all of {counted(len(self.anchors), 'triplet')}",
                expected="negatives that differ from positives", remedy="Correct the columns.",
            )  # fmt: skip

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.anchors, *self.positives, *self.negatives)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        anchors_RD, *others = np.split(embeddings_SD, 3)
        return self._task_score(*(scorer.similarities(anchors_RD, other_RD, where=self.task.name) for other_RD in others))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Score by word overlap; the plan refuses BM25."""
        return self._task_score(jaccard_scores(self.anchors, self.positives), jaccard_scores(self.anchors, self.negatives))

    def texts(self) -> TaskTexts:
        """Return one item per triplet, with anchor and positive as its pair."""
        items = tuple(zip(self.anchors, self.positives, self.negatives, strict=True))
        return TaskTexts(
            name=self.task.name,
            sentences=items,
            pairs=tuple((item, anchor, positive) for item, (anchor, positive, _) in enumerate(items)),
            given_groups=self.groups,
        )

    def _task_score(self, near_R: np.ndarray, far_R: np.ndarray) -> TaskScore:
        right_R = (near_R > far_R).astype(np.float64)
        accuracy = 100 * float(right_R.mean()) if (near_R != far_R).any() else None
        return TaskScore(task=self.task.name, main=accuracy, measures={"accuracy": accuracy}, items=pa.table({"accuracy": 100 * right_R}))


def load_triplets(task: TripletTask, root: Path | None) -> LoadedTriplets:
    """Read the triplets of a task; raise DataError as `read_texts`."""
    (anchors, positives, negatives), groups = read_texts(
        task.source, columns=task.columns, split=task.split, data_root=root, hub_revision=task.revision
    )
    return LoadedTriplets(task=task, anchors=anchors, positives=positives, negatives=negatives, groups=groups)
