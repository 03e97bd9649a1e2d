"""Storage in an object store, where a folder is just the objects below a prefix.

Moves and removals start with the record, so that no partial folder counts as an artifact, and include only the objects found first. Each
writer has a separate data folder, so a concurrent rebuild of the artifact keeps its files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.files import cache_folder
from sentdist.store.local_storage import scratch_folder
from sentdist.store.record import RECORD, Record, damage_of_content
from sentdist.store.storage import content_at, disk_errors_of_store, reading, refuse_other_size, writing

AT_ONCE = 8  # objects written at the same time
CHUNK = 1 << 20  # bytes
DATA = "data-"  # prefix of the folder with the files of one writer, below the place of the artifact


IN_USE_S = 24 * 3600.0  # a copy used within this time is not removed: a training may have its files open
KEPT_FREE = 0.1  # share of the disk to keep free: old copies are removed to reach it


def copy_of(record: Record, *, filesystem: fs.FileSystem, path: str, shown: str) -> Path:
    """Return the folder of the local copy of an artifact in the user's cache; copy it if there is none.

    Args:
        path: Of the artifact on the file system.
        shown: Address of the store, for errors.

    Raises:
        StoreError: the store cannot be read, or the local disk cannot be written.
    """
    name = f"{record.key}-{record.data}" if record.data else record.key  # in another bucket its bytes may differ
    copy = cache_folder("artifacts") / name
    if copy.is_dir():
        keep_copy(copy)
        return copy
    with writing(str(copy.parent)):
        copy.parent.mkdir(parents=True, exist_ok=True)
        make_room(copy.parent, sum(record.files.values()))
        scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=copy.parent))
    try:
        with reading(shown):
            fs.copy_files(path, str(scratch), source_filesystem=filesystem)
        with writing(str(copy.parent)):
            scratch.rename(copy)
    except StoreError:
        shutil.rmtree(scratch, ignore_errors=True)
        if not copy.is_dir():  # else another process of this machine has copied it first
            raise
    return copy


def keep_copy(copy: Path) -> None:
    """Mark a copy as used now: the least recently used are removed first."""
    with suppress(FileNotFoundError):
        os.utime(copy)


def make_room(folder: Path, wanted_bytes: int, *, now: float | None = None) -> list[Path]:
    """Remove the least recently used copies until `wanted_bytes` fit and a tenth of the disk stays free; return the removed ones."""
    idle: list[tuple[float, Path]] = []
    for copy in folder.iterdir():
        with suppress(FileNotFoundError):  # another process has renamed or removed it
            used_at = copy.stat().st_mtime
            if copy.is_dir() and (now or time.time()) - used_at >= IN_USE_S:
                idle.append((used_at, copy))
    removed = []
    for _, copy in sorted(idle):
        disk = shutil.disk_usage(folder)
        if disk.free >= wanted_bytes + disk.total * KEPT_FREE:
            break
        shutil.rmtree(copy, ignore_errors=True)
        removed.append(copy)
    return removed


def write_object(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    """Write an object completely or not at all, even if a signal arrives.

    Uses a separate thread: signals raise in the main thread, and a stream closed by an exception publishes what it has so far, possibly an
    empty object in place of a good one.
    """
    with ThreadPoolExecutor(1) as one:
        one.submit(_write, filesystem, path, BytesIO(content)).result()


def write_objects(filesystem: fs.FileSystem, folder: Path, target: str) -> None:
    """Write each file of a local folder as an object below `target`, several at a time.

    pyarrow's `copy_files` hides it if a server refuses a small object (25.0, with `allow_delayed_open`), and writes an unused object for
    each folder.
    """

    def write(path: Path) -> None:
        with path.open("rb") as file:
            _write(filesystem, f"{target}/{path.relative_to(folder).as_posix()}", file)

    with ThreadPoolExecutor(AT_ONCE) as writers:
        list(writers.map(write, [path for path in sorted(folder.rglob("*")) if path.is_file()]))


def _write(filesystem: fs.FileSystem, path: str, file: BinaryIO) -> None:
    with filesystem.open_output_stream(path) as stream:
        shutil.copyfileobj(file, stream, CHUNK)


def _is_of_writer(name: str) -> bool:
    return name.startswith(DATA)


class ObjectStorage:
    """Storage in an object store; processes read local copies."""

    is_shared = False
    was_written = False  # nothing to create: a bucket has no folders

    def __init__(self, filesystem: fs.FileSystem, base: str, shown: str) -> None:
        self._filesystem = filesystem
        self._base = base
        self._shown = shown

    def address(self, place: str) -> str:
        return f"{self._shown}/{place}"

    def reading(self) -> AbstractContextManager[None]:
        return reading(self._shown)  # requests to servers time out

    def check(self) -> None:
        """Do nothing: requests to an unavailable server fail."""

    def publish(self, folder: Path, record: Record) -> None:
        """Copy the files to a new folder, then write the record that names it, unless another writer committed first.

        Files of two writers of one artifact are never mixed, so each record belongs to files of one writer.
        """
        record = record.model_copy(update={"data": f"{DATA}{uuid.uuid4().hex[:12]}"})
        target = f"{self._base}/{record.files_place}"
        write_objects(self._filesystem, folder, target)
        if self._filesystem.get_file_info(f"{self._base}/{record.place}/{RECORD}").type == fs.FileType.File:
            self._filesystem.delete_dir(target)
        else:
            self.write(f"{record.place}/{RECORD}", record.sealed)

    def move(self, place: str, target: str) -> None:
        def move(source: str, name: str) -> None:
            moved = PurePosixPath(self._base, target, name)
            self._filesystem.create_dir(str(moved.parent), recursive=True)
            self._filesystem.move(source, str(moved))

        self._leave(place, move)

    def remove(self, place: str) -> None:
        """Remove the record, then the folder of each writer in one request."""

        def remove(source: str, name: str) -> None:
            if _is_of_writer(name):
                self._filesystem.delete_dir(source)
            else:
                self._filesystem.delete_file(source)

        self._leave(place, remove, part=lambda name: name.partition("/")[0] if _is_of_writer(name) else name)

    def write(self, place: str, content: bytes) -> None:
        write_object(self._filesystem, f"{self._base}/{place}", content)

    def append_line(self, place: str, line: str, *, size: int | None) -> int:
        with self.reading():  # objects cannot grow: write it again
            before = content_at(self._filesystem, f"{self._base}/{place}") or b""
        refuse_other_size(self.address(place), size, len(before))
        self.write(place, content := before + line.encode() + b"\n")
        return len(content)

    def write_folder(self, folder: Path, place: str) -> None:
        write_objects(self._filesystem, folder, f"{self._base}/{place}")

    def add_files(self, folder: Path, place: str) -> None:
        self.write_folder(folder, place)

    @contextmanager
    def scratch(self, purpose: str, *, mode: int = 0o700) -> Iterator[Path]:
        with scratch_folder(Path(tempfile.gettempdir()), purpose, mode=mode) as folder:
            yield folder

    @contextmanager
    def staged(self) -> Iterator[Path]:
        with ExitStack() as stack:
            with writing(tempfile.gettempdir()):
                folder = stack.enter_context(self.scratch("staged", mode=0o777))
            with disk_errors_of_store(folder, shown=self._shown):
                yield folder

    @contextmanager
    def local(self, place: str) -> Iterator[Path]:
        with self.scratch("checkpoint") as folder:
            fs.copy_files(f"{self._base}/{place}", str(folder), source_filesystem=self._filesystem)
            yield folder

    def files_of(self, record: Record) -> Path:
        return copy_of(record, filesystem=self._filesystem, path=f"{self._base}/{record.files_place}", shown=self._shown)

    def keep(self, folder: Path) -> None:
        keep_copy(folder)

    def remove_copy(self, folder: Path) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return True

    def damage(self, record: Record) -> str | None:
        for name, checksum in record.checksums.items():
            with self.reading():
                content = content_at(self._filesystem, f"{self._base}/{record.files_place}/{name}")
            wrong = "missing" if content is None else damage_of_content(content, checksum)
            if wrong is not None:
                return f"{name}: {wrong}"
        return None

    def free_bytes(self) -> int | None:
        return None

    def _leave(self, place: str, leave: Callable[[str, str], None], *, part: Callable[[str], str] = str) -> None:
        names = sorted({part(name) for name in self._names(place)}, key=lambda name: (name != RECORD, name))
        if not names:
            raise FileNotFoundError(place)
        for name in names:
            source = f"{self._base}/{place}/{name}"
            try:
                leave(source, name)
            except OSError as error:  # servers report absent objects in different ways
                if self._filesystem.get_file_info(source).type != fs.FileType.NotFound:
                    raise
                if name == names[0]:
                    raise FileNotFoundError(place) from error
        if not self._names(place):
            self._filesystem.delete_dir(f"{self._base}/{place}")

    def _names(self, place: str) -> list[str]:
        path = f"{self._base}/{place}"
        infos = self._filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return [info.path.removeprefix(f"{path}/") for info in infos if info.type == fs.FileType.File]
