"""How the root of a store is opened, and what the errors of its file system mean for a person."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from sentdist.errors import NO_RIGHT, WORDS, StoreError, os_error_of, words_for
from sentdist.files import disk_size
from sentdist.text import opened_as, without_secrets

TELL_AFTER_S = 60.0  # without an answer
SLOWEST_S = 600.0  # between two lines about the same wait, which come more and more rarely

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Wait:
    shown: str
    since: float
    tell_at: float


_waits: dict[int, _Wait] = {}  # by thread; what is answered is gone from here
_watcher: list[threading.Thread] = []
_beginning = threading.Lock()


@contextmanager
def warn_if_silent(shown: str) -> Iterator[None]:
    """While the context is open, this thread waits for a store to answer; meant for small requests, since large ones take long."""
    with _beginning:
        if not _watcher:
            _watcher.append(threading.Thread(target=_watch, name="sentdist-store-silence", daemon=True))
            _watcher[0].start()
    now, thread = time.monotonic(), threading.get_ident()
    outer = _waits.get(thread)
    _waits[thread] = _Wait(shown=shown, since=now, tell_at=now + TELL_AFTER_S)
    try:
        yield
    finally:
        if outer is None:
            del _waits[thread]
        else:
            _waits[thread] = outer


def _watch() -> None:
    while True:
        time.sleep(TELL_AFTER_S / 30)
        now = time.monotonic()
        for wait in list(_waits.values()):
            if now >= wait.tell_at:
                waited = now - wait.since
                wait.tell_at = now + min(waited, SLOWEST_S)
                log.warning(
                    "The store %s has not answered for %.0f s. Its disk or file server is away or overloaded; this goes on when it "
                    "answers. To end it before: kill -9 %d. What is finished is kept.",
                    wait.shown,
                    waited,
                    os.getpid(),
                )


REASONS: dict[int | None, str] = {
    **WORDS,
    **dict.fromkeys(NO_RIGHT, "no right to read or write"),
    errno.ENOTDIR: "a file where a folder should be",
    errno.EEXIST: "a file where a folder should be",
    errno.ELOOP: "symbolic links that lead round in a circle",
}
BRING_BACK = "Was its file system unmounted, or the folder moved? Bring it back and submit again: what is finished in it is kept."
# What a store's server answers, as the libraries of AWS and Google put it; a request that asks for no body (HEAD) gets the status alone.
REMOTE_REASONS = (
    (r"OAuth2 access token", "no credentials of Google's, or none that work"),
    (r"ExpiredToken|EXPIRED_TOKEN|HTTP status 400", "credentials that have expired or that the server refuses"),
    (r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|HTTP status 40[13]", "no right, or wrong credentials"),
    (r"SLOW_DOWN|THROTTLING|HTTP status 503", "a server that is too busy, also after several tries"),
    (r"INTERNAL_FAILURE|HTTP status 5\d\d", "an error of the server, also after several tries"),
    (r"NETWORK_CONNECTION|curlCode|CURL error", "a connection that fails, also after several tries"),
    (r"NO_SUCH_BUCKET|NoSuchBucket", "no such bucket"),
)


def shown_root(root: str) -> str:
    """The address of a store for messages and records: without secrets and without what follows `?`."""
    return without_secrets(root).partition("?")[0].rstrip("/") if "://" in root else root


def open_root(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of a local path or an address, and the path on it.

    Raises:
        StoreError: an address of no kind that pyarrow knows, or without a bucket.
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
        raise StoreError(
            where=shown_root(root),
            found="no bucket",
            expected="an address such as s3://bucket/prefix",
            remedy="Correct the address.",
        )
    return filesystem, base.rstrip("/")


@contextmanager
def reading(root: str, *, awaited: bool = False) -> Iterator[None]:
    """Turn what a file system raises while it is read into a StoreError. awaited: a small request; say so if it gets no answer.

    Object stores give up by themselves; disks and file servers may never answer.
    """
    try:
        with warn_if_silent(root) if awaited else nullcontext():
            yield
    except OSError as error:
        raise StoreError(
            where=root,
            found=reason_of(error),
            expected="a store that can be read",
            remedy="Check the address, the network and the credentials. What is finished is kept; run it again.",
        ) from error


@contextmanager
def writing(root: str, *, awaited: bool = False) -> Iterator[None]:
    """Turn what a file system raises while it is written into a StoreError. awaited: as `reading` takes it."""
    try:
        with warn_if_silent(root) if awaited else nullcontext():
            yield
    except OSError as error:
        raise not_written(root, error) from error


def is_of_disk(error: OSError, below: str | Path) -> bool:
    """Whether a disk failed or refused a right, at a file below a folder; where the error names no file, it counts as one of these."""
    if words_for(error) is None and error.errno not in NO_RIGHT:
        return False
    return not isinstance(error.filename, str | bytes) or Path(os.fsdecode(error.filename)).is_relative_to(below)


@contextmanager
def disk_errors_of_store(below: Path, *, shown: str) -> Iterator[None]:
    """While an artifact is written: where a disk fails or refuses a right at a file below a folder, raise that as an error of the store."""
    try:
        yield
    except Exception as error:
        met = os_error_of(error)
        if met is not None and is_of_disk(met, below):
            raise not_written(shown, met) from error
        raise


def refuse_little_room(root: str, free: int | None, needed_bytes: int) -> None:
    """Raise StoreError where fewer bytes are free than are needed; free: None where a store does not say."""
    if free is not None and free < needed_bytes:
        raise StoreError(
            where=root,
            found=f"{disk_size(free)} free",
            expected=f"about {disk_size(needed_bytes)}",
            remedy="Free room (`sentdist store gc` removes what is of no use) or use another store.",
        )


def reason_of(error: OSError) -> str:
    """Why a file system failed, in plain words where the reason is known; pyarrow and the AWS library speak of their own calls."""
    if error.errno in REASONS:
        return REASONS[error.errno]
    said = " ".join(str(error).split())
    known = next((words for pattern, words in REMOTE_REASONS if re.search(pattern, said)), None)
    said = said[-300:].removesuffix(" No response body.")
    if known is None or "AWS Error " not in said:
        return known or said
    return f"{known} ({said.rpartition('AWS Error ')[2]})"


def not_written(root: str, error: OSError) -> StoreError:
    """Why a store could not be written."""
    if error.errno == errno.ENOENT:  # it was there: all that is written begins with a folder that was made
        return StoreError(
            where=root, found=f"no folder any more where it was written: {error.filename}", expected="the store that this run began with",
            remedy=BRING_BACK,
        )  # fmt: skip
    return StoreError(
        where=root,
        found="no right to write" if error.errno in NO_RIGHT else reason_of(error),
        expected="a store that can be written",
        remedy="Free room, correct the rights, or name another store. What is finished is kept; submit again.",
    )
