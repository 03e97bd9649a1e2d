"""The only way in for files that a user can damage: whatever is wrong with one becomes an error in a sentence that names it."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sentdist.errors import DataError, SentdistError, brief, first_line

WRITE_AGAIN = "Fetch or write it again."
MOST_JSON_BYTES = 1 << 28  # 256 MiB: tokenizers of large vocabularies take tens of MB

_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"), (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def drop_remedy(folder: Path) -> str:
    """What to do about an artifact whose files are damaged, `folder` being its folder in the store."""
    key = folder.name.rpartition("-")[2]
    return f"Run `sentdist store drop {key}`; the next run makes it anew."


@contextmanager
def reading(
    path: Path,
    *,
    expected: str,
    remedy: str = WRITE_AGAIN,
    kind: type[SentdistError] = DataError,
    where: str | None = None,
    most_bytes: int | None = None,
) -> Iterator[None]:
    """Read `path` in this context: it is a file, not larger than `most_bytes`, and any error of the parser is told as damage to it.

    Only reading belongs inside: every library has its own errors (ArrowInvalid, SafetensorError, UnpicklingError, plain Exception of the
    tokenizers), so all are taken, and `--debug` shows them. where: what to call the file; None: its path.

    Raises:
        SentdistError: of `kind`; one that is raised inside passes as it is.
    """
    name = str(path) if where is None else where if str(path) in where else f"{where} ({path})"

    def damaged(found: str) -> SentdistError:
        return kind(where=name, found=found, expected=expected, remedy=remedy)

    try:
        found = unreadable(path, most_bytes=most_bytes)
        if found is not None:
            raise damaged(found)
        yield
    except SentdistError:
        raise
    except OSError as error:
        raise damaged(f"a file that cannot be read ({first_line(error) if error.strerror is None else error.strerror})") from error
    except UnicodeError as error:
        raise damaged("bytes that are no UTF-8") from error
    except MemoryError as error:
        raise damaged("more than this machine's memory holds") from error
    except RecursionError as error:
        raise damaged("values nested too deep") from error
    except Exception as error:
        raise damaged(f"a file that cannot be read ({_explained(error)})") from error


def unreadable(path: Path, *, most_bytes: int | None = None) -> str | None:
    """Why `path` is no file to read, in a few words; None where it is one. Never opens it: opening a pipe may wait for ever."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "no such file"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return (error.strerror if isinstance(error, OSError) else None) or first_line(error)
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            return f"{name}, not a file"
    if most_bytes is not None and status.st_size > most_bytes:
        return f"{shown_bytes(status.st_size)}, more than the {shown_bytes(most_bytes)} that are read here"
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
    expected: str = "a JSON object",
    remedy: str = WRITE_AGAIN,
    kind: type[SentdistError] = DataError,
    where: str | None = None,
) -> dict[str, object]:
    """The mapping in a JSON file; raises as `reading` does, and for any other value."""
    values = read_json(path, expected=expected, remedy=remedy, kind=kind, where=where)
    if not isinstance(values, dict):
        raise kind(where=str(path) if where is None else f"{where} ({path})", found=brief(values), expected=expected, remedy=remedy)
    return values


def bounded_lines(file: IO[str], *, longest: int) -> Iterator[str]:
    """The lines of a file, none longer than `longest` letters: ValueError instead of filling the memory with a file that has no lines."""
    while line := file.readline(longest + 1):
        if len(line) > longest:
            raise ValueError(f"a line of more than {longest:,} letters")
        yield line


def shown_bytes(size: int) -> str:
    """A size in the unit that leaves one to three digits before the point: '125 MB'."""
    power = min(4, int(math.log(max(size, 1), 1000)))
    return f"{size / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def _explained(error: Exception) -> str:
    """JSON's errors say enough; others are better known by their name."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in line {error.lineno}"
    said = first_line(error)
    return said if said == type(error).__name__ else f"{type(error).__name__}: {said}"
