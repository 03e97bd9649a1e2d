"""Local files: atomic writes, names and compression, sizes, and readers whose errors are worded for users."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from sentdist.errors import AGAIN, NO_RIGHT, RIGHTS, DataError, SentdistError, brief, first_line, words_for

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def sync_file(path: Path) -> None:
    """Flush the content of a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to disk: files made, renamed or removed there."""
    sync_file(path)  # POSIX syncs a directory like a file


def sync_tree(folder: Path) -> None:
    """Flush all files and entries below a folder to disk."""
    for path in sorted(folder.rglob("*")):
        sync_file(path)
    sync_folder(folder)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, and flush each new entry to disk."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a file in place and flush its content and name to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def whole_file(path: Path, *, synced: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside `path`, which replaces `path` at the end of the context and is removed after an error.

    Readers see the old file or the new one; concurrent writers do not collide. synced: also after a power loss (two flushes to disk).
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
    """Write the file `last` with `content`, flush the folder to disk and rename it to `target`, unless another writer committed first.

    A target with that file was committed by another writer and is kept; one without it was left by a crash and is replaced. It is renamed
    before it is removed, so that a concurrent writer loses nothing.
    """
    write_file(folder / last, content)
    mode = (folder / last).stat().st_mode  # by the user's umask: some writers make files that only their owner may read
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
        if (replaced / last).exists():  # another writer committed first
            folder, replaced = replaced, folder
    shutil.rmtree(replaced, ignore_errors=True)
    sync_folder(target.parent)


def _renamed(folder: Path, target: Path) -> bool:
    """Rename a folder; return False if the target is not empty."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and flush it to disk; an incomplete last line, left by a power loss, is ended first."""
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


LINES, SEPARATED, OBJECTS, PARQUET, ARROW = ".jsonl", (".csv", ".tsv"), ".json", ".parquet", ".arrow"
PLAIN_SUFFIX = ".txt"  # a text a line
PACKINGS = (".gz", ".zip", ".zst", ".bz2", ".xz")
_TEXT = (*SEPARATED, LINES, OBJECTS, PLAIN_SUFFIX)
_KINDS_OF_TABLES = (PARQUET, ARROW, *SEPARATED, LINES, OBJECTS)
TABLES = (*_KINDS_OF_TABLES, *(f"{suffix}{packing}" for suffix in _KINDS_OF_TABLES if suffix in _TEXT for packing in PACKINGS))
SHOWN_TABLES = f"{', '.join(_KINDS_OF_TABLES)} (text may be packed: .csv.gz)"
SHOWN_READ = f"{PLAIN_SUFFIX}, {SHOWN_TABLES}"


def suffix_of(path: PurePath) -> str:
    """Return the suffix in lower case; of packed text that of its content, `.csv` of a.csv.gz."""
    inside = PurePath(path.stem).suffix.lower() if path.suffix.lower() in PACKINGS else ""
    return inside if inside in _TEXT else path.suffix.lower()


def packing_of(path: PurePath) -> str:
    """Return the suffix of the program that packed a text; "" for other files."""
    return path.suffix.lower() if suffix_of(path) != path.suffix.lower() else ""


def is_called_a_file(path: PurePath) -> bool:
    """Return whether texts can be read from a file of this suffix."""
    return suffix_of(path) in (*_KINDS_OF_TABLES, PLAIN_SUFFIX)


DECIMAL = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def disk_size(num_bytes: float) -> str:
    """Format bytes in decimal units with three digits: '125 MB', '1.25 GB'."""
    return _in_unit(num_bytes, DECIMAL, base=1000, digits=".3g")


def memory_size(num_bytes: float) -> str:
    """Format bytes in binary units with one decimal: '15.9 GiB'."""
    return _in_unit(num_bytes / 1024, BINARY, base=1024, digits=".1f")


def _in_unit(size: float, units: Sequence[str], *, base: int, digits: str) -> str:
    """Use the first unit in which the rounded number is below the base: 999,600 bytes are '1 MB', not '1e+03 kB'."""
    power = 0
    while power < len(units) - 1 and float(f"{size / base**power:{digits}}") >= base:
        power += 1
    return f"{size / base**power:{digits}} {units[power]}"


