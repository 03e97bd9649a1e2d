"""What a task asks of an encoder, and what it says of it."""

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
from sentdist.plan.specs import Task
from sentdist.plan.task_kinds import ClassificationTask, ClusteringTask, ParaphraseTask, is_own_task
from sentdist.stages.scores.scorer import Scorer


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """What came out of one task. main: × 100, None where it is not defined. measures: all, by name. items: one row a pair, query or text.

    has_main: False where no measure alone says how good an encoder is.
    """

    task: str
    main: float | None
    measures: dict[str, float | None]
    items: pa.Table
    has_main: bool = True


class LoadedTask(Protocol):
    """A task with its data in memory."""

    @property
    def sentences(self) -> Sequence[str]:
        """All sentences to embed, repetitions included."""
        ...

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        """Scores from the embeddings of `sentences`, in their order. scorer: by cosine or by the encoder's relations."""
        ...

    def score_words(self, kind: Lexical) -> TaskScore:
        """Scores from words alone, without an encoder."""
        ...

    def texts(self) -> TaskTexts:
        """What is tested: what training must not have seen."""
        ...


class QueryTask(LoadedTask, Protocol):
    """A task whose kind `has_queries`."""

    @property
    def are_queries(self) -> Sequence[bool]:
        """Which of `sentences` are queries, in their order; the others are documents."""
        ...


def no_word_score(task: str, kind: Lexical) -> RecipeError:
    """The error for a task that words alone cannot score; the plan refuses it before any work."""
    return RecipeError(
        where=f"task {task}",
        found=f"the floor {kind}",
        expected="an encoder: the task is scored on its embeddings",
        remedy="Leave the floor out.",
    )


def drawn_rows(num_items: int, task: Task) -> np.ndarray:
    """The places of the items that a task's limit leaves, in order: the same ones for every training."""
    return np.sort(shuffled(num_items, seed=0, stream=f"limit of {task.name}")[: task.limit])


def labelled_rows(
    task: ClassificationTask | ClusteringTask | ParaphraseTask, columns: Sequence[str], splits: Sequence[str] | None, root: Path | None
) -> Labelled:
    """Read the texts in these columns, with their labels; splits: None for all rows. DataError as `read_labelled`.

    Published data sets have a few rows without a text, which count; in a person's own file such a row is a mistake.
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
