"""What this process has found whole: a file is read for that once, and again when it has been changed since."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sentdist.store.integrity import FileChecksum, damage_of


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
