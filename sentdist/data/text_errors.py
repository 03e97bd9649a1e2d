"""What errors say of files of sentences that are not there or hold none, and of cells that are no sentences."""

from __future__ import annotations

import shlex
from pathlib import Path

from sentdist.data.cells import is_utf8
from sentdist.errors import DataError, brief, listed
from sentdist.spelling import near_file
from sentdist.table_files import ARROW, GZIP, LINES, PARQUET, PLAIN_SUFFIX, SEPARATED, SHOWN_TABLES, is_called_a_file, suffix_of

PARQUET_PARTS = "import sys, pyarrow.dataset as d, pyarrow.parquet as p; p.write_table(d.dataset(sys.argv[1]).to_table(), sys.argv[2])"


def what_is_wanted(sentence: object) -> str:
    """What a cell that is no sentence should have been."""
    if isinstance(sentence, str) and "\0" in sentence:
        return "a sentence without NUL characters (\\x00)"
    if isinstance(sentence, str) and not is_utf8(sentence):
        return "a sentence in UTF-8, without halves of surrogate pairs"
    return "a sentence, not a list" if isinstance(sentence, list) else "a sentence with at least one visible character"


def missing(path: Path) -> DataError:
    folder, expected = path.parent, f"a file of sentences: .txt with one a line, {ARROW}, {SHOWN_TABLES}"
    if path.is_dir():
        return DataError(where=str(path), found="a folder", expected=expected, remedy=file_of_folder(path))
    if len(path.name.split()) > 1 and not is_called_a_file(path) and folder == Path():
        return DataError(where=brief(str(path)), found="a sentence", expected=expected, remedy="A file is wanted here.")
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    closest = near_file(path.name, names)
    remedy = f'Did you mean "{folder / closest}"?' if closest else parts_by_pattern(path) or "Check the path."
    return DataError(where=str(path), found="no such file", expected=expected, remedy=remedy)


def file_of_folder(folder: Path) -> str:
    """What to do where a folder was named: to name a file in it, or to put the parts of one table into one file."""
    inside = sorted(entry for entry in folder.iterdir() if is_called_a_file(entry) and entry.is_file())
    if not inside:
        return "It holds no such table."
    alike = [entry for entry in inside if suffix_of(entry) == suffix_of(inside[0]) and entry.suffix == inside[0].suffix]
    parts = f" {_in_one_file(folder / f'*{_ending(inside[0])}')}" if alike[1:] else ""
    return f"Name a file in it: {listed([str(entry) for entry in inside[:3]])}{' or another' if inside[3:] else ''}.{parts}"


def parts_by_pattern(path: Path) -> str:
    """What to do where a pattern names the parts of one table; "" for what is none."""
    return _in_one_file(path) if is_pattern(path) else ""


def is_pattern(path: Path) -> bool:
    """Whether a name is of several files, as a shell fills it in."""
    return any(letter in path.name for letter in "*?[") and is_called_a_file(path)


def _in_one_file(pattern: Path) -> str:
    """How the files of a pattern become one, in words and, where there is one for their kind, as a command."""
    whole = f"{pattern.parent.name or 'all'}{_ending(pattern)}"
    if any(letter in str(pattern.parent) for letter in "*?[ '\""):
        return "Parts of one table are put into one file first."
    match suffix_of(pattern):
        case kind if kind in (LINES, PLAIN_SUFFIX):
            command = f"cat {pattern} > {whole}"
        case kind if kind in SEPARATED and pattern.suffix == kind:
            command = f"awk 'NR == 1 || FNR > 1' {pattern} > {whole}"  # the first line, which names the columns, once
        case kind if kind == PARQUET and pattern.name == f"*{PARQUET}":
            command = f"python -c {shlex.quote(PARQUET_PARTS)} {pattern.parent} {whole}"
        case _:
            return "Parts of one table are put into one file first."
    return f"Parts of one table are put into one file first: {command}"


def _ending(path: Path) -> str:
    """Its suffix, with that of gzip behind it."""
    return f"{suffix_of(path)}{path.suffix}" if path.suffix.lower() == GZIP and suffix_of(path) != GZIP else path.suffix


def no_rows(name: str) -> DataError:
    return DataError(where=name, found="no rows", expected="at least one sentence", remedy="Check what wrote it.")
