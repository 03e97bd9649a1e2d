"""Protocols of a loaded task, its score, and helpers to read rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from sentdist.data.checked_rows import Labelled, read_labelled
from sentdist.data.leaks import TaskTexts
from sentdist.data.sampler import shuffled
from sentdist.errors import RecipeError
from sentdist.evaluation.nearest import Lexical
from sentdist.recipe.specs import Task
from sentdist.recipe.task_kinds import ClassificationTask, ClusteringTask, ParaphraseTask, is_own_task
from sentdist.stages.scores.scorer import Scorer


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """Scores of one task."""

    task: str
    main: float | None  # × 100; None: undefined
    measures: dict[str, float | None]  # all, by name
    items: pa.Table  # one row per pair, query or text
    has_main: bool = True  # False if no single measure rates an encoder


class LoadedTask(Protocol):
    """A task with its data in memory."""

    @property
    def sentences(self) -> Sequence[str]:
        """All sentences to embed, repetitions included."""
        ...

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        """Score the embeddings of `sentences`, in their order, by cosine or by the encoder's relations."""
        ...

    def score_words(self, kind: Lexical) -> TaskScore:
        """Score by words alone, without an encoder."""
        ...

    def texts(self) -> TaskTexts:
        """Return the tested texts, which training must not have seen."""
        ...


class QueryTask(LoadedTask, Protocol):
    """A task whose kind `has_queries`."""

    @property
    def are_queries(self) -> Sequence[bool]:
        """Whether each of `sentences` is a query; the others are documents."""
        ...


def no_word_score(task: str, kind: Lexical) -> RecipeError:
    """Return the error for a task that words alone cannot score; the plan refuses it before any work."""
    expected = "an encoder: the task is scored on its embeddings"
    return RecipeError(where=f"task {task}", found=f"the floor {kind}", expected=expected, remedy="Leave the floor out.")


def drawn_rows(num_items: int, task: Task) -> np.ndarray:
    """Return the sorted positions of the items that a task's limit keeps, the same for every training."""
    return np.sort(shuffled(num_items, seed=0, stream=f"limit of {task.name}")[: task.limit])


def labelled_rows(
    task: ClassificationTask | ClusteringTask | ParaphraseTask, columns: Sequence[str], splits: Sequence[str] | None, root: Path | None
) -> Labelled:
    """Read the texts in these columns with their labels, of all splits if None; raise DataError as `read_labelled`.

    Rows without a text count in published data sets, which have a few; in a user file they are an error.
    """
    return read_labelled(
        task.source,
        columns=columns,
        label=task.label,
        splits=splits,
        may_be_empty=not is_own_task(task),
        data_root=root,
        hub_revision=task.revision,
    )
