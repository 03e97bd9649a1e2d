"""Mirror a data root in an object store or on the hub (s3://, gs://, hf://) in a local folder; files are copied on first use."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import DataError, first_line
from sentdist.files import cache_folder, whole_file
from sentdist.text import opened_as, without_secrets

if TYPE_CHECKING:
    from pyarrow import fs

ORIGIN = ".sentdist-origin"  # in a mirror: its address
PART = ".part"  # suffix of the files that `whole_file` writes
LISTED_FOR_S = 60.0  # lifetime of a listing


def data_folder(place: str | os.PathLike[str] | None) -> Path | None:
    """Return the local folder of a data root: itself, or the mirror of an address; None without a data root.

    Raises:
        DataError: an address of unknown kind, or a mirror that cannot be written.
    """
    if place is None or not os.fspath(place):
        return None
    address = os.fspath(place)
    if "://" not in address:
        return Path(address)
    with _answering(address):
        _opened(address)
        folder = cache_folder("data") / hashlib.sha256(address.encode()).hexdigest()[:24]
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # an address may hold a key
        if address_of(folder) != address:  # others may read it now, so it is written once
            with whole_file(folder / ORIGIN) as part:
                part.write_text(address, encoding="utf-8")
    return folder


def local_copy(address: str) -> Path:
    """Return the local copy of a file or folder at an address."""
    parent, _, name = address.rstrip("/").rpartition("/")
    folder = data_folder(parent)
    assert folder is not None, "an address has a parent"
    copy_into_mirror(name, folder)
    return folder / name


def address_of(root: Path | None) -> str | None:
    """Return the name of a data root on other machines: the address of a mirror, or the path."""
    return None if root is None else _origin(root) or str(root)


def copy_into_mirror(name: str, root: Path) -> None:
    """Copy the files of a source into a mirror if they are absent or have changed; do nothing for a plain folder.

    They are named `name`, or begin with it followed by a point, an underscore or a slash. Files deleted at the address are deleted here.

    Raises:
        DataError: the server does not answer or refuses.
    """
    origin = _origin(root)
    if origin is None or not name:
        return
    with _answering(origin):
        fitting = re.compile(rf"{re.escape(name)}($|[._/])")
        listed = _listing(origin, int(time.monotonic() // LISTED_FOR_S))
        for relative, (size, changed) in listed.items():
            if fitting.match(relative):
                _bring_file(origin, relative, root / relative, size=size, changed=changed)
        for local in root.rglob("*"):
            relative = local.relative_to(root).as_posix()
            if relative not in listed and fitting.match(relative) and local.suffix != PART and local.is_file():
                local.unlink(missing_ok=True)


def _bring_file(origin: str, relative: str, local: Path, *, size: int, changed: float) -> None:
    import pyarrow.fs

    if local.is_file() and (status := local.stat()).st_size == size and abs(status.st_mtime - changed) < 1.0:
        return
    filesystem, base = _opened(origin)
    local.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(local) as part:
        here = pyarrow.fs.LocalFileSystem()
        pyarrow.fs.copy_files(f"{base}/{relative}", str(part), source_filesystem=filesystem, destination_filesystem=here)
        os.utime(part, (changed, changed))


@lru_cache(maxsize=8)
def _listing(origin: str, period: int) -> dict[str, tuple[int, float]]:
    """Relative path -> size and modification time of all files below an address. Cached for each `period`."""
    from pyarrow import fs

    filesystem, base = _opened(origin)
    found = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
    files = (one for one in found if one.type == fs.FileType.File)
    return {one.path.removeprefix(base).lstrip("/"): (int(one.size or 0), one.mtime.timestamp() if one.mtime else 0.0) for one in files}


def _opened(origin: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    filesystem, base = fs.FileSystem.from_uri(opened_as(origin))
    return filesystem, base.rstrip("/")


def _origin(root: Path) -> str | None:
    file = root / ORIGIN
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


@contextmanager
def _answering(origin: str) -> Iterator[None]:
    """Turn errors of an address or its server into one that names the address."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise DataError(
            where=without_secrets(origin), found=first_line(error),
            expected="data that can be read: a folder, or an s3://, gs:// or hf:// address",
            remedy="Check the address (--data, data= in Python), the network, the credentials and SENTDIST_CACHE.",
        ) from None  # its message may hold a key  # fmt: skip
