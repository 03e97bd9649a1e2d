"""Open the root of a store, translate its errors, and read and write plain files; the interface of `LocalStorage` and `ObjectStorage`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from pyarrow import fs

from sentdist.errors import NO_RIGHT, WORDS, StoreError, os_error_of, words_for
from sentdist.files import unreadable
from sentdist.store.record import Record
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


class Storage(Protocol):
    """Storage of the files of a store. A `place` is a path below its root.

    Methods raise OSErrors of the disk or the server, or a StoreError where documented.
    """

    is_shared: bool  # all workers access the files directly; else each machine has copies
    was_written: bool  # by this process or by the sender of the store; then it is not created again

    def address(self, place: str) -> str:
        """Return the address of a place, for records and users."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Convert errors to StoreError within the context, for small reads."""
        ...

    def check(self) -> None:
        """Raise StoreError if the store was written and has disappeared."""
        ...

    def publish(self, folder: Path, record: Record) -> None:
        """Move a staged folder to its place with its record, unless another writer committed first."""
        ...

    def move(self, place: str, target: str) -> None:
        """Move a folder; raise FileNotFoundError if there is none, or another process moved it first."""
        ...

    def remove(self, place: str) -> None:
        """Remove a folder; raise FileNotFoundError as `move` does."""
        ...

    def write(self, place: str, content: bytes) -> None:
        """Write a file atomically."""
        ...

    def append_line(self, place: str, line: str, *, size: int | None) -> int:
        """Append a line to a file and return its size (bytes); raise StoreError unless it was `size` before (None: any)."""
        ...

    def write_folder(self, folder: Path, place: str) -> None:
        """Copy the files of a local folder to a place, over existing ones."""
        ...

    def add_files(self, folder: Path, place: str) -> None:
        """Move or copy the files of a scratch folder to a place that may have others; they are durable when this returns."""
        ...

    def scratch(self, purpose: str, *, mode: int = 0o700) -> AbstractContextManager[Path]:
        """Make a local folder for files to be added to the store; it is removed when the context ends. See `scratch_folder`."""
        ...

    def staged(self) -> AbstractContextManager[Path]:
        """Like `scratch`, for an artifact; errors of the disk are raised as StoreError."""
        ...

    def local(self, place: str) -> AbstractContextManager[Path]:
        """Return a local folder with the files at a place: the place itself, or a copy that is removed when the context ends."""
        ...

    def files_of(self, record: Record) -> Path:
        """Return a local folder with the files of an artifact: in the store, or a copy that stays on this machine."""
        ...

    def keep(self, folder: Path) -> None:
        """Mark a folder from `files_of` as used now: the least recently used copies are removed first."""
        ...

    def remove_copy(self, folder: Path) -> bool:
        """Remove a folder from `files_of` if it is a copy; return whether it is."""
        ...

    def damage(self, record: Record) -> str | None:
        """Describe the first damaged file of an artifact in the store, reading all again; None if there is none."""
        ...

    def free_bytes(self) -> int | None:
        """Return the free bytes of the disk; None for an object store."""
        ...


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


class PlainFiles:
    """Read and write single files of a store by place.

    Every method raises StoreError if the store cannot be read or written.
    """

    def __init__(self, filesystem: fs.FileSystem, base: str, shown: str, storage: Storage) -> None:
        self._filesystem = filesystem
        self._base = base
        self._shown = shown
        self._storage = storage

    def write_text(self, place: str, text: str) -> str:
        """Write a file atomically; return its address."""
        with writing(self._shown):
            self._storage.write(place, text.encode())
        return self.uri(place)

    def append_line(self, place: str, line: str, *, size: int | None = None) -> int:
        """Append a line to a file, durable when this returns, and return the new size of the file in bytes.

        Args:
            size: Expected size before, as returned last to the only writer; None: any.

        Raises:
            StoreError: another size.
        """
        with writing(self._shown):
            return self._storage.append_line(place, line, size=size)

    def write_folder(self, folder: Path, place: str) -> str:
        """Copy a local folder, such as a report, to a place, over existing files; return the address."""
        with writing(self._shown):
            self._storage.write_folder(folder, place)
        return self.uri(place)

    def read_text(self, place: str, *, errors: str = "strict") -> str | None:
        """Return the text of a file; None if it does not exist.

        Args:
            errors: As for `bytes.decode`.

        Raises:
            StoreError: the store cannot be read, or the file is not UTF-8.
        """
        content = self.content(place)
        try:
            return None if content is None else content.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise StoreError(
                where=f"{self._shown}/{place}", found=str(error), expected="text in UTF-8", remedy="Remove the file and run again."
            ) from None

    def content(self, place: str) -> bytes | None:
        """Return the bytes of a file; None if it does not exist."""
        with self._storage.reading():
            content = content_at(self._filesystem, f"{self._base}/{place}")
            if content is None:
                self._storage.check()  # files of an unmounted file system must not count as absent
            return content

    def names(self, place: str) -> list[str]:
        """Return the sorted names of the files in a folder of the store; empty if it does not exist."""
        return self._names(place, fs.FileType.File)

    def folder_names(self, place: str) -> list[str]:
        """Like `names`, for the folders in it."""
        return self._names(place, fs.FileType.Directory)

    def _names(self, place: str, kind: fs.FileType) -> list[str]:
        with self._storage.reading():
            infos = self._filesystem.get_file_info(fs.FileSelector(f"{self._base}/{place}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == kind)

    def uri(self, place: str) -> str:
        """Return the address of a place."""
        return self._storage.address(place)
