"""How the held-out rows of a person's own file become a task: graded pairs, triplets, or queries that look for their positives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sentdist.data.sts_pairs import Pairs
from sentdist.plan.specs import Task
from sentdist.plan.task_kinds import TripletTask
from sentdist.stages.own_file import own_groups, own_queries, read_own
from sentdist.stages.tasks.retrieval import LoadedRetrieval
from sentdist.stages.tasks.sts import LoadedSts
from sentdist.stages.tasks.triplets import LoadedTriplets


def load_own_rows(task: Task | TripletTask, folders: Mapping[str, str], root: Path | None) -> LoadedSts | LoadedRetrieval | LoadedTriplets:
    """Read the rows of a task's side.

    Raises:
        DataError: a file that is not there, or has changed since it was planned with.
    """
    assert task.own is not None, "a task of a person's own file"
    if task.kind == "retrieval":
        collection = own_queries(task.source, task.own, task.split, revision=task.revision, folders=folders, root=root)
        return LoadedRetrieval(task=task, collection=collection, rows=tuple(range(len(collection.query_ids))))
    table = read_own(task.source, task.own, task.split, revision=task.revision, folders=folders, root=root)
    groups = own_groups(task.source, task.own, task.split, revision=task.revision, folders=folders, root=root)
    columns = [tuple(table[name].to_pylist()) for name in table.column_names]
    if isinstance(task, TripletTask):
        return LoadedTriplets(task=task, anchors=columns[0], positives=columns[1], negatives=columns[2], groups=groups)
    pairs = Pairs(
        subset=(task.source,) * table.num_rows, sentence1=columns[0], sentence2=columns[1], score=np.array(columns[2]), group=groups
    )
    return LoadedSts(task=task, pairs=pairs)
