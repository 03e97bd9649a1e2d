"""How the root of a store is opened, and what the errors of its file system mean for a person."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from sentdist.errors import StoreError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def without_secrets(root: str) -> str:
    """The address without `key:secret@` and without what follows `?`."""
    return re.sub(r"(?<=://)[^/@]*@", "", root.partition("?")[0].rstrip("/")) if "://" in root else root


def open_root(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of a local path or an address, and the path on it.

    Raises:
        StoreError: an address of no kind that pyarrow knows, or without a bucket.
    """
    if "://" not in root:
        return fs.LocalFileSystem(), str(Path(root).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(root)
    except (OSError, ValueError) as error:
        raise StoreError(
            where=without_secrets(root), found=str(error), expected="a local path, s3:// or gs:// address", remedy="Correct the address."
        ) from None
    if not base.strip("/"):
        raise StoreError(
            where=without_secrets(root),
            found="no bucket",
            expected="an address such as s3://bucket/prefix",
            remedy="Correct the address.",
        )
    return filesystem, base.rstrip("/")


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Turn what a file system raises while it is read into a StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            where=root,
            found=" ".join(str(error).split()),
            expected="a store that can be read",
            remedy="Check the address, the network and the credentials.",
        ) from error


@contextmanager
def writing(root: str) -> Iterator[None]:
    """Turn what a file system raises while it is written into a StoreError."""
    try:
        yield
    except OSError as error:
        raise not_written(root, error) from error


def not_written(root: str, error: OSError) -> StoreError:
    """Why a store could not be written."""
    reasons = {
        errno.ENOSPC: "no space left",
        errno.EDQUOT: "a quota that is used up",
        errno.EROFS: "a read-only file system",
        errno.EACCES: "no right to write",
        errno.EPERM: "no right to write",
        errno.ENOTDIR: "a file where a folder should be",
        errno.EEXIST: "a file where a folder should be",
    }
    return StoreError(
        where=root,
        found=reasons.get(error.errno or 0) or " ".join(str(error).split()),
        expected="a store that can be written",
        remedy="Free room, correct the rights, or name another with --store. What is finished is kept; submit again.",
    )
