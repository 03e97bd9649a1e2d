"""Files of a store that belong to no artifact: plans of sweeps, logs of searches, reports."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.store.access import writing
from sentdist.store.storage import Storage, content_at


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
