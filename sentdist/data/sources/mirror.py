"""A data root in an object store or on the hub (s3://, gs://, hf://), as a folder here: files come into it when they are named."""

from __future__ import annotations

import hashlib
import os
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import DataError, first_line
from sentdist.files import cache_folder, reading, whole_file
from sentdist.text import opened_as, without_secrets

if TYPE_CHECKING:
    from pyarrow import fs

ORIGIN = ".sentdist-origin"  # in a mirror: the address that it shows
PART = ".part"  # the end of what `whole_file` writes to
LISTED_FOR_S = 60.0  # a listing is taken again after that long
MOST_BYTES = 1 << 16  # of the file that holds an address


def data_folder(place: str | os.PathLike[str] | None) -> Path | None:
    """The folder that stands for a data root on this machine: itself, or the mirror of an address. None: there is no data root.

    Raises:
        DataError: an address of no known kind, or no room for a mirror.
    """
    if place is None or not os.fspath(place):
        return None
    address = os.fspath(place)
    if "://" not in address:
        return Path(address)
    _opened(address)
    folder = cache_folder("data") / hashlib.sha256(address.encode()).hexdigest()[:24]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # an address may hold a key
        if not _shows(folder, address):  # others read it at any moment, so it is not written again and again
            with whole_file(folder / ORIGIN) as part:
                part.write_text(address, encoding="utf-8")
    except OSError as error:
        raise DataError(where=str(folder), found=first_line(error), expected="room for data", remedy="Set SENTDIST_CACHE.") from error
    return folder


def address_of(root: Path | None) -> str | None:
    """What other machines know a data root by: the address of a mirror, or the path."""
    return None if root is None else _origin(root) or str(root)


def copy_into_mirror(name: str, root: Path) -> None:
    """Bring the files that a source of this name may be made of into a mirror, unless they are there and have not changed; nothing for a
    plain folder. They are those that are called so, with whatever follows a point, an underscore or a slash; those of them that are no
    longer behind the address go away here, too.

    Raises:
        DataError: a server that does not answer or refuses.
    """
    origin = _origin(root)
    if origin is None or not name:
        return
    filesystem, base = _opened(origin)
    fitting = re.compile(rf"{re.escape(name)}($|[._/])")
    listed = _listing(origin, int(time.monotonic() // LISTED_FOR_S))
    for relative, (size, changed) in listed.items():
        if fitting.match(relative):
            _bring_file(filesystem, f"{base}/{relative}", root / relative, size=size, changed=changed, origin=origin)
    for local in root.rglob("*"):
        relative = local.relative_to(root).as_posix()
        if relative not in listed and fitting.match(relative) and relative != ORIGIN and local.suffix != PART and local.is_file():
            _remove_file(filesystem, f"{base}/{relative}", local, origin=origin)


def remote_names(root: Path) -> list[str] | None:
    """The files behind a mirror; None for a plain folder."""
    origin = _origin(root)
    return None if origin is None else list(_listing(origin, int(time.monotonic() // LISTED_FOR_S)))


def _bring_file(filesystem: fs.FileSystem, remote: str, local: Path, *, size: int, changed: float, origin: str) -> None:
    import pyarrow.fs

    if local.is_file() and (status := local.stat()).st_size == size and abs(status.st_mtime - changed) < 1.0:
        return
    try:
        local.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(local) as part:
            pyarrow.fs.copy_files(remote, str(part), source_filesystem=filesystem, destination_filesystem=pyarrow.fs.LocalFileSystem())
            os.utime(part, (changed, changed))
    except OSError as error:
        raise _unanswered(origin, error) from error


def _remove_file(filesystem: fs.FileSystem, remote: str, local: Path, *, origin: str) -> None:
    """Remove a file that a listing lacks, unless it came behind the address after that was taken."""
    from pyarrow import fs

    try:
        is_gone = filesystem.get_file_info(remote).type == fs.FileType.NotFound
    except OSError as error:
        raise _unanswered(origin, error) from error
    if not is_gone:
        return
    try:
        local.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            where=str(local), found=first_line(error), expected="a mirror that can be changed", remedy="Set SENTDIST_CACHE."
        ) from error


@lru_cache(maxsize=8)
def _listing(origin: str, period: int) -> dict[str, tuple[int, float]]:
    """Relative path -> size and time of change, of all files below an address."""
    from pyarrow import fs

    filesystem, base = _opened(origin)
    try:
        found = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
    except OSError as error:
        raise _unanswered(origin, error) from error
    files = (one for one in found if one.type == fs.FileType.File)
    return {one.path.removeprefix(base).lstrip("/"): (int(one.size or 0), one.mtime.timestamp() if one.mtime else 0.0) for one in files}


def _opened(origin: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    try:
        filesystem, base = fs.FileSystem.from_uri(opened_as(origin))
    except (OSError, ValueError, ImportError) as error:
        raise DataError(
            where=without_secrets(origin),
            found=first_line(error),
            expected="a folder, or an s3://, gs:// or hf:// address",
            remedy="Correct --data (data= in Python).",
        ) from None
    return filesystem, base.rstrip("/")


def _shows(folder: Path, address: str) -> bool:
    try:
        return _origin(folder) == address
    except DataError:
        return False


def _origin(root: Path) -> str | None:
    file = root / ORIGIN
    if not file.is_file():
        return None
    with reading(file, expected="the address of a data root", most_bytes=MOST_BYTES):
        return file.read_text(encoding="utf-8").strip()


def _unanswered(origin: str, error: OSError) -> DataError:
    remedy = "Check the address, the network and the credentials."
    return DataError(where=without_secrets(origin), found=first_line(error), expected="data that can be read", remedy=remedy)
