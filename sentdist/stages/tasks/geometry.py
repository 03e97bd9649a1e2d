"""The shape of the embeddings of graded pairs' sentences: a task of its own, and a fact beside STS scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.sts_pairs import Pairs
from sentdist.data.task_texts import TaskTexts
from sentdist.evaluation.geometry import Geometry, measure_geometry
from sentdist.evaluation.lexical import Lexical
from sentdist.plan.task_kinds import GeometryTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore, no_word_score
from sentdist.stages.tasks.sts import read_graded_pairs


@dataclass(frozen=True, kw_only=True)
class LoadedGeometry:
    """Sentences of graded pairs; there is no main score, for no measure alone says that a cloud is good."""

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
    """Read the pairs of a task; DataError as `read_pairs` says."""
    return LoadedGeometry(task=task, pairs=read_graded_pairs(task, root))


def geometry_of(pairs: Pairs, embeddings_SD: np.ndarray, *, positive_above: float) -> Geometry:
    """The geometry of the different sentences of P pairs, from the (2P, D) embeddings of their first and then their second sentences."""
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
