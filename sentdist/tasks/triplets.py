"""Triplets of an anchor, its positive and its negative, scored by accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.errors import DataError, counted
from sentdist.tasks.cards import TaskCard
from sentdist.tasks.task import Floor, Measure, OfSentences, Task, TaskKind, TaskScore

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer


class TripletTask(Task):
    """Triplets, each correct if the anchor is closer to its positive than to its negative."""

    kind: Literal["triplets"] = "triplets"
    columns: tuple[str, str, str] = ("sent0", "sent1", "hard_neg")  # as in a training corpus

    @classmethod
    def of_card(cls, card: TaskCard, columns: tuple[str, ...]) -> dict[str, object]:
        return {"columns": columns}

    def num_encoded(self, items: int) -> int:
        return 3 * items

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedTriplets:
        """Read the triplets; raise DataError as `read_texts` or `read_rows`, and if negatives equal positives."""
        from sentdist.corpora.own_rows import open_split
        from sentdist.data.checked_rows import read_texts

        if self.own is None:
            columns, groups = read_texts(self.source, columns=self.columns, split=self.split, data_root=root, hub_revision=self.revision)
        else:
            rows = open_split(self.source, self.own, self.split, revision=self.revision, folders=folders, root=root)
            table, groups = rows.table(), rows.groups
            columns = tuple(tuple(table[name].to_pylist()) for name in table.column_names)
        anchors, positives, negatives = columns
        if positives == negatives:
            found = f"a negative that equals the positive in all of {counted(len(anchors), 'triplet')}"
            raise DataError(where=self.name, found=found, expected="negatives that differ", remedy="Correct the columns.")
        return LoadedTriplets(task=self, anchors=anchors, positives=positives, negatives=negatives, groups=groups)


TRIPLETS = TaskKind(
    name="triplets", value=TripletTask,
    main=Measure(name="accuracy", title="accuracy", unit="share of anchors closer to their positive × 100"),
    columns=("sent0", "sent1", "hard_neg"), floors=("word_overlap",), table="Triplets",
    own="`sent0`, `sent1`, `hard_neg`: an anchor, its positive, its negative; optional `group` and `split`", chooses=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedTriplets(OfSentences):
    """Anchors, their positives and their negatives; the main score is accuracy.

    A triplet is right if s(anchor, positive) > s(anchor, negative), with s the cosine or the relational score in float64. A tie is wrong,
    as in sentence-transformers' TripletEvaluator; random embeddings score 50. If all are ties, the score is undefined.
    """

    task: TripletTask
    anchors: tuple[str, ...]
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    groups: tuple[str, ...] = ()  # by the file's column of groups

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.anchors, *self.positives, *self.negatives)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        size = len(self.anchors)
        anchors_RD = embeddings_SD[:size]
        others = embeddings_SD[size : 2 * size], embeddings_SD[2 * size :]
        return self._task_score(*(scorer.similarities(anchors_RD, other_RD, where=self.task.name) for other_RD in others))

    def score_words(self, floor: Floor) -> TaskScore:
        """Score by word overlap; the plan refuses BM25."""
        from sentdist.evaluation.sts import jaccard_scores

        return self._task_score(jaccard_scores(self.anchors, self.positives), jaccard_scores(self.anchors, self.negatives))

    def texts(self) -> TaskTexts:
        """Return one item per triplet, with anchor and positive as its pair."""
        from sentdist.data.leaks import TaskTexts

        items = tuple(zip(self.anchors, self.positives, self.negatives, strict=True))
        pairs = tuple((item, anchor, positive) for item, (anchor, positive, _) in enumerate(items))
        return TaskTexts(name=self.task.name, sentences=items, pairs=pairs, given_groups=self.groups)

    def _task_score(self, near_R: np.ndarray, far_R: np.ndarray) -> TaskScore:
        right_R = (near_R > far_R).astype(float)
        accuracy = 100 * float(right_R.mean()) if (near_R != far_R).any() else None
        return TaskScore(task=self.task.name, main=accuracy, measures={"accuracy": accuracy}, items={"accuracy": 100 * right_R})
