"""What a store needs of the place where it lies: a disk (`LocalStorage`) or an object store (`ObjectStorage`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.files import unreadable
from sentdist.store.access import writing
from sentdist.store.record import Record


class Storage(Protocol):
    """Where the files of a store lie. A `place` is a path below its root.

    Methods raise an OSError with what the disk or the server says, or a StoreError where that is said here.
    is_shared: whether all workers read and write the files where they lie; else each has copies of its own.
    was_written: whether the store was written, by this process or by the one that sent the store here; then it is not made again.
    """

    is_shared: bool
    was_written: bool

    def address(self, place: str) -> str:
        """The address of a place, for records and people."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """While a small thing is read: what fails is raised as a StoreError."""
        ...

    def check(self) -> None:
        """StoreError unless the store is where it was, if it was written."""
        ...

    def publish(self, folder: Path, record: Record) -> None:
        """Have a staged folder appear in its place with its record, unless another writer was faster."""
        ...

    def move(self, place: str, target: str) -> None:
        """Move a folder; FileNotFoundError: there is none, or another process was faster."""
        ...

    def remove(self, place: str) -> None:
        """Remove a folder; FileNotFoundError: as for `move`."""
        ...

    def write(self, place: str, content: bytes) -> None:
        """Write a file, which appears whole or not at all."""
        ...

    def append_line(self, place: str, line: str, *, size: int | None) -> int:
        """Add a line to a file; its size then. size: that the file must have before, None: any. StoreError for another one."""
        ...

    def write_folder(self, folder: Path, place: str) -> None:
        """Copy the files of a local folder over what lies at a place."""
        ...

    def add_files(self, folder: Path, place: str) -> None:
        """Bring the files of a scratch folder to a place where others may lie; they last when this returns, and the folder may be empty."""
        ...

    def scratch(self, purpose: str, *, mode: int = 0o700) -> AbstractContextManager[Path]:
        """A local folder to write into, from which files come into the store; it goes when the context ends. See `scratch_folder`."""
        ...

    def staged(self) -> AbstractContextManager[Path]:
        """As `scratch`, for an artifact; what a disk fails at is raised as a StoreError."""
        ...

    def local(self, place: str) -> AbstractContextManager[Path]:
        """A local folder with what lies at a place: that itself, or a copy that goes when the context ends."""
        ...

    def files_of(self, record: Record) -> Path:
        """A local folder with the files of an artifact: its own, or a copy that stays on this machine."""
        ...

    def keep(self, folder: Path) -> None:
        """What `files_of` gave is in use: of copies, that which was used last is removed last."""
        ...

    def remove_copy(self, folder: Path) -> bool:
        """Remove what `files_of` gave if it is a copy; whether it was."""
        ...

    def damage(self, record: Record) -> str | None:
        """What is wrong with the files of an artifact as they lie in the store, each read again; None: nothing."""
        ...

    def free_bytes(self) -> int | None:
        """Free bytes of the disk; None of an object store."""
        ...


def content_at(filesystem: fs.FileSystem, path: str) -> bytes | None:
    """The bytes of a file; None if there is no such file. StoreError for a folder, pipe or device: opening a pipe may wait forever."""
    try:
        if isinstance(filesystem, fs.LocalFileSystem) and Path(path).exists() and (found := unreadable(Path(path))) is not None:
            raise StoreError(where=path, found=found, expected="a file", remedy="Move it out of the store and run again.")
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_other_size(address: str, expected: int | None, found: int) -> None:
    """Raise StoreError where a file that one process writes has grown by another. expected: None where any size is right."""
    if expected not in (None, found):
        raise StoreError(
            where=address, found="lines of another process", expected="one process that writes it",
            remedy="It was submitted a second time: follow that one. What is finished is kept.",
        )  # fmt: skip


class PlainFiles:
    """Reads and writes single files below the root of a store, by their places.

    Every method raises StoreError where the store cannot be read or written.
    """

    def __init__(self, filesystem: fs.FileSystem, base: str, shown: str, storage: Storage) -> None:
        self._filesystem = filesystem
        self._base = base
        self._shown = shown
        self._storage = storage

    def write_text(self, place: str, text: str) -> str:
        """Write a file whole or not at all; returns its address."""
        with writing(self._shown):
            self._storage.write(place, text.encode())
        return self.uri(place)

    def append_line(self, place: str, line: str, *, size: int | None = None) -> int:
        """Add a line to a file, on the disk when this returns. Returns the size of the file behind it, in bytes.

        On an object store, where files cannot grow, the file is written again. size: that the file has if nobody else writes it; None: any.
        Raises StoreError for another one.
        """
        with writing(self._shown):
            return self._storage.append_line(place, line, size=size)

    def write_folder(self, folder: Path, place: str) -> str:
        """Copy a local folder, such as a report, over what was there; returns the address."""
        with writing(self._shown):
            self._storage.write_folder(folder, place)
        return self.uri(place)

    def read_text(self, place: str, *, errors: str = "strict") -> str | None:
        """The text of a file; None if there is no such file. errors: as `bytes.decode` takes it.

        Raises:
            StoreError: the store cannot be read, or the file is no text.
        """
        content = self.content(place)
        try:
            return None if content is None else content.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise StoreError(
                where=f"{self._shown}/{place}", found=str(error), expected="text in UTF-8", remedy="Remove the file and run again."
            ) from None

    def content(self, place: str) -> bytes | None:
        """The bytes of a file; None if there is no such file.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._storage.reading():
            content = content_at(self._filesystem, f"{self._base}/{place}")
            if content is None:
                self._storage.check()  # or what went with a file system would pass for what was never there
            return content

    def names(self, place: str) -> list[str]:
        """Names of the files in a folder of the store, sorted; none if there is no such folder."""
        return self._names(place, fs.FileType.File)

    def folder_names(self, place: str) -> list[str]:
        """As `names`, of the folders in it."""
        return self._names(place, fs.FileType.Directory)

    def _names(self, place: str, kind: fs.FileType) -> list[str]:
        with self._storage.reading():
            infos = self._filesystem.get_file_info(fs.FileSelector(f"{self._base}/{place}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == kind)

    def uri(self, place: str) -> str:
        """The address of a place."""
        return self._storage.address(place)
