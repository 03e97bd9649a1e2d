"""Files of a store that belong to no artifact: plans of sweeps, logs of searches, reports."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs

from sentdist.durable import append_line
from sentdist.errors import StoreError
from sentdist.store.access import reading, writing
from sentdist.store.local_root import LocalRoot
from sentdist.store.object_root import ObjectRoot, write_objects


class PlainFiles:
    """Reads and writes single files below the root of a store, by their places. local_root: None of a store on an object store.

    Every method raises StoreError where the store cannot be read or written.
    """

    def __init__(self, filesystem: fs.FileSystem, base: str, shown: str, *, local_root: LocalRoot | None) -> None:
        self._filesystem = filesystem
        self._base = base
        self._shown = shown
        self._local_root = local_root
        self._objects = ObjectRoot(filesystem, base)

    def write_text(self, place: str, text: str) -> str:
        """Write a file whole or not at all; returns its address."""
        with writing(self._shown):
            (self._local_root or self._objects).write(place, text.encode())
        return self.uri(place)

    def append_line(self, place: str, line: str, *, size: int | None = None) -> int:
        """Add a line to a file, on the disk when this returns. Returns the size of the file behind it, in bytes.

        On an object store, where files cannot grow, the file is written anew. size: that the file has if nobody else writes it; None: any.
        Raises StoreError for another one.
        """
        with writing(self._shown):
            if self._local_root is not None:
                path = Path(self._base) / place
                self._check_size(place, size, path.stat().st_size if path.exists() else 0)
                self._local_root.make_folder(path.parent)
                append_line(path, line.encode())
                return path.stat().st_size
            before = self.content(place) or b""
            self._check_size(place, size, len(before))
            self._objects.write(place, content := before + line.encode() + b"\n")
            return len(content)

    def _check_size(self, place: str, expected: int | None, found: int) -> None:
        if expected not in (None, found):
            raise StoreError(
                where=self.uri(place), found="lines of another process", expected="one process that writes it",
                remedy="It was submitted a second time: follow that one. What is finished is kept.",
            )  # fmt: skip

    def write_folder(self, folder: Path, place: str) -> str:
        """Copy a local folder, such as a report, over what was there; returns the address."""
        with writing(self._shown):
            if self._local_root is not None:
                self._local_root.make_folder(Path(self._base) / place)
                fs.copy_files(str(folder), f"{self._base}/{place}", destination_filesystem=self._filesystem)
            else:
                write_objects(self._filesystem, folder, f"{self._base}/{place}")
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
        with reading(self._shown, awaited=self._local_root is not None):
            try:
                with self._filesystem.open_input_stream(f"{self._base}/{place}") as stream:
                    return bytes(stream.read())
            except (FileNotFoundError, NotADirectoryError):
                if self._local_root is not None:
                    self._local_root.check()  # or what went with a file system would pass for what was never there
                return None

    def names(self, place: str) -> list[str]:
        """Names of the files in a folder of the store, sorted; none if there is no such folder."""
        return self._names(place, fs.FileType.File)

    def folder_names(self, place: str) -> list[str]:
        """As `names`, of the folders in it."""
        return self._names(place, fs.FileType.Directory)

    def _names(self, place: str, kind: fs.FileType) -> list[str]:
        with reading(self._shown, awaited=self._local_root is not None):
            infos = self._filesystem.get_file_info(fs.FileSelector(f"{self._base}/{place}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == kind)

    def uri(self, place: str) -> str:
        """The address of a place."""
        return f"{self._base}/{place}" if self._local_root is not None else f"{self._shown}/{place}"
