"""How labelled texts score an encoder: by clusters of its embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.labels import Labelled
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import DataError, counted
from sentdist.evaluation.clustering import score_clusters
from sentdist.evaluation.lexical import Lexical
from sentdist.plan.task_kinds import ClusteringTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.labelled_rows import labelled_rows
from sentdist.stages.tasks.loaded_task import TaskScore, no_word_score


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
    """Read the texts of a task; DataError as `read_labelled` says, and for labels that no clusters can have."""
    rows = labelled_rows(task, (task.text,), None if task.split is None else (task.split,), root)
    num_labels, num_texts = len(set(rows.labels)), len(set(rows.texts[0]))
    if not 2 <= num_labels < num_texts:
        raise DataError(
            where=task.source, found=f"{counted(num_labels, 'label')} for {counted(num_texts, 'different text')}",
            expected="two labels or more, and more texts than labels", remedy="Name the label that groups of texts share.",
        )  # fmt: skip
    return LoadedClustering(task=task, rows=rows)
