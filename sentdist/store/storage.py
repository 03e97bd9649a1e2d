"""Open the root of a store and translate errors of its file system to StoreError."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from sentdist.errors import NO_RIGHT, WORDS, StoreError, os_error_of, words_for
from sentdist.files import unreadable
from sentdist.text import opened_as, without_secrets

REASONS: dict[int | None, str] = {
    **WORDS,
    **dict.fromkeys(NO_RIGHT, "no permission to read or write"),
    errno.ENOTDIR: "a file where a folder should be",
    errno.EEXIST: "a file where a folder should be",
    errno.ELOOP: "a cycle of symbolic links",
}
BRING_BACK = "Was its file system unmounted, or the folder moved? Restore it and submit again: finished work in it is kept."


def shown_root(root: str) -> str:
    """Return the address of a store for messages and records: without secrets and without the query after `?`."""
    return without_secrets(root).partition("?")[0].rstrip("/") if "://" in root else root


def open_root(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a local path or an address, and the path on it.

    Raises:
        StoreError: an address that pyarrow does not know, or without a bucket.
    """
    if "://" not in root:
        return fs.LocalFileSystem(), str(Path(root).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(opened_as(root))
    except (OSError, ValueError) as error:
        raise StoreError(
            where=shown_root(root), found=str(error), expected="a local path, s3:// or gs:// address", remedy="Correct the address."
        ) from None
    if not base.strip("/"):
        expected, remedy = "an address such as s3://bucket/prefix", "Correct the address."
        raise StoreError(where=shown_root(root), found="no bucket", expected=expected, remedy=remedy)
    return filesystem, base.rstrip("/")


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Convert OSErrors while a store is read to StoreError."""
    try:
        yield
    except OSError as error:
        remedy = "Check the address, the network and the credentials. Finished work is kept; run it again."
        raise StoreError(where=root, found=reason_of(error), expected="a store that can be read", remedy=remedy) from error


@contextmanager
def writing(root: str) -> Iterator[None]:
    """Convert OSErrors while a store is written to StoreError."""
    try:
        yield
    except OSError as error:
        raise not_written(root, error) from error


def is_of_disk(error: OSError, below: str | Path) -> bool:
    """Return whether an error is a disk failure or missing permission for a file below a folder, or without the name of a file."""
    if words_for(error) is None and error.errno not in NO_RIGHT:
        return False
    return not isinstance(error.filename, str | bytes) or Path(os.fsdecode(error.filename)).is_relative_to(below)


@contextmanager
def disk_errors_of_store(below: Path, *, shown: str) -> Iterator[None]:
    """Convert disk failures and missing permissions for files below a folder to StoreError while an artifact is written."""
    try:
        yield
    except Exception as error:
        met = os_error_of(error)
        if met is not None and is_of_disk(met, below):
            raise not_written(shown, met) from error
        raise


def reason_of(error: OSError) -> str:
    """Return why a file system failed; of pyarrow's text about servers, which names its internal calls, the end."""
    return REASONS.get(error.errno) or " ".join(str(error).split()).rpartition("AWS Error ")[2][-300:]


def not_written(root: str, error: OSError) -> StoreError:
    """Return the error for a store that could not be written."""
    if error.errno == errno.ENOENT:  # the folder has disappeared: every write makes its folder first
        found, expected = f"a folder that has disappeared: {error.filename}", "the store that this run started with"
        return StoreError(where=root, found=found, expected=expected, remedy=BRING_BACK)
    return StoreError(
        where=root,
        found="no permission to write" if error.errno in NO_RIGHT else reason_of(error),
        expected="a store that can be written",
        remedy="Free space, correct the permissions, or name another store. Finished work is kept; submit again.",
    )


def content_at(filesystem: fs.FileSystem, path: str) -> bytes | None:
    """Return the bytes of a file; None if it does not exist.

    Raises:
        StoreError: a folder, pipe or device; opening a pipe may block forever.
    """
    try:
        if isinstance(filesystem, fs.LocalFileSystem) and Path(path).exists() and (found := unreadable(Path(path))) is not None:
            raise StoreError(where=path, found=found, expected="a file", remedy="Move it out of the store and run again.")
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_other_size(address: str, expected: int | None, found: int) -> None:
    """Raise StoreError if another process has appended to a file. expected: its size in bytes; None: any."""
    if expected not in (None, found):
        remedy = "It was submitted a second time: follow that run. Finished work is kept."
        raise StoreError(where=address, found="lines of another process", expected="a single writing process", remedy=remedy)
