"""What files of texts and tables are called, and how they are opened: those of text may be packed by gzip."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path, PurePath
from typing import IO

GZIP = ".gz"
LINES, SEPARATED, OBJECTS, PARQUET = ".jsonl", (".csv", ".tsv"), ".json", ".parquet"
ARROW = ".arrow"  # of one's own file and of sentences, not of sources
PLAIN_SUFFIX = ".txt"  # a sentence a line, or values that something separates
PACKABLE = (*SEPARATED, LINES, OBJECTS, PLAIN_SUFFIX)
_PLAIN_TABLES = (PARQUET, *SEPARATED, LINES, OBJECTS)
TABLES = (*_PLAIN_TABLES, *(f"{suffix}{GZIP}" for suffix in _PLAIN_TABLES if suffix in PACKABLE))
READ = (*TABLES, ARROW, PLAIN_SUFFIX)  # what sentences are read from
SHOWN_TABLES = f"{', '.join(_PLAIN_TABLES)} (text may be packed: .csv{GZIP})"
SHOWN_READ = f"{PLAIN_SUFFIX}, {ARROW}, {SHOWN_TABLES}"
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
GZIP_BEGINS = b"\x1f\x8b"


def suffix_of(path: PurePath) -> str:
    """In small letters, FAQ.CSV is a CSV file; of packed text that of what is inside, and `.gz` of what else is packed."""
    suffix = path.suffix.lower()
    inside = PurePath(path.stem).suffix.lower() if suffix == GZIP else ""
    return inside if inside in PACKABLE else suffix


def is_called_a_file(path: PurePath) -> bool:
    """Whether sentences are read from files of such a name."""
    return suffix_of(path) in READ


def is_file_of_sentences(name: str) -> bool:
    """Whether there is a file by that name from which sentences are read."""
    return is_called_a_file(PurePath(name)) and os.path.isfile(os.path.expanduser(name))  # these raise nothing, whatever the name is


def other_kind(path: PurePath) -> str:
    """What to do with a file of a suffix that is not read."""
    is_sheet = path.suffix.lower() in SPREADSHEETS
    return "Save it as CSV in your spreadsheet program (Excel: CSV UTF-8)" if is_sheet else "Convert or rename the file"


def is_packed(path: PurePath) -> bool:
    """Whether gzip has packed it, by its name."""
    return path.suffix.lower() == GZIP


def open_bytes(path: Path) -> IO[bytes]:
    """A file to read from, unpacked."""
    return gzip.open(path) if is_packed(path) else path.open("rb")  # type: ignore[return-value]


def open_text(path: Path, *, encoding: str | None, newline: str | None = None) -> IO[str]:
    """`open_bytes` as text, as `open` gives it."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline=newline)


def whole_text(path: Path, *, encoding: str) -> str:
    """All of a file, unpacked, with its line ends as they are."""
    with open_bytes(path) as file:
        return file.read().decode(encoding)
