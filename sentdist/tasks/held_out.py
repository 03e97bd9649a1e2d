"""Read the rows of one split of a user file: as rows, their groups, or queries with documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import DataError
from sentdist.recipe.specs import OwnRows
from sentdist.tasks.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from sentdist.data.own.rows import OwnFile
    from sentdist.data.retrieval import Retrieval


def read_own(name: str, own: OwnRows, side: str | None, *, revision: str, folders: Mapping[str, str], root: Path | None) -> pa.Table:
    """Return the rows of a split (train, dev or test); raise DataError as `read_rows` and `place_of`."""
    from sentdist.data.own.rows import read_rows  # brings datasketch, which takes a second to import

    return read_rows(*_file(name, own, side, revision, folders, root), revision=revision)


def held_out_rows(task: Task, root: Path | None, folders: Mapping[str, str]) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the rows of a task's split, and the group of each, () without groups."""
    from sentdist.data.own.rows import read_groups, read_rows

    file = _file(task.source, task.own, task.split, task.revision, folders, root)
    return read_rows(*file, revision=task.revision), read_groups(*file, revision=task.revision)


def held_out_queries(task: Task, root: Path | None, folders: Mapping[str, str]) -> Retrieval:
    """Return the rows of a task's split as queries and documents."""
    from sentdist.data.own.rows import read_queries

    return read_queries(*_file(task.source, task.own, task.split, task.revision, folders, root), revision=task.revision)


def _file(
    name: str, own: OwnRows | None, side: str | None, revision: str, folders: Mapping[str, str], root: Path | None
) -> tuple[str, Path | None, OwnFile, int]:
    """What the readers take: name, path, how the file is read, and the number of the split."""
    from sentdist.data.own.rows import OwnFile
    from sentdist.data.own.split import SIDES

    assert own is not None
    file = OwnFile(**own.model_dump(exclude={"separator", "has_header"}))
    return name, place_of(name, revision, folders, root), file, SIDES.index(side or "")


def place_of(name: str, revision: str, folders: Mapping[str, str], root: Path | None) -> Path | None:
    """Return the path of a file; None for a hub data set.

    Args:
        folders: Revision -> folder, of files given by path; others are below the data root.

    Raises:
        DataError: the run was not planned with this file.
    """
    from sentdist.data.sources.mirror import copy_into_mirror

    if name.startswith("hub:"):
        return None
    if revision in folders:
        return Path(folders[revision]) / name
    if root is None:
        raise DataError(
            where=name, found="no such file in this run", expected=f"the file with content {revision}", remedy="Plan with corpus.file."
        )
    copy_into_mirror(name, root)
    return root / name
