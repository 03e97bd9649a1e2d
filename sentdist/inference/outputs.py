"""Files and folders that a user names for output: they are new, and in a folder that is there."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sentdist.errors import DataError


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


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to write to; it becomes `path` when the context ends, and goes away when it ends by an error.

    Raises:
        DataError: `path` is there and not empty, or the current folder, or the folder that it should lie in is not.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir()) and not path.samefile(".")):  # nobody can take its place here
        raise DataError(where=str(path), found="something that is there already", expected="a new folder", remedy="Choose another name.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no folder for it to lie in", expected="a folder that is there", remedy="Make it.")
    part = path.absolute().with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir()
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
