"""Storage on a local disk or mounted file system, with scratch folders that are removed after crashes.

Every write checks that the store is still there: an unmounted file system leaves an empty folder, and files written into it are lost.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.files import append_line, make_folder, publish_folder, sync_folder, sync_tree, whole_file
from sentdist.store.record import RECORD, Record, damage_of
from sentdist.store.storage import BRING_BACK, disk_errors_of_store, reading, refuse_other_size, writing

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAME = re.compile(r"sentdist-(?P<purpose>[a-z]+)~(?P<machine>.+)~(?P<pid>\d+)~[0-9a-f]{8}")


@contextmanager
def scratch_folder(parent: Path, purpose: str, *, mode: int = 0o700) -> Iterator[Path]:
    """Make a folder below `parent` and remove it when the context ends; first remove those that killed processes of this machine left.

    Args:
        purpose: Lower-case word in the name of the folder.
    """
    remove_left(parent)
    folder = parent / scratch_name(purpose)
    folder.mkdir(mode=mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_name(purpose: str) -> str:
    """Return a new name that contains its machine and process; see `maker_of`."""
    return f"sentdist-{purpose}~{_machine()}~{os.getpid()}~{uuid.uuid4().hex[:8]}"


def remove_left(parent: Path) -> list[Path]:
    """Remove the scratch folders below `parent` whose processes are dead; those of other machines and users stay."""
    left = []
    with suppress(OSError):
        left = [path for path in parent.iterdir() if _is_left(path)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return left


def maker_of(name: str) -> Literal["dead", "living", "elsewhere"] | None:
    """Return whether the process that made a scratch folder still runs; "elsewhere" on another machine; None for other names."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    if found["machine"] != _machine():
        return "elsewhere"
    try:
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return "dead"
    except OSError:  # another user's
        return "living"
    return "living"


def _is_left(path: Path) -> bool:
    try:
        return maker_of(path.name) == "dead" and path.lstat().st_uid == os.getuid() and not path.is_symlink()
    except OSError:
        return False


@cache
def _machine() -> str:
    """Return host, namespace of process ids and boot id, if available: process ids are unique only within these.

    Outside containers all hosts have the same namespace, and machines made from one image may have the same name.
    """
    namespace = boot = "0"
    with suppress(OSError):
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
        boot = BOOT_ID.read_text()[:8]
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', socket.gethostname())[:40]}-{namespace}-{boot}"


STAGING = ".staging"  # unfinished artifacts; the folder stays when empty and marks the store


