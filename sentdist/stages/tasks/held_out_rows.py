"""Load the held-out rows of a user file as a task: graded pairs, triplets, or queries with their positives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from sentdist.recipe.task_kinds import ScoredTask, TripletTask
from sentdist.stages.tasks.loaded_task import LoadedTask
from sentdist.stages.tasks.retrieval import LoadedRetrieval
from sentdist.stages.tasks.sts import LoadedSts, LoadedTriplets

from sentdist.corpora.own_rows import open_split
from sentdist.data.checked_rows import Pairs
from sentdist.recipe.specs import OwnRows, Task


def load_own_rows(task: ScoredTask, own: OwnRows, folders: Mapping[str, str], root: Path | None) -> LoadedTask:
    """Read the rows of a task's split.

    Raises:
        DataError: the file is missing, or has changed since planning.
        TypeError: a kind of task that held-out rows cannot be.
    """
    match task:
        case TripletTask() | Task(kind="sts" | "retrieval"):
            rows = open_split(task.source, own, task.split, revision=task.revision, folders=folders, root=root)
            if task.kind == "retrieval":
                collection = rows.queries()
                return LoadedRetrieval(task=task, collection=collection, rows=tuple(range(len(collection.query_ids))))
            table = rows.table()
            first, second, third = (tuple(table[name].to_pylist()) for name in table.column_names)
            if isinstance(task, TripletTask):
                return LoadedTriplets(task=task, anchors=first, positives=second, negatives=third, groups=rows.groups)
            subsets = (task.source,) * table.num_rows
            pairs = Pairs(subset=subsets, sentence1=first, sentence2=second, score=np.array(third), group=rows.groups)
            return LoadedSts(task=task, pairs=pairs)
    raise TypeError(f"held-out rows as a task of kind {task.kind} are not implemented")
