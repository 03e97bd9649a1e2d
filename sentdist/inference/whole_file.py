"""Output files that are whole or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sentdist.errors import DataError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; it becomes `path` when the context ends, and goes away when it ends by an error."""
    part = path.with_name(f"{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def check_output(path: Path, *, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """DataError for a suffix that is not written here, a folder that is not there, and a file that is."""
    if path.suffix not in suffixes:
        raise DataError(where=str(path), found=f"suffix {path.suffix!r}", expected=" or ".join(suffixes), remedy="Name the file so.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no such folder", expected="a folder that is there", remedy="Make it.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise DataError(
            where=str(path),
            found="a folder" if path.is_dir() else "a file that is there already",
            expected="a new file",
            remedy="Choose another name." if path.is_dir() else "Choose another name, or say --overwrite.",
        )
