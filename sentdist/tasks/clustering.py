"""Labelled texts, clustered by k-means with as many clusters as labels, scored by the V-measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from sentdist.errors import DataError, counted
from sentdist.tasks.cards import TaskCard
from sentdist.tasks.task import Measure, OfSentences, Task, TaskKind, TaskScore, labelled_rows

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Labelled
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer


class ClusteringTask(Task):
    """Labelled texts, clustered by k-means with as many clusters as labels."""

    kind: Literal["clustering"] = "clustering"
    text: str = "text"
    label: str = "label"
    num_runs: Annotated[int, Field(ge=1)] = 5  # with seeds 0, 1, …

    @classmethod
    def of_card(cls, card: TaskCard, columns: tuple[str, ...]) -> dict[str, object]:
        return {"text": columns[0], "label": card.label}

    def num_encoded(self, items: int) -> int:
        return items

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedClustering:
        """Read the texts; raise DataError as `read_labelled`, and for too few or too many labels."""
        rows = labelled_rows(self, (self.text,), self.label, None if self.split is None else (self.split,), root)
        num_labels, num_texts = len(set(rows.labels)), len(set(rows.texts[0]))
        if not 2 <= num_labels < num_texts:
            found, expected = f"{counted(num_labels, 'label')} for {counted(num_texts, 'different text')}", "two labels or more"
            raise DataError(where=self.source, found=found, expected=expected, remedy="Name a label column that groups of texts share.")
        return LoadedClustering(task=self, rows=rows)


CLUSTERING = TaskKind(
    name="clustering", value=ClusteringTask, main=Measure(name="v_measure", title="V-measure", unit="V-measure × 100"),
    columns=("text",), further=lambda card: (card.label,), table="Clusters", works=("v_measure",), own="`text`, `label`; optional `group`",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedClustering(OfSentences):
    """Labelled texts; the main score is the V-measure of their clusters."""

    task: ClusteringTask
    rows: Labelled

    @property
    def sentences(self) -> Sequence[str]:
        return self.rows.texts[0]

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        from sentdist.evaluation.classification import score_clusters

        v_measure, clusters = score_clusters(embeddings_SD, self.rows.labels, num_runs=self.task.num_runs, where=self.task.name)
        items = {"label": list(self.rows.labels), "cluster": clusters}
        return TaskScore(task=self.task.name, main=v_measure, measures={"v_measure": v_measure}, items=items)

    def texts(self) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

        return TaskTexts(name=self.task.name, sentences=tuple((text,) for text in self.sentences), pairs=(), given_groups=self.rows.groups)
