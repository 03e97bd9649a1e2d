"""Tasks of the user's own, named by the paths of their files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sentdist.plan.chosen_tasks import OWN_KINDS, own_parts

_NO_FILE = ("generated/", "hub:")  # what a source begins with that is no file


def own_files(tasks: Sequence[str], data: Path | None) -> tuple[tuple[str, ...], Path | None]:
    """Names of tasks and their data root, where `sts=pairs.tsv` may mean what it means in a shell.

    A source stands below the data root. Where nobody named one, it is the current folder, or the nearest folder above all of these files
    if one lies elsewhere; and their names are those below it.
    """
    sources = {task: source for task in tasks if (source := _own_source(task))}
    if not sources or data is not None:
        return tuple(tasks), data
    here, paths = os.getcwd(), {task: os.path.abspath(os.path.expanduser(source)) for task, source in sources.items()}
    is_here = all(os.path.commonpath([here, path]) == here for path in paths.values())
    root = here if is_here else os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    below = {task: Path(os.path.relpath(path, root)).as_posix() for task, path in paths.items()}
    return tuple(task.replace(sources[task], below[task], 1) if task in sources else task for task in tasks), Path(root)


def _own_source(task: str) -> str:
    """The file that a task of one's own names; empty where it names none."""
    kind, source, *_ = own_parts(task)
    return source if kind in OWN_KINDS and not source.startswith(_NO_FILE) else ""
