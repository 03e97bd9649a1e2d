"""Geometry of the embeddings of the sentences of graded pairs; no single measure rates a cloud of embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.tasks.sts import read_graded_pairs
from sentdist.tasks.task import Measure, OfSentences, Task, TaskKind, TaskScore

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Pairs
    from sentdist.data.leaks import TaskTexts
    from sentdist.evaluation.geometry import Geometry
    from sentdist.tasks.scorer import Scorer

ALIGNMENT_ABOVE = 4.0  # gold score from which an STS pair counts as a positive pair (SimCSE's practice)


class GeometryTask(Task):
    """Geometry of the embeddings of the sentences of graded pairs: alignment, uniformity and others."""

    kind: Literal["geometry"] = "geometry"
    positive_above: float = ALIGNMENT_ABOVE

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedGeometry:
        """Read the pairs; raise DataError as `read_pairs`."""
        return LoadedGeometry(task=self, pairs=read_graded_pairs(self, root))


GEOMETRY = TaskKind(
    name="geometry", value=GeometryTask,
    main=Measure(name="uniformity", title="uniformity", unit="uniformity", lowest=-8.0, highest=0.0, larger_is_better=False),
    shown=("alignment", "uniformity", "mean_cosine", "effective_rank"),
    columns=("sentence1", "sentence2", "score"), table=None, works=("geometry", "effective_rank"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedGeometry(OfSentences):
    """Sentences of graded pairs; there is no main score."""

    task: GeometryTask
    pairs: Pairs

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.pairs.sentence1, *self.pairs.sentence2)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        found = geometry_of(self.pairs, embeddings_SD, positive_above=self.task.positive_above)
        measures = {name: getattr(found, name) for name in GEOMETRY.shown}
        return TaskScore(task=self.task.name, main=None, measures=measures, items={"singular_value": found.singular_values}, has_main=False)

    def texts(self) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

        return TaskTexts.of_pairs(self.task.name, zip(self.pairs.sentence1, self.pairs.sentence2, strict=True))


def geometry_of(pairs: Pairs, embeddings_SD: np.ndarray, *, positive_above: float = ALIGNMENT_ABOVE) -> Geometry:
    """Return the geometry of the distinct sentences of P pairs, from (2P, D) embeddings of the first, then the second sentences."""
    from sentdist.evaluation.geometry import measure_geometry

    first_row: dict[str, int] = {}
    for row, sentence in enumerate((*pairs.sentence1, *pairs.sentence2)):
        first_row.setdefault(sentence, row)
    place = {sentence: number for number, sentence in enumerate(first_row)}
    rows = zip(pairs.sentence1, pairs.sentence2, pairs.score, strict=True)
    positive = [(place[one], place[other]) for one, other, score in rows if score > positive_above]
    return measure_geometry(embeddings_SD[list(first_row.values())], positive_rows=positive or None)
