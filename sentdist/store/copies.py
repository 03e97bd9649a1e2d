"""Cache copies of remote artifacts on the local disk, and check files against their checksums once per process."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.files import cache_folder
from sentdist.store.access import not_written, reading, writing
from sentdist.store.record import FileChecksum, Record, damage_of

IN_USE_S = 24 * 3600.0  # a copy used within this time is not removed: a training may have its files open
KEPT_FREE = 0.1  # share of the disk to keep free: old copies are removed to reach it


def copies_folder() -> Path:
    """Return the folder of the copies, in SENTDIST_CACHE or the user's cache folder."""
    return cache_folder("artifacts")


def copy_of(record: Record, *, filesystem: fs.FileSystem, path: str, shown: str) -> Path:
    """Return the folder of the local copy of an artifact; copy it if there is none.

    Args:
        path: Of the artifact on the file system.
        shown: Address of the store, for errors.

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
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process of this machine has copied it first
            raise not_written(str(copy.parent), error) from error
    return copy


def keep_copy(copy: Path) -> None:
    """Mark a copy as used now: the least recently used are removed first."""
    with suppress(FileNotFoundError):
        os.utime(copy)


def make_room(folder: Path, wanted_bytes: int, *, now: float | None = None) -> list[Path]:
    """Remove the least recently used copies until `wanted_bytes` fit and a tenth of the disk stays free; return the removed ones."""
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
    """Return when a copy was last used; None if it is no folder, or another process has renamed or removed it."""
    try:
        status = copy.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime if stat.S_ISDIR(status.st_mode) else None


def _num_bytes(copy: Path) -> int:
    """Return the size of a copy, without files that another process removes meanwhile."""
    found = 0
    with suppress(FileNotFoundError):
        for path in copy.rglob("*"):
            found += path.lstat().st_size
    return found


_Seen = tuple[FileChecksum, int, int, int]  # checksum of a verified file; its times of modification and change, and its size then
_whole: dict[str, _Seen] = {}  # by path


def forget() -> None:
    """Forget all verified files, as in a new process."""
    _whole.clear()


def damage_unless_verified(folder: Path, checksums: Mapping[str, FileChecksum], names: Iterable[str]) -> str | None:
    """Return `damage_of` for the files that are not verified by this process, or have changed since."""
    now = {name: _seen(folder / name, checksums[name]) for name in names}  # before reading: what changes meanwhile is noticed later
    unseen = {name: seen for name, seen in now.items() if seen is None or _whole.get(str(folder / name)) != seen}
    damage = damage_of(folder, checksums, unseen)
    if damage is None:
        _whole.update({str(folder / name): seen for name, seen in unseen.items() if seen is not None})
    return damage


def _seen(path: Path, checksum: FileChecksum) -> _Seen | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return checksum, status.st_mtime_ns, status.st_ctime_ns, status.st_size
