"""How files come to a local disk whole or not at all: under another name first, and synced where a power loss must find them so."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def sync_file(path: Path) -> None:
    """Have the disk take the content of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Have the disk take the names in a folder: files made, renamed or removed there."""
    sync_file(path)  # POSIX syncs a directory as it syncs a file


def sync_tree(folder: Path) -> None:
    """Have the disk take every file below a folder and every name in it."""
    for path in sorted(folder.rglob("*")):
        sync_file(path)
    sync_folder(folder)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, each name synced in the folder above it."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a file in place and have the disk take content and name."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def whole_file(path: Path, *, synced: bool = False) -> Iterator[Path]:
    """A name beside `path` to write to; it becomes `path` when the context ends, and goes away when it ends by an error.

    Who reads `path` sees the old file or the new one, and of two writers each writes under a name of its own.
    synced: so also after a power loss, and the new one is on the disk when this returns; that costs two waits for the disk.
    """
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        if synced:
            sync_file(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if synced:
        sync_folder(path.parent)


def publish_folder(folder: Path, target: Path, *, last: str, content: bytes) -> None:
    """Have a finished folder appear as `target` by one rename, on the disk before that.
    last: the name of a file with `content`, written last.

    A target that has that file was published by another writer, and is kept; one that lacks it was left by a crash, and is replaced. It is
    renamed before it is removed, so that another writer who publishes in this moment loses nothing.
    """
    write_file(folder / last, content)
    mode = (folder / last).stat().st_mode  # as the user's umask has it: some writers make files that only their owner may read
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
    sync_tree(folder)
    replaced = folder.with_name(f"{folder.name}.replaced")
    while not _renamed(folder, target):
        if (target / last).exists():
            return
        with suppress(FileNotFoundError):
            target.rename(replaced)
        if (replaced / last).exists():  # another writer was faster, and is kept
            folder, replaced = replaced, folder
    shutil.rmtree(replaced, ignore_errors=True)
    sync_folder(target.parent)


def _renamed(folder: Path, target: Path) -> bool:
    """Rename a folder; whether it was, since nothing stood there."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file and have the disk take it. What a power loss has left of a line before it becomes a line of its own."""
    is_new = not path.exists()
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        is_torn = end > 0 and file.read(1) != b"\n"
        file.write((b"\n" if is_torn else b"") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)