class LocalStorage:
    """Storage on a file system: each folder appears and disappears by one rename. A `place` is a path below the root.

    Methods raise OSErrors of the disk, or a StoreError where documented. `ObjectStorage` has the same methods for a bucket.
    """

    is_shared = True

    def __init__(self, base: Path, shown: str, *, was_written: bool) -> None:
        self.was_written = was_written
        self._base = base
        self._staging = base / STAGING
        self._shown = shown

    def address(self, place: str) -> str:
        """Return the address of a place, for records and users."""
        return f"{self._base}/{place}"

    def reading(self) -> AbstractContextManager[None]:
        """Convert errors to StoreError within the context, for small reads."""
        return reading(self._shown)

    def make_folder(self, path: Path) -> None:
        """Make a folder of the store with its parents, synced to disk.

        Raises:
            StoreError: the store has disappeared.
            OSError: an error of the disk.
        """
        if not self.was_written:
            self._begin()
        self.check()
        self.was_written = True
        make_folder(path)

    def _begin(self) -> None:
        try:
            make_folder(self._staging)
        except FileNotFoundError as error:
            expected, remedy = "a store that can be written", "Name another: --store, store= in Python, or SENTDIST_STORE."
            raise StoreError(where=self._shown, found="a path where no folder can be made", expected=expected, remedy=remedy) from error

    def check(self) -> None:
        """Raise StoreError if the store was written and has disappeared."""
        if self.was_written and not self._staging.is_dir():
            raise StoreError(
                where=self._shown,
                found=f"its {STAGING} has disappeared, which every store keeps after the first write",
                expected="the store that this run started with",
                remedy=BRING_BACK,
            ) from FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._staging))

    def publish(self, folder: Path, record: Record) -> None:
        """Move a staged folder to its place with its record, unless another writer committed first."""
        target = self._base / record.place
        self.make_folder(target.parent)
        if folder.stat().st_dev != target.parent.stat().st_dev:  # made elsewhere: a rename cannot cross file systems
            folder = shutil.copytree(folder, self._staging / uuid.uuid4().hex)
        publish_folder(folder, target, last=RECORD, content=record.sealed)

    def move(self, place: str, target: str) -> None:
        """Move a folder; raise FileNotFoundError if there is none, or another process moved it first."""
        source, moved = self._base / place, self._base / target
        if source.is_symlink():  # into a new folder, otherwise the note on the move would be written through the link
            self.make_folder(moved)
            moved /= source.name
        self.make_folder(moved.parent)
        source.rename(moved)

    def remove(self, place: str) -> None:
        """Remove a folder; raise FileNotFoundError as `move` does."""
        self.make_folder(self._staging)
        with scratch_folder(self._staging, "removed") as folder:
            (self._base / place).rename(folder / "folder")

    def write(self, place: str, content: bytes) -> None:
        """Write a file atomically."""
        path = self._base / place
        self.make_folder(path.parent)
        with whole_file(path, synced=True) as part:
            part.write_bytes(content)

    def append_line(self, place: str, line: str, *, size: int | None) -> int:
        """Append a line to a file and return its size (bytes); raise StoreError unless it was `size` before (None: any)."""
        path = self._base / place
        refuse_other_size(self.address(place), size, path.stat().st_size if path.exists() else 0)
        self.make_folder(path.parent)
        append_line(path, line.encode())
        return path.stat().st_size

    def write_folder(self, folder: Path, place: str) -> None:
        """Copy the files of a local folder to a place, over existing ones."""
        self.make_folder(self._base / place)
        fs.copy_files(str(folder), self.address(place))

    def add_files(self, folder: Path, place: str) -> None:
        """Move or copy the files of a scratch folder to a place that may have others; they are durable when this returns."""
        target = self._base / place
        sync_tree(folder)
        make_folder(target)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                moved = target / path.relative_to(folder)
                make_folder(moved.parent)
                path.replace(moved)
        for below in [target, *(path for path in target.rglob("*") if path.is_dir())]:
            sync_folder(below)

    @contextmanager
    def scratch(self, purpose: str, *, mode: int = 0o700) -> Iterator[Path]:
        """Make a scratch folder in the store itself, so that files need no copy."""
        self.make_folder(self._staging)
        with scratch_folder(self._staging, purpose, mode=mode) as folder:
            yield folder

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Like `scratch`, for an artifact; errors of the disk are raised as StoreError."""
        with ExitStack() as stack:
            with writing(self._shown):
                folder = stack.enter_context(self.scratch("staged", mode=0o777))
            with disk_errors_of_store(self._base, shown=self._shown):
                yield folder

    @contextmanager
    def local(self, place: str) -> Iterator[Path]:
        """Yield a local folder with the files at a place: the place itself; of a bucket a copy that is removed afterwards."""
        yield self._base / place

    def files_of(self, record: Record) -> Path:
        """Return a local folder with the files of an artifact: in the store; of a bucket a copy that stays on this machine."""
        return self._base / record.place

    def keep(self, folder: Path) -> None:
        """Mark a folder from `files_of` as used now, if it is a copy: the least recently used copies are removed first."""

    def remove_copy(self, folder: Path) -> bool:
        """Remove a folder from `files_of` if it is a copy; return whether it is."""
        return False

    def damage(self, record: Record) -> str | None:
        """Describe the first damaged file of an artifact in the store, reading all again; None if there is none."""
        with reading(self._shown):
            return damage_of(self.files_of(record), record.checksums, record.files)

    def free_bytes(self) -> int | None:
        """Return the free bytes of the disk; None for an object store."""
        with self.reading():  # the store may not exist yet
            folder = next(path for path in (self._base, *self._base.parents) if path.is_dir())
            return shutil.disk_usage(folder).free
