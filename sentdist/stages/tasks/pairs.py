"""How pairs that are paraphrases or not score an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.labels import Labelled, truths_of
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import DataError, counted
from sentdist.evaluation.lexical import Lexical
from sentdist.evaluation.paraphrases import score_paraphrases
from sentdist.evaluation.sts import jaccard_scores
from sentdist.plan.task_kinds import ParaphraseTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.labelled_rows import labelled_rows
from sentdist.stages.tasks.loaded_task import TaskScore


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
        """Word overlap; the plan refuses BM25 here."""
        return self._task_score(jaccard_scores(*self.rows.texts))

    def texts(self) -> TaskTexts:
        first, second = self.rows.texts
        return TaskTexts.of_pairs(self.task.name, zip(first, second, strict=True), given_groups=self.rows.groups)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        found = score_paraphrases(similarities_P, self.labels, where=self.task.name)
        items = pa.table({"label": found.labels, "similarity": found.similarities})
        return TaskScore(task=self.task.name, main=found.ap, measures={"ap": found.ap, "share": found.share}, items=items)


def load_pairs(task: ParaphraseTask, root: Path | None) -> LoadedPairs:
    """Read the pairs of a task; DataError as `read_labelled` and `truths_of` say, and for one label alone."""
    rows = labelled_rows(task, task.columns, None if task.split is None else (task.split,), root)
    labels = truths_of(rows, where=task.source)
    if len(set(labels)) < 2:
        raise DataError(
            where=task.source, found=f"one label, {labels[0]}, in all of {counted(len(labels), 'row')} read",
            expected="pairs of both labels, 1 and 0",
            remedy="Add some of the other: among pairs of one label none can stand before the others.",
        )  # fmt: skip
    return LoadedPairs(task=task, rows=rows, labels=labels)
