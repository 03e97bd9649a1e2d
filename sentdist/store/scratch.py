"""Scratch folders that do not stay when their process is killed: the next one on the same machine removes them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

NAME = re.compile(r"sentdist-(?P<purpose>[a-z]+)~(?P<machine>.+)~(?P<pid>\d+)~[0-9a-f]{8}")


@contextmanager
def scratch_folder(parent: Path, purpose: str, *, mode: int = 0o700) -> Iterator[Path]:
    """A new folder below `parent`, which goes when the context ends; what killed processes of this machine left there goes first.

    purpose: small letters, for those who look into `parent`.
    """
    remove_left(parent)
    folder = parent / f"sentdist-{purpose}~{_machine()}~{os.getpid()}~{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left(parent: Path) -> list[Path]:
    """Remove the scratch folders below `parent` whose processes are dead; those of other machines and users stay."""
    left = []
    with suppress(OSError):
        left = [path for path in parent.iterdir() if _is_left(path)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return left


def _is_left(path: Path) -> bool:
    found = NAME.fullmatch(path.name)
    if found is None or found["machine"] != _machine():
        return False
    try:
        if path.lstat().st_uid != os.getuid() or path.is_symlink():
            return False
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


@cache
def _machine() -> str:
    """The host and, where there are such, its namespace of process ids: only in there an id tells whether a process lives."""
    namespace = "0"
    with suppress(OSError):
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', socket.gethostname())[:40]}-{namespace}"
