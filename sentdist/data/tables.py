"""Read tables of texts from files and folders: the only reader of user files, of sources below a data root and of sentences to encode."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import lzma
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sentdist.data.mirror import local_copy
from sentdist.errors import DataError, counted, did_you_mean, listed, near_file
from sentdist.files import (
    ARROW,
    LINES,
    OBJECTS,
    PARQUET,
    PLAIN_SUFFIX,
    SHOWN_READ,
    is_called_a_file,
    packing_of,
    reading,
    suffix_of,
    unreadable,
)

if TYPE_CHECKING:
    import pyarrow as pa

# pyarrow takes 0.2 s to import, which planning with cached facts avoids: hence the imports inside functions.

STDIN = "-"
LINE = "sentence"  # name of the only column of plain text
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "val", "valid", "validation", "trial"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}
SEPARATORS = (",", ";", "\t", "|")
ROWS_AT_ONCE = 16_384
BEGIN = 1 << 16  # bytes at the beginning of a file
LONGEST_ROW = 1 << 24  # bytes of a block of CSV, which must hold a row
LONGEST_LINE = 1 << 26  # characters; a file without line ends would fill the memory
QUOTED = r'^"(?:[^"]|"")*""(?:[^"]|"")*"$'  # a field with doubled marks inside, as pandas writes it
DESCRIPTIONS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "metadata.json")  # of files beside them


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """The files of one table.

    Args:
        name: of the table in errors.
        files: in the order of their names; a single None is standard input.
        splits: the split of each file, by its name or folder; () if they have none.
        encoding: of text; None: UTF-8, or UTF-16 with a byte order mark.
    """

    name: str
    files: tuple[Path | None, ...]
    splits: tuple[str, ...] = ()
    encoding: str | None = None

    @property
    def can_be_read_again(self) -> bool:
        """False for standard input and pipes."""
        return all(file is not None and file.is_file() for file in self.files)

    @property
    def note(self) -> str:
        """What is read of a folder; "" for a file."""
        if len(self.files) < 2:
            return ""
        return f"{counted(len(self.files), 'file')} as one table{', with splits by their names' if self.splits else ''}"

    def digest(self) -> str:
        """Return "sha256:" and 16 hex digits of the content, for several files also of their splits."""
        digests = [content_digest(file) for file in self.files if file is not None]
        if not digests[1:]:
            return digests[0]
        each = [f"{split}:{digest}" for split, digest in zip(self.splits or ("",) * len(digests), digests, strict=True)]
        return "sha256:" + hashlib.sha256("\n".join(each).encode()).hexdigest()[:16]

    def shape(self) -> tuple[tuple[str, ...], int | None]:
        """Return the names of the columns, and the number of rows if the files state it."""
        first = next(self._pieces(None), None)
        if first is None:
            raise self._no_rows()
        return tuple(first.column_names), self._stated_rows()

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows, with texts as large_string; Arrow files are memory-mapped.

        Raises:
            DataError: files that cannot be read, without rows or these columns, or with other columns in other parts.
        """
        import pyarrow as pa

        pieces = list(self._pieces(columns))
        if not pieces:
            raise self._no_rows()
        with reading(None, where=self.name, expected="the same columns, of the same types, in all rows"):
            return pa.concat_tables(pieces, promote_options="permissive")

    def batches(self, columns: Sequence[str], num_rows: int = ROWS_AT_ONCE) -> Iterator[dict[str, list[Any]]]:
        """Yield the values of columns, `num_rows` rows at a time (the last time fewer); memory holds a block of the file."""
        import pyarrow as pa

        left: pa.Table | None = None
        for piece in self._pieces(columns):
            left = piece if left is None else pa.concat_tables([left, piece], promote_options="permissive")
            while left.num_rows >= num_rows:
                yield left.slice(0, num_rows).to_pydict()
                left = left.slice(num_rows)
        if left is not None and left.num_rows:
            yield left.to_pydict()

    def _pieces(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        import pyarrow as pa

        first: list[str] = []
        for number, file in enumerate(self.files):
            where = self.name if len(self.files) == 1 or file is None else f"{self.name}/{file.name}"
            for piece in _pieces_of(where, file, self.encoding, columns):
                if self.splits and "split" not in piece.column_names and (columns is None or "split" in columns):
                    piece = piece.append_column("split", pa.repeat(pa.scalar(self.splits[number], pa.large_string()), piece.num_rows))
                check_columns(where, piece.column_names, columns or ())
                piece = piece if columns is None else piece.select(list(dict.fromkeys(columns)))
                first = first or piece.column_names
                if file is not None and suffix_of(file) not in (LINES, OBJECTS):  # objects may lack keys
                    check_columns(where, piece.column_names, first)
                if piece.num_rows:
                    yield piece

    def _stated_rows(self) -> int | None:
        import pyarrow.parquet as pq

        if any(file is None or suffix_of(file) != PARQUET for file in self.files):
            return None
        return sum(pq.read_metadata(file).num_rows for file in self.files)

    def _no_rows(self) -> DataError:
        return DataError(where=self.name, found="no rows", expected="at least one", remedy="Check the program that wrote the file.")


def find_table(name: str, path: Path | None = None, *, encoding: str | None = None) -> TableFiles:
    """Find the files of a table.

    Args:
        name: a path, an address (s3://, gs://, hf://), or "-" for a sentence a line on standard input.
        path: None: `name`.
        encoding: None: UTF-8, or UTF-16 with a byte order mark.

    Raises:
        DataError: no such file, an unknown suffix, or a folder without the parts of one table.
    """
    if name == STDIN and path is None:
        return TableFiles(name="standard input", files=(None,))
    path = path or (local_copy(name) if "://" in name else Path(name).expanduser())
    if path.is_dir():
        return _in_folder(name, path, encoding)
    found = unreadable(path, may_be_pipe=is_substituted(path))
    if found is None and not is_called_a_file(path) and not is_substituted(path):
        found = f"suffix {path.suffix}" if path.suffix else "no suffix"
    if found is not None:
        is_absent = not path.exists() and path.parent.is_dir()
        closest = near_file(path.name, [entry.name for entry in path.parent.iterdir() if is_called_a_file(entry)] if is_absent else [])
        remedy = f'Did you mean "{path.parent / closest}"?' if closest else "Check the path; save a spreadsheet as CSV UTF-8."
        raise DataError(where=name, found=found, expected=f"a folder or file of texts: {SHOWN_READ}", remedy=remedy)
    return TableFiles(name=name, files=(path,), encoding=encoding)


def is_substituted(path: Path) -> bool:
    """Whether a path is a shell's <(command): a pipe with a writer, unlike a named pipe, which may block forever."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


def content_digest(path: Path) -> str:
    """Return "sha256:" and the first 16 hex digits (64 bits) of the file's SHA-256."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()[:16]


def check_columns(name: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError unless each wanted column is found exactly once."""
    twice = [column for column in dict.fromkeys(wanted) if list(found).count(column) > 1]
    absent = [column for column in dict.fromkeys(wanted) if column not in found]
    if twice:
        raise DataError(where=name, found=f"several columns {listed(twice)}", expected="each name once", remedy="Rename all but one.")
    if absent:
        expected = f"columns {listed(list(dict.fromkeys(wanted)))}"
        hint = did_you_mean(absent[0], [column for column in found if column not in wanted])
        remedy = f"{hint} Name the columns of the file, or rename them there ({listed(absent)} missing).".lstrip()
        raise DataError(where=name, found=f"columns {listed(found)}", expected=expected, remedy=remedy)


def with_large_strings(table: pa.Table) -> pa.Table:
    """Return the table with every text column as large_string (offsets of 64 bits: no limit of 2 GB a column)."""
    import pyarrow as pa

    def is_text(kind: pa.DataType) -> bool:
        return pa.types.is_string(kind) or pa.types.is_string_view(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type))

    return table.cast(pa.schema([field.with_type(pa.large_string()) if is_text(field.type) else field for field in table.schema]))


def _in_folder(name: str, folder: Path, encoding: str | None) -> TableFiles:
    """The parts of one table: files of one kind in the folder, or in folders named by splits."""
    seen = [
        entry for entry in sorted(folder.rglob("*"))
        if entry.is_file() and is_called_a_file(entry) and entry.name not in DESCRIPTIONS
        and not any(part.startswith((".", "_", "cache-", "indices")) for part in entry.relative_to(folder).parts)
        and (entry.parent == folder or entry.parent.name.lower() in SPLITS)
    ]  # fmt: skip
    seen = [entry for entry in seen if suffix_of(entry) != PLAIN_SUFFIX] or seen  # readme.txt beside tables is none
    files = tuple(entry for entry in seen if entry.stat().st_size)
    kinds = {suffix_of(entry): entry.name for entry in reversed(seen)}
    if len(kinds) != 1 or not files or {"corpus", "queries"} <= {entry.name.partition(".")[0] for entry in seen}:
        found = f"a folder with {listed(list(kinds.values())) or 'no table'}"
        raise DataError(where=name, found=found, expected="the parts of one table, of one kind", remedy="Name one file in it.")
    splits = tuple(_split_of(entry, folder) for entry in files)
    are_splits = len({*splits}) > 1 and all(splits)
    return TableFiles(name=name.rstrip("/"), files=files, splits=splits if are_splits else (), encoding=encoding)


def _split_of(file: Path, folder: Path) -> str:
    """The split that the name of a file or its folder says; "" for none or several."""
    name = file.name if file.parent == folder else file.parent.name
    found = {SPLITS[word] for word in re.findall("[a-z]+", name.lower()) if word in SPLITS}
    return found.pop() if len(found) == 1 else ""


def _pieces_of(where: str, file: Path | None, encoding: str | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of one file, a block at a time."""
    kind = PLAIN_SUFFIX if file is None else suffix_of(file)
    with _reading(where, file, encoding):
        if file is not None and kind == PARQUET:
            pieces = _of_parquet(file, columns)
        elif file is not None and kind == ARROW:
            pieces = _of_arrow(file)
        else:
            begin = b""
            if file is not None and file.is_file():
                with opened(file) as stream:
                    begin = stream.peek(BEGIN)  # type: ignore[attr-defined]
                if not begin.strip():
                    return
            if b"\0" in begin and encoding is None and not begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise UnicodeError("NUL characters")
            encoding = encoding or ("utf-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
            if kind in (LINES, OBJECTS):
                pieces = _of_json(file, encoding)
            elif kind == PLAIN_SUFFIX or file is None or is_substituted(file):
                pieces = _of_lines(file, encoding)
            else:
                pieces = _of_csv(file, encoding, begin.decode(encoding, "replace"))
        for piece in pieces:
            while any(str(field.type).startswith("struct") for field in piece.schema):
                piece = piece.flatten()  # fields of objects become columns: ticket.question
            piece = with_large_strings(piece.replace_schema_metadata(None))
            piece.validate(full=True)
            yield piece


@contextmanager
def _reading(where: str, file: Path | None, encoding: str | None) -> Iterator[None]:
    """Turn errors into one that names the file, and guess the encoding of text that has another one."""
    kind = "text" if file is None else suffix_of(file)[1:] or "text"
    with reading(file, where=where, expected=f"{kind}, as its name says", may_be_pipe=file is not None and is_substituted(file)):
        try:
            yield
        except Exception as error:
            is_decoding = isinstance(error, UnicodeError) or "invalid UTF8" in str(error)
            if file is None or not is_decoding or suffix_of(file) in (PARQUET, ARROW) or not file.is_file():
                raise
            from charset_normalizer import from_bytes

            with opened(file) as stream:
                best = from_bytes(stream.read(1 << 20)).best()
            likely = "cp1252" if best is None else best.encoding
            raise DataError(
                where=where, found=f"text that is not {encoding or 'UTF-8'}, perhaps {likely}", expected=encoding or "UTF-8",
                remedy=f"Save it as UTF-8 (iconv -f {likely} -t utf-8), or name the encoding: --encoding {likely} of train and tune, "
                f"corpus.encoding of a recipe.",
            ) from error  # fmt: skip


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked as its name says."""
    import pyarrow as pa

    packing = packing_of(file)
    if packing == ".zip":
        with zipfile.ZipFile(file) as archive:
            inside = [entry for entry in archive.infolist() if not entry.is_dir() and not entry.filename.startswith("__MACOSX/")]
            if len(inside) != 1:
                raise ValueError(f"{len(inside)} files in it, not one: unpack it and name its content")
            with archive.open(inside[0]) as member:
                yield io.BufferedReader(member, BEGIN)  # type: ignore[type-var]
    elif packing == ".xz":
        with lzma.open(file) as unpacked:
            yield io.BufferedReader(unpacked, BEGIN)
    elif packing:
        with pa.input_stream(str(file), compression="detect") as stream:
            yield io.BufferedReader(stream, BEGIN)
    else:
        with file.open("rb", buffering=BEGIN) as plain:
            yield plain


def _of_parquet(file: Path, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, memory_map=True) as opened_file:
        names = opened_file.schema_arrow.names
        wanted = None if columns is None else [name for name in names if any(f"{one}.".startswith(f"{name}.") for one in columns)]
        for batch in opened_file.iter_batches(batch_size=1 << 17, columns=wanted):
            yield pa.Table.from_batches([batch])


def _of_arrow(file: Path) -> Iterator[pa.Table]:
    """The blocks of an Arrow file or stream, memory-mapped."""
    import pyarrow as pa

    mapped = pa.memory_map(str(file))
    is_file = mapped.read(6) == b"ARROW1"
    mapped.seek(0)
    if is_file:
        blocks = pa.ipc.open_file(mapped)
        yield from (pa.Table.from_batches([blocks.get_batch(number)]) for number in range(blocks.num_record_batches))
    else:
        yield from (pa.Table.from_batches([block]) for block in pa.ipc.open_stream(mapped))


def _of_csv(file: Path, encoding: str, begin: str) -> Iterator[pa.Table]:
    """Rows below a header, all as text. Tabs separate unquoted fields, unless the header is quoted."""
    import pyarrow as pa
    import pyarrow.csv

    header = next((line for line in begin.removeprefix("\ufeff").splitlines() if line.strip()), "")
    usual = "\t" if suffix_of(file) == ".tsv" else ","
    counts = {mark: re.sub('"[^"]*"', "", header).count(mark) for mark in (usual, *SEPARATORS)}
    separator = usual if counts[usual] else max(counts, key=lambda mark: counts[mark])
    has_marks = separator != "\t" or header.startswith('"')
    texts: dict[str, pa.DataType] = {}
    for is_header in (True, False):  # the header first, so that no column is read as numbers or dates
        with opened(file) as stream, pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(block_size=LONGEST_ROW, encoding=encoding.removesuffix("-sig")),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=separator, quote_char='"' if has_marks else False, newlines_in_values=has_marks
            ),
            convert_options=pyarrow.csv.ConvertOptions(column_types=texts, strings_can_be_null=False),
        ) as reader:  # fmt: skip
            if is_header:
                texts = dict.fromkeys(reader.schema.names, pa.large_string())
                continue
            for batch in reader:
                yield _tidy(pa.Table.from_batches([batch]), is_bare=not has_marks)


def _tidy(table: pa.Table, *, is_bare: bool) -> pa.Table:
    """The table without unnamed columns (row numbers of pandas) and spaces around names; is_bare: with fields that pandas quoted."""
    import pyarrow.compute as pc

    named = [place for place, name in enumerate(table.column_names) if name.strip()]
    table = table.select(named).rename_columns([table.column_names[place].strip() for place in named])
    for place, column in enumerate(table.columns if is_bare else ()):
        is_quoted = pc.match_substring_regex(column, QUOTED)
        if pc.any(is_quoted).as_py():
            inner = pc.replace_substring(pc.utf8_slice_codeunits(column, 1, -1), '""', '"')
            table = table.set_column(place, table.column_names[place], pc.if_else(is_quoted, inner, column))
    return table


def _of_lines(file: Path | None, encoding: str) -> Iterator[pa.Table]:
    """A text a line, without blank lines at the end."""
    import pyarrow as pa

    with _text(file, encoding) as text:
        lines = (line.rstrip("\r\n") for line in _bounded(text))
        rows: list[str] = []
        while more := list(islice(lines, ROWS_AT_ONCE)):
            if rows:
                yield pa.table({LINE: pa.array(rows, pa.large_string())})
            rows = more
        while rows and not rows[-1].strip():
            rows.pop()
        if rows:
            yield pa.table({LINE: pa.array(rows, pa.large_string())})


def _of_json(file: Path | None, encoding: str) -> Iterator[pa.Table]:
    """A list of objects or arrays, an object that holds the only list of objects, or an object or array a line."""
    if file is not None and suffix_of(file) == OBJECTS:
        with _text(file, encoding) as text, suppress(json.JSONDecodeError):
            value = json.load(text)
            lists = [one for one in value.values() if isinstance(one, list)] if isinstance(value, dict) else [value]
            if len(lists) != 1 or not isinstance(lists[0], list):
                raise ValueError("neither a list of objects nor an object a line")
            yield _of_objects(lists[0])
            return
    with _text(file, encoding) as text:
        lines = (json.loads(line) for line in _bounded(text) if line.strip())
        while rows := list(islice(lines, ROWS_AT_ONCE)):
            yield _of_objects(rows)


def _of_objects(rows: Sequence[Any]) -> pa.Table:
    """A column a key, in order of first appearance; the values of arrays are called 1, 2, …"""
    import pyarrow as pa

    each = [dict(zip(map(str, range(1, len(row) + 1)), row, strict=True)) if isinstance(row, list) else row for row in rows]
    if not all(isinstance(row, dict) for row in each):
        raise ValueError("a value that is no object")
    return pa.table({key: [row.get(key) for row in each] for key in dict.fromkeys(key for row in each for key in row)})


@contextmanager
def _text(file: Path | None, encoding: str) -> Iterator[IO[str]]:
    if file is None:
        yield sys.stdin
        return
    with opened(file) as stream:
        yield io.TextIOWrapper(stream, encoding=encoding, newline="\n")


def _bounded(text: IO[str]) -> Iterator[str]:
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line of more than {LONGEST_LINE:,} characters")
        yield line
