"""How graded pairs score an encoder: the rank correlation of similarities with grades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.sts_pairs import Pairs, read_pairs
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import DataError, counted
from sentdist.evaluation.lexical import Lexical
from sentdist.evaluation.sts import jaccard_scores, score_similarities
from sentdist.plan.specs import Task
from sentdist.plan.task_kinds import GeometryTask, is_own_task
from sentdist.stages.scores.scorer import RelationalScorer, Scorer
from sentdist.stages.tasks.loaded_task import TaskScore, drawn_rows


@dataclass(frozen=True, kw_only=True)
class LoadedSts:
    """Graded sentence pairs; the main score is Spearman's correlation."""

    task: Task
    pairs: Pairs

    def __post_init__(self) -> None:
        # Of the table's pairs, the geometry of their embeddings is reported beside a score, and without one.
        if is_own_task(self.task) and len(set(self.pairs.score.tolist())) < 2:
            alike = counted(self.pairs.num_pairs, "pair")
            raise DataError(
                where=self.task.name, found=f"one score, {self.pairs.score[0]:g}, in all of {alike}", expected="scores that differ",
                remedy="A correlation needs pairs that are more alike than others: give more rows.",
            )  # fmt: skip

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.pairs.sentence1, *self.pairs.sentence2)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(scorer.similarities(*np.split(embeddings_SD, 2), where=self.task.name))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Word overlap; BM25 ranks documents and says nothing of pairs (the plan refuses it)."""
        return self._task_score(jaccard_scores(self.pairs.sentence1, self.pairs.sentence2))

    def texts(self) -> TaskTexts:
        left_out = f"{counted(self.pairs.num_ungraded, 'pair')} without a score" if self.pairs.num_ungraded else ""
        both = zip(self.pairs.sentence1, self.pairs.sentence2, strict=True)
        return TaskTexts.of_pairs(self.task.name, both, left_out=left_out, given_groups=self.pairs.group)

    def curve(self, embeddings_SD: np.ndarray, scorer: RelationalScorer) -> list[float | None]:
        """The main score at each weight of the view's curve."""
        first_PD, second_PD = np.split(embeddings_SD, 2)
        return scorer.curve(first_PD, second_PD, self.pairs.score, self.pairs.subset, where=self.task.name)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        found = score_similarities(similarities_P, self.pairs.score, self.pairs.subset, self.task.aggregation, where=self.task.name)
        items = pa.table(found.items())
        return TaskScore(
            task=self.task.name, main=found.spearman, measures={"spearman": found.spearman, "pearson": found.pearson}, items=items
        )


def load_sts(task: Task, root: Path | None) -> LoadedSts:
    """Read the graded pairs of a task; DataError as `read_pairs` says, and for scores that are all alike."""
    pairs = read_graded_pairs(task, root)
    return LoadedSts(task=task, pairs=pairs if task.limit is None else pairs.only(drawn_rows(pairs.num_pairs, task)))


def read_graded_pairs(task: Task | GeometryTask, root: Path | None) -> Pairs:
    """Graded pairs; those of a user's own may be on any scale, for ranks do not ask."""
    scale = (-math.inf, math.inf) if is_own_task(task) else (0.0, 5.0)
    return read_pairs(task.source, split=task.split, data_root=root, hub_revision=task.revision, score_range=scale)
