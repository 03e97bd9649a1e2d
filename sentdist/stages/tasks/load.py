"""Load the data of a planned task into memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sentdist.data.mirror import data_folder
from sentdist.data.sources import check_pinned
from sentdist.recipe.task_kinds import TASK_KINDS, ScoredTask, own_rows_of
from sentdist.stages.tasks.loaded_task import LoadedTask

MODULES = {  # of kinds that share one
    **dict.fromkeys(("geometry", "pairs", "triplets"), "sts"),
    "clustering": "classification",
    **dict.fromkeys(("forums", "reranking"), "retrieval"),
}


def load_task(task: ScoredTask, data_root: str | None, folders: Mapping[str, str] = MappingProxyType({})) -> LoadedTask:
    """Read a task's data; raise DataError as its reader, and for content that has changed since planning.

    Args:
        folders: Revision -> folder, of files given by path.
    """
    root = data_folder(data_root)
    if (own := own_rows_of(task)) is not None:
        from sentdist.stages.tasks.held_out_rows import load_own_rows  # brings datasketch, which takes a second to import

        return load_own_rows(task, own, folders, root)
    for source, revision in TASK_KINDS[task.kind].pins(task):
        check_pinned(source, revision, data_root=root)
    return loader_of(task.kind)(task, root)


def loader_of(kind: str) -> Callable[[Any, Path | None], LoadedTask]:
    """Return `load_KIND` of the module that scores a kind, imported on demand: the library of classifiers is slow to import."""
    module = MODULES.get(kind, kind)
    loader: Callable[[Any, Path | None], LoadedTask] = getattr(importlib.import_module(f"sentdist.stages.tasks.{module}"), f"load_{kind}")
    return loader
