"""The only way in for files that a user can damage: whatever is wrong with one becomes an error in a sentence that names it."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sentdist.disk_errors import AGAIN, NO_RIGHT, RIGHTS, words_for
from sentdist.errors import DataError, SentdistError, brief, counted, first_line
from sentdist.sizes import disk_size

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

WRITE_AGAIN = "Fetch or write it again."
QUOTE_FIELDS = "Put fields that hold the separator or a line break into quotation marks, and complete rows that lack some."
SAVE_AS_UTF8 = "Save it as UTF-8 text."
FOREIGN_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
MOST_JSON_BYTES = 1 << 28  # 256 MiB: tokenizers of large vocabularies take tens of MB

_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def drop_remedy(folder: Path) -> str:
    """What to do about an artifact whose files are damaged, `folder` being its folder in the store."""
    end = folder.name.rpartition("-")[2]
    is_key = len(end) >= 6 and set(end) <= set("0123456789abcdef")
    return f"Run `sentdist store drop {end if is_key else 'KEY'}`; the next run builds it again."


@contextmanager
def reading(
    path: Path | None,
    *,
    expected: str,
    remedy: str = WRITE_AGAIN,
    kind: type[SentdistError] = DataError,
    where: str | None = None,
    most_bytes: int | None = None,
    may_be_pipe: bool = False,
) -> Iterator[None]:
    """Read `path` in this context: it is a file, not larger than `most_bytes`, and any error of the parser is raised as damage to it.

    path: None is what has no path: standard input, unless `where` names it.

    Only reading belongs inside: every library has its own errors (ArrowInvalid, SafetensorError, UnpicklingError, plain Exception of the
    tokenizers), so all are taken, and `--debug` shows them. where: what to call the file; None: its path.

    Raises:
        SentdistError: of `kind`; one that is raised inside passes as it is.
    """
    shown = "standard input" if path is None else str(path)
    name = shown if where is None else where if path is None or shown in where else f"{where} ({shown})"

    def damaged(found: str) -> SentdistError:
        return kind(where=name, found=found, expected=expected, remedy=remedy)

    try:
        found = None if path is None else unreadable(path, most_bytes=most_bytes, may_be_pipe=may_be_pipe)
        if found is not None:
            raise damaged(found)
        yield
    except SentdistError:
        raise
    except OSError as error:
        if words := words_for(error):
            raise kind(where=name, found=words, expected=expected, remedy=AGAIN) from error
        if error.errno in NO_RIGHT:
            raise kind(where=name, found="no right to read it", expected=expected, remedy=RIGHTS) from error
        raise damaged(f"a file that cannot be read ({first_line(error) if error.strerror is None else error.strerror})") from error
    except UnicodeError as error:
        found = f"a file that cannot be read ({_line_of(error, path)}bytes that are no UTF-8)"
        raise kind(where=name, found=found, expected=expected, remedy=SAVE_AS_UTF8 if remedy == WRITE_AGAIN else remedy) from error
    except MemoryError as error:
        raise damaged("more than this machine's memory holds") from error
    except RecursionError as error:
        raise damaged("values nested too deep") from error
    except Exception as error:
        if (ragged := re.match(r"CSV parse error: Expected (\d+) columns, got (\d+): (.*)", first_line(error))) and remedy == WRITE_AGAIN:
            found = f"a row of {counted(int(ragged[2]), 'field')} where {ragged[1]} belong: {brief(ragged[3])}"
            foreign = foreign_separator(ragged[3]) if ragged[1] == "1" else None
            raise kind(
                where=name, found=found, expected="as many in each row", remedy=QUOTE_FIELDS if foreign is None else of_its_suffix(foreign)
            ) from error
        raise damaged(f"a file that cannot be read ({_explained(error)})") from error


def foreign_separator(line: str) -> str | None:
    """What parts the fields of a line that was read as one, in a word."""
    return next((word for mark, word in FOREIGN_SEPARATORS.items() if mark in line), None)


def of_its_suffix(foreign: str) -> str:
    """What to do with a file that another separator parts than its suffix says."""
    return f"Save it with the separator of its suffix: these are {foreign}."


def unreadable(path: Path, *, most_bytes: int | None = None, may_be_pipe: bool = False) -> str | None:
    """Why `path` is no file to read, in a few words; None where it is one. Never opens it: opening a pipe may wait forever.

    Raises:
        OSError: its disk or file server fails, see `disk_errors`.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "no such file"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if words_for(error):
            raise
        return (error.strerror if isinstance(error, OSError) else None) or first_line(error)
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode) and not (may_be_pipe and is_kind is stat.S_ISFIFO):
            return f"{name}, not a file"
    if most_bytes is not None and status.st_size > most_bytes:
        return f"{disk_size(status.st_size)}, more than the {disk_size(most_bytes)} that are read here"
    return None