WRITE_AGAIN = "Download or write it again."
SAVE_AS_UTF8 = "Save it as UTF-8 text."
MOST_JSON_BYTES = 1 << 28  # 256 MiB: tokenizers of large vocabularies take tens of MB

_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def drop_remedy(folder: Path) -> str:
    """Return the remedy for a damaged artifact in this folder of the store."""
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
    """Check that `path` can be read, and turn all errors within the context into one that names the file.

    Only reading belongs inside: libraries raise errors of many types (ArrowInvalid, SafetensorError, plain Exception of tokenizers), so all
    are caught; `--debug` shows them.

    Args:
        path: the file; None: standard input, or what `where` names.
        expected, remedy, kind: of the error.
        where: name of the file in the error; None: its path.
        most_bytes: the largest size that is accepted.
        may_be_pipe: accept a named pipe.

    Raises:
        SentdistError: of `kind`; one that is raised inside passes unchanged.
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
            raise kind(where=name, found="no permission to read it", expected=expected, remedy=RIGHTS) from error
        raise damaged(f"a file that cannot be read ({first_line(error) if error.strerror is None else error.strerror})") from error
    except UnicodeError as error:
        found = f"a file that cannot be read (bytes that are not UTF-8: {first_line(error)})"
        raise kind(where=name, found=found, expected=expected, remedy=SAVE_AS_UTF8 if remedy == WRITE_AGAIN else remedy) from error
    except MemoryError as error:
        raise damaged("more than this machine's memory") from error
    except RecursionError as error:
        raise damaged("values nested too deeply") from error
    except Exception as error:
        raise damaged(f"a file that cannot be read ({type(error).__name__}: {first_line(error)})") from error


def unreadable(path: Path, *, most_bytes: int | None = None, may_be_pipe: bool = False) -> str | None:
    """Return why `path` is not a readable file, or None. It is never opened: opening a pipe may block.

    Raises:
        OSError: its disk or file server fails, see `explain_disk_errors`.
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
        return f"{disk_size(status.st_size)}, more than the limit of {disk_size(most_bytes)}"
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
    """Return the value in a JSON file; raises as `reading` does."""
    with reading(path, expected=expected, remedy=remedy, kind=kind, where=where, most_bytes=most_bytes):
        return json.loads(path.read_text(encoding="utf-8"))


def read_json_object(path: Path, *, expected: str, remedy: str, kind: type[SentdistError] = DataError) -> dict[str, object]:
    """Return the object in a JSON file; raises as `reading` does, and for any other value."""
    values = read_json(path, expected=expected, remedy=remedy, kind=kind)
    if not isinstance(values, dict):
        raise kind(where=str(path), found=brief(values), expected=expected, remedy=remedy)
    return values


def read_json_lines(path: Path, *, expected: str, remedy: str = WRITE_AGAIN) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines; raises as `reading` does, and for any other value."""
    with reading(path, expected=expected, remedy=remedy):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line that is no JSON object")
    return rows


def read_parquet(path: Path, *, columns: Sequence[str] | None = None, expected: str = "Parquet", remedy: str = WRITE_AGAIN) -> pa.Table:
    """Return the table in a Parquet file, or these columns, all of which must exist; raises as `reading` does."""
    with reading(path, expected=expected, remedy=remedy):
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=None if columns is None else list(columns))
        table.validate(full=True)
        if columns is not None and list(table.column_names) != list(columns):
            raise ValueError(f"columns {', '.join(table.column_names)}")
    return table


def read_array(path: Path, *, expected: str = "a .npy file", remedy: str = WRITE_AGAIN, mapped: bool = False) -> np.ndarray:
    """Return the array in a .npy file, without pickles; mapped: a read-only memory map. Raises as `reading` does."""
    with reading(path, expected=expected, remedy=remedy):
        import numpy as np

        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("an archive of arrays")
    return array


def cache_folder(name: str) -> Path:
    """Return the path of a cache folder, which may not exist: below SENTDIST_CACHE, or below `sentdist` in the user's cache folder."""
    own = os.environ.get("SENTDIST_CACHE")
    if own:
        return Path(own) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sentdist" / name


@cache
def code_digest() -> str:
    """Return a digest (16 hex digits) of the names and contents of all modules and templates of this package."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(path for kind in ("py", "jinja") for path in root.rglob(f"*.{kind}")):
        digest.update(f"{path.relative_to(root)}:".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
