"""Pairs that are paraphrases or not, scored by average precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.errors import DataError, counted
from sentdist.tasks.cards import TaskCard
from sentdist.tasks.task import Floor, Measure, OfSentences, Task, TaskKind, TaskScore, halves, labelled_rows

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Labelled
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer


class ParaphraseTask(Task):
    """Pairs that are paraphrases (label 1) or not (0), ranked by their cosine."""

    kind: Literal["pairs"] = "pairs"
    columns: tuple[str, str] = ("sentence1", "sentence2")
    label: str = "label"

    @classmethod
    def of_card(cls, card: TaskCard, columns: tuple[str, ...]) -> dict[str, object]:
        return {"columns": columns, "label": card.label}

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedPairs:
        """Read the pairs; raise DataError as `read_labelled` and `truths_of`, and if all labels are equal."""
        from sentdist.data.checked_rows import truths_of

        rows = labelled_rows(self, self.columns, self.label, None if self.split is None else (self.split,), root)
        labels = truths_of(rows, where=self.source)
        if len(set(labels)) < 2:
            found = f"one label, {labels[0]}, in all of {counted(len(labels), 'row')} read"
            raise DataError(
                where=self.source, found=found, expected="pairs of both labels, 1 and 0", remedy="Add pairs of the other label."
            )
        return LoadedPairs(task=self, rows=rows, labels=labels)


PAIRS = TaskKind(
    name="pairs", value=ParaphraseTask, main=Measure(name="ap", title="average precision", unit="average precision × 100"),
    columns=("sentence1", "sentence2"), further=lambda card: (card.label,), floors=("word_overlap",), table="Paraphrases",
    own="`sentence1`, `sentence2`, `label` 1 for a paraphrase, else 0; optional `group`", scale="precision", chooses=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedPairs(OfSentences):
    """Pairs that are paraphrases or not; the main score is average precision."""

    task: ParaphraseTask
    rows: Labelled
    labels: tuple[int, ...]

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.rows.texts[0], *self.rows.texts[1])

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(scorer.similarities(*halves(embeddings_SD), where=self.task.name))

    def score_words(self, floor: Floor) -> TaskScore:
        """Score by word overlap; the plan refuses BM25."""
        from sentdist.evaluation.sts import jaccard_scores

        return self._task_score(jaccard_scores(*self.rows.texts))

    def texts(self) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

        return TaskTexts.of_pairs(self.task.name, zip(*self.rows.texts, strict=True), given_groups=self.rows.groups)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        import numpy as np

        from sentdist.evaluation.sts import ranked_precision

        labels = np.asarray(self.labels)
        main, share = ranked_precision(similarities_P, labels), 100.0 * float(labels.mean())  # share: expected of random similarities
        items = {"label": labels, "similarity": similarities_P}
        return TaskScore(task=self.task.name, main=main, measures={"ap": main, "share": share}, items=items)
