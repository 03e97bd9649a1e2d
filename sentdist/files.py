"""How files come to a local disk whole or not at all: under another name first, and synced where a power loss must find them so."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

from sentdist.errors import AGAIN, NO_RIGHT, RIGHTS, DataError, SentdistError, brief, counted, first_line, words_for

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


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


DECIMAL = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def disk_size(num_bytes: float) -> str:
    """Three digits: '125 MB', '1.25 GB'."""
    return _in_unit(num_bytes, DECIMAL, base=1000, digits=".3g")


def memory_size(num_bytes: float) -> str:
    """One digit behind the point: '15.9 GiB'."""
    return _in_unit(num_bytes / 1024, BINARY, base=1024, digits=".1f")


def _in_unit(size: float, units: Sequence[str], *, base: int, digits: str) -> str:
    """In the first unit whose number, as it is written, lies below the base: 999,600 bytes are '1 MB', not '1e+03 kB'."""
    power = 0
    while power < len(units) - 1 and float(f"{size / base**power:{digits}}") >= base:
        power += 1
    return f"{size / base**power:{digits}} {units[power]}"


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


def cache_folder(name: str) -> Path:
    """The folder of that name, made by nobody yet: below SENTDIST_CACHE, or else below `sentdist` in the user's cache folder."""
    own = os.environ.get("SENTDIST_CACHE")
    if own:
        return Path(own) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sentdist" / name


@cache
def code_digest() -> str:
    """Sixteen hex digits of all modules and templates of this package, by name and content."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(path for kind in ("py", "jinja") for path in root.rglob(f"*.{kind}")):
        digest.update(f"{path.relative_to(root)}:".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