def read_json(
    path: Path,
    *,
    expected: str = "JSON",
    remedy: str = WRITE_AGAIN,
    kind: type[SentdistError] = DataError,
    where: str | None = None,
    most_bytes: int = MOST_JSON_BYTES,
) -> object:
    """The value in a JSON file; raises as `reading` does."""
    with reading(path, expected=expected, remedy=remedy, kind=kind, where=where, most_bytes=most_bytes):
        return json.loads(path.read_text(encoding="utf-8"))


def read_json_object(
    path: Path,
    *,
    expected: str,
    remedy: str,
    kind: type[SentdistError] = DataError,
) -> dict[str, object]:
    """The mapping in a JSON file; raises as `reading` does, and for any other value."""
    values = read_json(path, expected=expected, remedy=remedy, kind=kind)
    if not isinstance(values, dict):
        raise kind(where=str(path), found=brief(values), expected=expected, remedy=remedy)
    return values


def read_json_lines(path: Path, *, expected: str, remedy: str = WRITE_AGAIN) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines; raises as `reading` does, and for any other value."""
    with reading(path, expected=expected, remedy=remedy):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line that is no JSON object")
    return rows


def read_parquet(path: Path, *, columns: Sequence[str] | None = None, expected: str = "Parquet", remedy: str = WRITE_AGAIN) -> pa.Table:
    """The table in a Parquet file, or these columns of it, all of which must be there; raises as `reading` does."""
    with reading(path, expected=expected, remedy=remedy):
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=None if columns is None else list(columns))
        table.validate(full=True)
        if columns is not None and list(table.column_names) != list(columns):
            raise ValueError(f"columns {', '.join(table.column_names)}")
    return table


def read_array(path: Path, *, expected: str = "a .npy file", remedy: str = WRITE_AGAIN, mapped: bool = False) -> np.ndarray:
    """The array in a .npy file, without pickles; mapped: read-only from the file as it is used. Raises as `reading` does."""
    with reading(path, expected=expected, remedy=remedy):
        import numpy as np

        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("an archive of arrays")
    return array


def bounded_lines(file: IO[str], *, longest: int) -> Iterator[str]:
    """The lines of a file, none longer than `longest` letters: ValueError instead of filling the memory with a file that has no lines."""
    while line := file.readline(longest + 1):
        if len(line) > longest:
            raise ValueError(f"a line of more than {longest:,} letters")
        yield line


def _line_of(error: UnicodeError, path: Path | None) -> str:
    """Where in a text the bytes stand, if it was read whole."""
    if not isinstance(error, UnicodeDecodeError) or path is None or len(error.object) != path.stat().st_size:
        return ""
    number = error.object[: error.start].count(10) + 1
    return f"line {number}: "


def _explained(error: Exception) -> str:
    """JSON's errors say enough; others are better known by their name."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in line {error.lineno}"
    said = first_line(error)
    if type(error).__name__ == "ArrowInvalid":
        if mixed := re.fullmatch(r"JSON parse error: Column\(/?(.*)\) changed from (\w+) to (\w+) in row (\d+)", said):
            return f"{mixed[1] or 'a line'} is {mixed[2]} in some rows and {mixed[3]} in row {int(mixed[4]) + 1} of a part of it"
        if broken := re.fullmatch(r"JSON parse error: (.*) in row (\d+)", said):
            return f"no JSON in row {int(broken[2]) + 1} of a part of it: {broken[1].rstrip('.')}"
        if "Parquet" in said:
            return f"no Parquet file, or a part of one: {said.rpartition(': ')[2]}"
    return said if said == type(error).__name__ else f"{type(error).__name__}: {said}"
