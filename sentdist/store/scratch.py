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
from typing import Literal

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAME = re.compile(r"sentdist-(?P<purpose>[a-z]+)~(?P<machine>.+)~(?P<pid>\d+)~[0-9a-f]{8}")


@contextmanager
def scratch_folder(parent: Path, purpose: str, *, mode: int = 0o700) -> Iterator[Path]:
    """A new folder below `parent`, which goes when the context ends; what killed processes of this machine left there goes first.

    purpose: small letters, for those who look into `parent`.
    """
    remove_left(parent)
    folder = parent / scratch_name(purpose)
    folder.mkdir(mode=mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_name(purpose: str) -> str:
    """A new name that says which process of which machine gave it; see `maker_of`."""
    return f"sentdist-{purpose}~{_machine()}~{os.getpid()}~{uuid.uuid4().hex[:8]}"


def remove_left(parent: Path) -> list[Path]:
    """Remove the scratch folders below `parent` whose processes are dead; those of other machines and users stay."""
    left = []
    with suppress(OSError):
        left = [path for path in parent.iterdir() if _is_left(path)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return left


def maker_of(name: str) -> Literal["dead", "living", "elsewhere"] | None:
    """Whether the process that made a scratch folder of this name still runs; "elsewhere": on another machine, so not known. None: not
    the name of a scratch folder."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    if found["machine"] != _machine():
        return "elsewhere"
    try:
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return "dead"
    except OSError:  # another user's
        return "living"
    return "living"


def _is_left(path: Path) -> bool:
    try:
        return maker_of(path.name) == "dead" and path.lstat().st_uid == os.getuid() and not path.is_symlink()
    except OSError:
        return False


@cache
def _machine() -> str:
    """The host and, where there are such, its namespace of process ids and its boot: only in there an id tells whether a process lives.
    Outside containers all hosts have one namespace, and machines made of one image may have one name."""
    namespace = boot = "0"
    with suppress(OSError):
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
        boot = BOOT_ID.read_text()[:8]
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', socket.gethostname())[:40]}-{namespace}-{boot}"
