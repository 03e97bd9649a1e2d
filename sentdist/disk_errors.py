"""What a disk or a file server says when it fails, in plain words: it tells nothing of what a file holds, so no file is given up for it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from sentdist.errors import SentdistError, StoreError

WORDS: dict[int | None, str] = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "a quota that is used up",
    errno.EROFS: "a read-only file system",
    errno.EIO: "an error of the disk",
    errno.ESTALE: "a network file system that is gone (stale handle)",
    errno.ETIMEDOUT: "a server that does not answer (timed out)",
    errno.EHOSTDOWN: "a server that is down",
    errno.EHOSTUNREACH: "a server that cannot be reached",
    errno.ENETUNREACH: "a server that cannot be reached",
    errno.ENETDOWN: "a network that is down",
    errno.ENOTCONN: "a file system whose server has ended",
    errno.ECONNABORTED: "a file system whose server has ended",
    errno.ENODEV: "a disk that is gone",
    errno.ENXIO: "a disk that is gone",
}
NO_RIGHT = (errno.EACCES, errno.EPERM)
RIGHTS = "Correct its rights, then run it again."
AGAIN = "Look at the disk or the file server, then run it again: what is finished is kept."


def words_for(error: BaseException | None) -> str | None:
    """What such an error means; None for every other."""
    return WORDS.get(error.errno) if isinstance(error, OSError) else None


def tells_of_disk(error: SentdistError) -> bool:
    """Whether the cause of an error is a disk or file server that fails or refuses, not the file that was read."""
    cause = error.__cause__
    return words_for(cause) is not None or (isinstance(cause, OSError) and cause.errno in NO_RIGHT)


def os_error_of(error: Exception) -> OSError | None:
    """What the system said: the error itself, or the number in the message of a library in Rust (safetensors), which is no OSError."""
    if isinstance(error, OSError):
        return error
    found = None if isinstance(error, SentdistError) else re.search(r"\(os error (\d+)\)", str(error))
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


@contextmanager
def explain_disk_errors(where: str) -> Iterator[None]:
    """Turn the error of a disk or file server that fails into a StoreError. where: what failed, if the error names no file."""
    try:
        yield
    except OSError as error:
        words = words_for(error)
        if words is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else where
        raise StoreError(where=name, found=words, expected="a disk or file server that answers", remedy=AGAIN) from error
