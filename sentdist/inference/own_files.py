"""Tasks of the user's own, named by the paths of their files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sentdist.data.sources.files import missing, without_suffix
from sentdist.data.sources.mirror import address_of
from sentdist.data.sources.pinned import has_source
from sentdist.data.sources.retrieval_files import missing_parts
from sentdist.errors import DataError, RecipeError
from sentdist.plan.evaluation import is_own_rows
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.task_names import OWN_KINDS, own_parts
from sentdist.plan.tasks import TASKS
from sentdist.spelling import similar_names
from sentdist.table_files import TABLES

_NO_FILE = ("generated/", "hub:")  # what a source begins with that is no file


def own_files(tasks: Sequence[str], data: Path | None) -> tuple[tuple[str, ...], Path | None]:
    """Names of tasks and their data root, where `sts=pairs.tsv` may mean what it means in a shell.

    A source stands below the data root. Where nobody named one, or the root has none of these files and they lie where a shell would look,
    it is the current folder, or the nearest folder above all of these files if one lies elsewhere; and their names are those below it.

    Raises:
        RecipeError: such files beside tasks whose data lie below the data root.
        DataError: a file that neither has.
    """
    sources = {task: source for task in tasks if (source := _own_source(task))}
    if not sources or (data is not None and not _are_elsewhere(tasks, sources, data)):
        return tuple(tasks), data
    here, paths = os.getcwd(), {task: os.path.abspath(os.path.expanduser(source)) for task, source in sources.items()}
    is_here = all(os.path.commonpath([here, path]) == here for path in paths.values())
    root = here if is_here else os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    below = {task: Path(os.path.relpath(path, root)).as_posix() for task, path in paths.items()}
    return tuple(task.replace(sources[task], below[task], 1) if task in sources else task for task in tasks), Path(root)


def _are_elsewhere(tasks: Sequence[str], sources: Mapping[str, str], data: Path) -> bool:
    """Whether files are meant as in a shell although there is a data root. That of an address knows what it has only when it is asked."""
    if address_of(data) != str(data) or not data.is_dir():
        return False
    absent = {task: Path(source).expanduser() for task, source in sources.items() if not _is_below(source, data)}
    elsewhere = [task for task, path in absent.items() if has_source(path.name, path.parent)]
    below = [task for task in tasks if task not in elsewhere and not is_own_rows(task) and not _needs_no_file(task)]
    if elsewhere and below:
        raise RecipeError(
            where=f"task {elsewhere[0]}", found=f"a file that is not below the data root {data}, beside {below[0]}, which is",
            expected="tasks whose data lie below one folder", remedy="Score it in a command of its own, or put it there.",
        )  # fmt: skip
    for task, path in absent.items():
        if task not in elsewhere and TASK_KINDS[own_parts(task).kind].has_documents:
            raise _no_collection(task, path, data)
        if task not in elsewhere and path.name.endswith(TABLES):  # the reader may name others
            raise _nowhere(task, path, data)
    return bool(elsewhere)


def _nowhere(task: str, path: Path, data: Path) -> DataError:
    """The error for a file that neither place has."""
    near = similar_names(path.name, [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else [], most=1)
    remedy = f"Did you mean {path.parent / near[0]}?" if near else missing(str(path), data).remedy
    return DataError(
        where=f"task {task}", found=f"no such file under {data} and none in {Path.cwd()}", expected=f"{path} in one of them", remedy=remedy
    )


def _no_collection(task: str, path: Path, data: Path) -> DataError:
    """The error for documents, queries and judgements that neither place has."""
    folder = path.parent
    near = [folder, *folder.glob("*.zip"), *(corpus.parent for around in (folder, path) for corpus in around.glob("*/corpus.jsonl"))]
    known = [one.as_posix() for one in near if one.suffix == ".zip" or (one / "corpus.jsonl").is_file()]
    tables = [without_suffix(one.as_posix()).removesuffix("_qrels") for one in folder.glob("*_qrels.*")]
    missing = missing_parts(path.as_posix(), Path(), sorted({*known, *tables}))
    found = missing.found if path.exists() else f"nothing of that name under {data}, nor in {Path.cwd()}"
    return DataError(where=f"task {task}", found=found, expected=missing.expected, remedy=missing.remedy)


def _is_below(source: str, data: Path) -> bool:
    """Whether the data root has such a file, or folder, by a name below it."""
    path = Path(source).expanduser()
    return not path.is_absolute() and ".." not in path.parts and ((data / path).exists() or has_source(path.as_posix(), data))


def _needs_no_file(task: str) -> bool:
    """Whether a task's data are made or come from the hub."""
    source = TASKS[task].source if task in TASKS else own_parts(task).source
    return source.startswith(_NO_FILE)


def _own_source(task: str) -> str:
    """The file that a task of one's own names; empty where it names none."""
    own = own_parts(task)
    return own.source if own.kind in OWN_KINDS and not own.source.startswith(_NO_FILE) else ""
