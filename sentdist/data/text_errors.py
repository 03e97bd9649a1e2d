"""What is told of files of sentences that are not there or hold none, and of cells that are no sentences."""

from __future__ import annotations

from pathlib import Path

from sentdist.data.cells import is_utf8
from sentdist.errors import DataError
from sentdist.spelling import near_file
from sentdist.table_files import SHOWN_TABLES


def what_is_wanted(sentence: object) -> str:
    """What a cell that is no sentence should have been."""
    if isinstance(sentence, str) and "\0" in sentence:
        return "a sentence without NUL characters (\\x00)"
    if isinstance(sentence, str) and not is_utf8(sentence):
        return "a sentence in UTF-8, without halves of surrogate pairs"
    return "a sentence with at least one visible character"


def missing(path: Path) -> DataError:
    folder = path.parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    closest = None if path.is_dir() else near_file(path.name, names)
    return DataError(
        where=str(path),
        found="a folder" if path.is_dir() else "no such file",
        expected=f"a file of sentences: .txt with one a line, {SHOWN_TABLES}",
        remedy=f'Did you mean "{folder / closest}"?' if closest else "Check the path.",
    )


def no_rows(name: str) -> DataError:
    return DataError(where=name, found="no rows", expected="at least one sentence", remedy="Check what wrote it.")
