"""How triplets score an encoder: the share of anchors that are nearer to their positive than to their negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.labels import read_texts
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import DataError, counted
from sentdist.evaluation.lexical import Lexical
from sentdist.evaluation.sts import jaccard_scores
from sentdist.plan.task_kinds import TripletTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore


@dataclass(frozen=True, kw_only=True)
class LoadedTriplets:
    """Anchors, their positives and their negatives; the main score is accuracy.

    A triplet is right where s(anchor, positive) > s(anchor, negative), s the cosine or the score by relations, in float64. A tie is wrong,
    as sentence-transformers' TripletEvaluator has it; random embeddings score 50. Where all are ties there is no score.
    """

    task: TripletTask
    anchors: tuple[str, ...]
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    groups: tuple[str, ...] = ()  # by the file's column of groups

    def __post_init__(self) -> None:
        if self.positives == self.negatives:
            raise DataError(
                where=self.task.name, found=f"a negative that is the positive in all of {counted(len(self.anchors), 'triplet')}",
                expected="negatives that are other texts", remedy="Correct the columns.",
            )  # fmt: skip

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.anchors, *self.positives, *self.negatives)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        anchors_RD, *others = np.split(embeddings_SD, 3)
        return self._task_score(*(scorer.similarities(anchors_RD, other_RD, where=self.task.name) for other_RD in others))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Word overlap; the plan refuses BM25 here."""
        return self._task_score(jaccard_scores(self.anchors, self.positives), jaccard_scores(self.anchors, self.negatives))

    def texts(self) -> TaskTexts:
        """An item a triplet, its pair the anchor with its positive."""
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
    """Read the triplets of a task; DataError as `read_texts` says."""
    (anchors, positives, negatives), groups = read_texts(
        task.source, columns=task.columns, split=task.split, data_root=root, hub_revision=task.revision
    )
    return LoadedTriplets(task=task, anchors=anchors, positives=positives, negatives=negatives, groups=groups)
