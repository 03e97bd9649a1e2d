"""Open the root of a store and translate errors of its file system to StoreError."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from sentdist.errors import NO_RIGHT, WORDS, StoreError, os_error_of, words_for
from sentdist.files import disk_size
from sentdist.text import opened_as, without_secrets

REASONS: dict[int | None, str] = {
    **WORDS,
    **dict.fromkeys(NO_RIGHT, "no permission to read or write"),
    errno.ENOTDIR: "a file where a folder should be",
    errno.EEXIST: "a file where a folder should be",
    errno.ELOOP: "a cycle of symbolic links",
}
BRING_BACK = "Was its file system unmounted, or the folder moved? Restore it and submit again: finished work in it is kept."
# Errors of the AWS and Google libraries; a request without a body (HEAD) returns only the status.
REMOTE_REASONS = (
    (r"OAuth2 access token", "no valid Google credentials"),
    (r"ExpiredToken|EXPIRED_TOKEN|HTTP status 400", "credentials that have expired or that the server refuses"),
    (r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|HTTP status 40[13]", "no permission, or wrong credentials"),
    (r"SLOW_DOWN|THROTTLING|HTTP status 503", "a server that is too busy, also after several tries"),
    (r"INTERNAL_FAILURE|HTTP status 5\d\d", "an error of the server, also after several tries"),
    (r"NETWORK_CONNECTION|curlCode|CURL error", "a connection that fails, also after several tries"),
    (r"NO_SUCH_BUCKET|NoSuchBucket", "no such bucket"),
)


def shown_root(root: str) -> str:
    """Return the address of a store for messages and records: without secrets and without the query after `?`."""
    return without_secrets(root).partition("?")[0].rstrip("/") if "://" in root else root


def open_root(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a local path or an address, and the path on it.

    Raises:
        StoreError: an address that pyarrow does not know, or without a bucket.
    """
    if "://" not in root:
        return fs.LocalFileSystem(), str(Path(root).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(opened_as(root))
    except (OSError, ValueError) as error:
        raise StoreError(
            where=shown_root(root), found=str(error), expected="a local path, s3:// or gs:// address", remedy="Correct the address."
        ) from None
    if not base.strip("/"):
        expected, remedy = "an address such as s3://bucket/prefix", "Correct the address."
        raise StoreError(where=shown_root(root), found="no bucket", expected=expected, remedy=remedy)
    return filesystem, base.rstrip("/")


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Convert OSErrors while a store is read to StoreError."""
    try:
        yield
    except OSError as error:
        remedy = "Check the address, the network and the credentials. Finished work is kept; run it again."
        raise StoreError(where=root, found=reason_of(error), expected="a store that can be read", remedy=remedy) from error


@contextmanager
def writing(root: str) -> Iterator[None]:
    """Convert OSErrors while a store is written to StoreError."""
    try:
        yield
    except OSError as error:
        raise not_written(root, error) from error


def is_of_disk(error: OSError, below: str | Path) -> bool:
    """Return whether an error is a disk failure or missing permission for a file below a folder, or without the name of a file."""
    if words_for(error) is None and error.errno not in NO_RIGHT:
        return False
    return not isinstance(error.filename, str | bytes) or Path(os.fsdecode(error.filename)).is_relative_to(below)


@contextmanager
def disk_errors_of_store(below: Path, *, shown: str) -> Iterator[None]:
    """Convert disk failures and missing permissions for files below a folder to StoreError while an artifact is written."""
    try:
        yield
    except Exception as error:
        met = os_error_of(error)
        if met is not None and is_of_disk(met, below):
            raise not_written(shown, met) from error
        raise


def refuse_little_room(root: str, free: int | None, needed_bytes: int) -> None:
    """Raise StoreError if fewer bytes are free than needed. free: None if unknown."""
    if free is not None and free < needed_bytes:
        remedy = "Free space (`sentdist store gc` removes unused files) or use another store."
        raise StoreError(where=root, found=f"{disk_size(free)} free", expected=f"about {disk_size(needed_bytes)}", remedy=remedy)


def reason_of(error: OSError) -> str:
    """Return why a file system failed, in plain words if the reason is known: pyarrow and AWS report their internal calls."""
    if error.errno in REASONS:
        return REASONS[error.errno]
    text = " ".join(str(error).split())
    known = next((words for pattern, words in REMOTE_REASONS if re.search(pattern, text)), None)
    text = text[-300:].removesuffix(" No response body.")
    if known is None or "AWS Error " not in text:
        return known or text
    return f"{known} ({text.rpartition('AWS Error ')[2]})"


def not_written(root: str, error: OSError) -> StoreError:
    """Return the error for a store that could not be written."""
    if error.errno == errno.ENOENT:  # the folder has disappeared: every write makes its folder first
        found, expected = f"a folder that has disappeared: {error.filename}", "the store that this run started with"
        return StoreError(where=root, found=found, expected=expected, remedy=BRING_BACK)
    return StoreError(
        where=root,
        found="no permission to write" if error.errno in NO_RIGHT else reason_of(error),
        expected="a store that can be written",
        remedy="Free space, correct the permissions, or name another store. Finished work is kept; submit again.",
    )
