"""Copies of remote artifacts on this machine's disk: each made once, and removed when the disk runs short."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.files import cache_folder
from sentdist.store.access import not_written, reading, writing
from sentdist.store.record import FileChecksum, Record, damage_of

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


@dataclass(frozen=True, kw_only=True)
class _Stamp:
    """What the file system says of a file; a file that was changed has another one."""

    modified_ns: int
    changed_ns: int
    num_bytes: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Stamp:
        return cls(modified_ns=status.st_mtime_ns, changed_ns=status.st_ctime_ns, num_bytes=status.st_size)


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """A file that was found whole: what was written there, and what the file system said of it then."""

    checksum: FileChecksum
    stamp: _Stamp
    inode: int


_whole: dict[str, _Mark] = {}  # by path


def forget() -> None:
    """Forget everything, so that this process knows no more than a new one."""
    _whole.clear()


def damage_unless_verified(folder: Path, checksums: Mapping[str, FileChecksum], names: Iterable[str]) -> str | None:
    """As `damage_of`, of those files that this process has not yet found whole as they are now."""
    unseen = [name for name in names if not _is_as_seen(folder / name, checksums[name])]
    before = {name: status for name in unseen if (status := _status(folder / name)) is not None}  # what changes while it is read is noticed
    damage = damage_of(folder, checksums, unseen)
    if damage is None:
        _whole.update(
            {str(folder / name): _Mark(checksum=checksums[name], stamp=_Stamp.of(one), inode=one.st_ino) for name, one in before.items()}
        )
    return damage


class VerifiedFiles:
    """The files below a folder that are read from now on, as this process has found them whole.

    A file may lie in memory as it lay on the disk (memory mapping), so one that was replaced by its like has changed, too; that other one
    may have been found whole since, hence marks of one's own.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.folder = folder
        self._marks = {name: _whole[path] for name in names if (path := str(folder / name)) in _whole}

    def change(self) -> str | None:
        """What has happened since to the first file that is another one now; None if none is. One that was only touched is read again."""
        for name, mark in self._marks.items():
            status = _status(self.folder / name)
            if status is None:
                return f"{name}: moved away while it was read"
            if (stamp := _Stamp.of(status)) == mark.stamp:
                continue
            if status.st_ino != mark.inode:
                return f"{name}: replaced while it was read"
            if damage_of(self.folder, {name: mark.checksum}, [name]) is not None:
                return f"{name}: changed while it was read"
            self._marks[name] = _Mark(checksum=mark.checksum, stamp=stamp, inode=mark.inode)
        return None


def _is_as_seen(path: Path, checksum: FileChecksum) -> bool:
    seen, status = _whole.get(str(path)), _status(path)
    return seen is not None and status is not None and seen.checksum == checksum and seen.stamp == _Stamp.of(status)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
