"""The folder of a local store, which must stay the one that was written first: a file system that is unmounted under a run leaves an
empty folder behind, or none, and what is written there is lost to the store."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from pathlib import Path

from sentdist.durable import make_folder, publish_folder, whole_file
from sentdist.errors import StoreError
from sentdist.store.access import BRING_BACK
from sentdist.store.record import RECORD, Record
from sentdist.store.scratch import scratch_folder
from sentdist.store.slow_store import warn_if_silent

STAGING = ".staging"  # what is being made; it stays when nothing is, so that the store is known by it


class LocalRoot:
    """Makes, publishes, moves and removes the folders of a store; each appears and goes by one rename.

    was_written: by this process or by the one that sent the store here; then it is not made again.
    """

    def __init__(self, base: Path, shown: str, *, was_written: bool) -> None:
        self.was_written = was_written
        self._base = base
        self._staging = base / STAGING
        self._shown = shown

    def make_folder(self, path: Path) -> None:
        """Make a folder of the store with its parents, each name on the disk.

        Raises:
            StoreError: the store is not where it was.
            OSError: what the disk says.
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
            raise StoreError(
                where=self._shown, found="a place where no folder can be made", expected="a store that can be written",
                remedy="Name another: --store, store= in Python, or SENTDIST_STORE.",
            ) from error  # fmt: skip

    def check(self) -> None:
        """StoreError unless the store is where it was, if it was written."""
        if self.was_written and not self._is_there():
            raise StoreError(
                where=self._shown,
                found=f"no {STAGING} in it any more, which every store has once it was written",
                expected="the store that this run began with",
                remedy=BRING_BACK,
            ) from FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._staging))

    def publish(self, folder: Path, record: Record) -> None:
        """Have a staged folder appear in its place with its record, unless another writer was faster.

        Raises:
            StoreError, OSError: as `make_folder`.
        """
        target = self._base / record.place
        self.make_folder(target.parent)
        if folder.stat().st_dev != target.parent.stat().st_dev:  # made elsewhere: a rename cannot cross file systems
            folder = shutil.copytree(folder, self._staging / uuid.uuid4().hex)
        publish_folder(folder, target, last=RECORD, content=record.sealed)

    def move(self, place: str, target: str) -> None:
        """Move a folder; FileNotFoundError: there is none. Raises: as `make_folder`."""
        self.make_folder((self._base / target).parent)
        (self._base / place).rename(self._base / target)

    def remove(self, place: str) -> None:
        """Remove a folder. Raises: as `move`."""
        self.make_folder(self._staging)
        with scratch_folder(self._staging, "removed") as folder:
            (self._base / place).rename(folder / "folder")

    def write(self, place: str, content: bytes) -> None:
        """Write a file, which appears whole or not at all. Raises: as `make_folder`."""
        path = self._base / place
        with warn_if_silent(self._shown):
            self.make_folder(path.parent)
            with whole_file(path, synced=True) as part:
                part.write_bytes(content)

    def _is_there(self) -> bool:
        """Asked by an attempt to make the folder, too: a file server's client may still remember that it was not there."""
        if self._staging.is_dir():
            return True
        try:
            self._staging.mkdir()
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        self._staging.rmdir()
        return False
