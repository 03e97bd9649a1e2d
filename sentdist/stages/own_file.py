"""How the stages read a person's own file: where it lies on this machine, the rows of a side, as a table or as queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from sentdist.data.own.file_rows import OwnFile
from sentdist.data.own.rows import read_groups, read_queries, read_rows
from sentdist.data.own.sides import SIDES
from sentdist.data.retrieval import Retrieval
from sentdist.data.sources.mirror import copy_into_mirror
from sentdist.errors import DataError
from sentdist.plan.specs import OwnRows


def read_own(name: str, own: OwnRows, side: str | None, *, revision: str, folders: Mapping[str, str], root: Path | None) -> pa.Table:
    """The rows of a side (train, dev or test); DataError as `read_rows` and `place_of` say."""
    return read_rows(name, place_of(name, revision, folders, root), _file(own), SIDES.index(side or ""), revision=revision)


def own_groups(
    name: str, own: OwnRows, side: str | None, *, revision: str, folders: Mapping[str, str], root: Path | None
) -> tuple[str, ...]:
    """What the rows of a side belong to, as `read_groups` says."""
    return read_groups(name, place_of(name, revision, folders, root), _file(own), SIDES.index(side or ""), revision=revision)


def own_queries(name: str, own: OwnRows, side: str | None, *, revision: str, folders: Mapping[str, str], root: Path | None) -> Retrieval:
    """The rows of a side as queries and documents; DataError as `read_own`."""
    return read_queries(name, place_of(name, revision, folders, root), _file(own), SIDES.index(side or ""), revision=revision)


def place_of(name: str, revision: str, folders: Mapping[str, str], root: Path | None) -> Path | None:
    """Where a file lies; None for a data set of the hub. folders: by revision, as planning found what was given by path; others lie
    below the data root.

    Raises:
        DataError: a file that this run was not planned with.
    """
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


def _file(own: OwnRows) -> OwnFile:
    return OwnFile(**own.model_dump())
