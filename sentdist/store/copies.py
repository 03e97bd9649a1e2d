"""Copies of remote artifacts on this machine's disk: each made once, and removed when the disk runs short."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from sentdist.cache import cache_folder
from sentdist.errors import StoreError
from sentdist.store.access import not_written, reading, writing
from sentdist.store.record import Record

IN_USE_S = 24 * 3600.0  # a copy that somebody asked for since is left alone: a training may have its files open
KEPT_FREE = 0.1  # of the disk: below this share, and where a new copy would find no room, old copies are removed


def copies_folder() -> Path:
    """Where copies lie: below SENTDIST_CACHE, or the user's cache folder."""
    return cache_folder("artifacts")


def copy_of(record: Record, *, filesystem: fs.FileSystem, path: str, shown: str) -> Path:
    """The folder of the copy of an artifact, made now if there is none. path: of the artifact on the file system; shown: of its store.

    Raises:
        StoreError: the store cannot be read, or the local disk cannot be written.
    """
    copy = copies_folder() / (f"{record.key}-{record.data}" if record.data else record.key)  # in another bucket its bytes may differ
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
        scratch.rename(copy)
    except StoreError:
        shutil.rmtree(scratch)
        raise
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # which say that another process of this machine was faster
            raise not_written(str(copy.parent), error) from error
    return copy


def keep_copy(copy: Path) -> None:
    """Note that a copy is in use: what was used last is removed last."""
    with suppress(FileNotFoundError):
        os.utime(copy)


def make_room(folder: Path, wanted_bytes: int, *, now: float | None = None) -> list[Path]:
    """Remove the copies that were used longest ago until `wanted_bytes` fit and a tenth of the disk stays free; returns those removed."""
    now = time.time() if now is None else now
    disk = shutil.disk_usage(folder)
    missing = wanted_bytes + int(disk.total * KEPT_FREE) - disk.free
    removed: list[Path] = []
    idle = sorted((used_at, copy) for copy in folder.iterdir() if (used_at := _used_at(copy)) is not None)
    for used_at, copy in idle:
        if missing <= 0 or now - used_at < IN_USE_S:
            break
        missing -= _num_bytes(copy)
        shutil.rmtree(copy, ignore_errors=True)
        removed.append(copy)
    return removed


def _used_at(copy: Path) -> float | None:
    """None: it is no folder, or another process has renamed or removed it."""
    try:
        status = copy.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime if stat.S_ISDIR(status.st_mode) else None


def _num_bytes(copy: Path) -> int:
    """The size of a copy; files that another process removes meanwhile count nothing."""
    found = 0
    with suppress(FileNotFoundError):
        for path in copy.rglob("*"):
            found += path.lstat().st_size
    return found
