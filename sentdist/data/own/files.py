"""Find the files of a user table (one file, a folder of parts, or a saved data set) and read them as one table."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sentdist.data.cells import is_pattern, row_name
from sentdist.data.own.columns import with_passages
from sentdist.data.own.split import OWN_NAMES, SIDES
from sentdist.data.sources.file_facts import content_digest
from sentdist.data.sources.files import read_arrow, read_text_table, with_large_strings
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError, counted, listed, near_file
from sentdist.files import (
    ARROW,
    LINES,
    OBJECTS,
    PACKABLE,
    PARQUET,
    PLAIN_SUFFIX,
    SHOWN_READ,
    WRITE_AGAIN,
    is_packed,
    open_bytes,
    read_json_object,
    reading,
    suffix_of,
    unreadable,
)

if TYPE_CHECKING:
    import pyarrow as pa


READABLE = SHOWN_READ
NOTHING = ("\\N", "NULL", "null", "NaN", "nan", "<NA>", "#N/A", "N/A", "n/a", "None")  # null values of databases, pandas and Excel


SAID_BY_SUFFIX = {
    ".json": "JSON, a list of objects", ".jsonl": "JSON, an object a line", PARQUET: "a Parquet file", ARROW: "a file or stream of Arrow",
}  # fmt: skip


def is_own_name(name: str) -> bool:
    """Whether a file of that name can be read."""
    return suffix_of(PurePath(name)) in (*PACKABLE, PARQUET, ARROW)


def no_such_file(path: Path, file: str) -> DataError:
    """Return the error for a path without a file, or of a pipe or device, with the name that was probably meant."""
    folder = path.parent
    names = [entry.name for entry in folder.iterdir() if is_own_name(entry.name) and entry.is_file()] if folder.is_dir() else []
    closest, found = near_file(path.name, names), unreadable(path) or "no such file"
    remedy = "Give its path, or its name below --data; to a recipe --set corpus.file=YOURS.csv."
    if closest:
        remedy = f'Did you mean "{Path(file).parent / closest}"?'
    elif is_pattern(path) and folder.is_dir():
        remedy = f"Name the folder, {folder}: its files are read as one table."
    return DataError(where=file, found=found, expected=f"a table of texts: {READABLE}", remedy=remedy)


@contextmanager
def may_lack_header(is_guessed: bool) -> Iterator[None]:
    """Add to a DataError how to declare the header if its absence was only guessed."""
    try:
        yield
    except DataError as error:
        if not is_guessed:
            raise
        remedy = f"{error.remedy} If the first line names the columns: --header (tune), or --set corpus.header=true (a recipe)."
        raise error.with_context(remedy=remedy) from None


def own_table(name: str, path: Path, file_format: FileFormat, *, named: Sequence[str | None] = ()) -> pa.Table:
    """Return the rows of a file, text columns as large_string; all columns of separated values are text.

    Args:
        named: columns that will be read; `ticket.question` is a field of the objects in `ticket`.

    Raises:
        DataError: the file does not have the given format, or has no rows.
    """
    table = part_table(name, path, file_format, named=named)
    if not table.num_rows:
        raise no_rows(name)
    return table


def part_table(name: str, path: Path, file_format: FileFormat, *, named: Sequence[str | None] = ()) -> pa.Table:
    """Like `own_table`, but the file may have no rows."""
    with reading(path, expected=SAID_BY_SUFFIX.get(suffix_of(path), "a table as its suffix says"), where=name):
        if suffix_of(path) == PARQUET:
            import pyarrow.parquet as pq

            table = pq.read_table(path)
        elif suffix_of(path) == ARROW:
            table = read_arrow(path)
        else:
            table = read_text_table(path, file_format, may_repeat=True)
        table = _without_blank_end(with_large_strings(with_passages(_with_fields(table, named))))
        table.validate(full=True)
    return _emptied(table)


def no_rows(name: str) -> DataError:
    """Return the error for a table without rows."""
    return DataError(where=name, found="no rows", expected="at least one", remedy="Write the file again.")


def _with_fields(table: pa.Table, named: Sequence[str | None]) -> pa.Table:
    """The table with the named fields of objects as additional columns."""
    within = [name for name in named if name is not None and name not in table.column_names]
    if not within:
        return table
    flat = flattened(table)
    for name in dict.fromkeys(within):
        if name in flat.column_names:
            table = table.append_column(name, flat[name])
    return table


def flattened(table: pa.Table) -> pa.Table:
    """Return the table with the fields of objects as columns, named by their path: ticket.question."""
    import pyarrow as pa

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _without_blank_end(table: pa.Table) -> pa.Table:
    """The table without empty rows at its end, which spreadsheets write unnoticed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def is_blank(cell: object) -> bool:
        return cell is None or (isinstance(cell, str) and not cell.strip())

    if not table.num_rows or not all(is_blank(column[-1].as_py()) for column in table.columns):
        return table
    last = -1
    for column in table.columns:
        is_text = pa.types.is_large_string(column.type)
        filled = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(column), ""), False) if is_text else column.is_valid()
        places = pc.indices_nonzero(filled)
        last = max(last, places[-1].as_py() if len(places) else -1)
    return table.slice(0, last + 1)


def _emptied(table: pa.Table) -> pa.Table:
    """The table with null words as nulls: a text NULL would be the positive of all rows without one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pa.array(NOTHING, pa.large_string())
    for place, field in enumerate(table.schema):
        if pa.types.is_large_string(field.type):
            is_nothing = pc.is_in(pc.utf8_trim_whitespace(table.column(place)), value_set=words)
            if pc.any(is_nothing).as_py():
                cells = pc.if_else(is_nothing, pa.scalar(None, pa.large_string()), table.column(place))
                table = table.set_column(place, field.with_nullable(True), cells)
    return table


SPLITS, STATE = "dataset_dict.json", "state.json"  # of a DatasetDict; of a Dataset, which each split is
EXPECTED = "a data set as save_to_disk of `datasets` writes it"


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return (folder / SPLITS).is_file() or (folder / STATE).is_file()


def saved_files(folder: Path) -> list[tuple[Path, str]]:
    """Return the files of a folder written by `save_to_disk`, in order, each with the name of its split ("" without splits).

    Raises:
        DataError: a description that `datasets` does not write, or a missing file.
    """
    if not (folder / SPLITS).is_file():
        return [(file, "") for file in _files_of(folder)]
    splits = read_json_object(folder / SPLITS, expected=EXPECTED, remedy=WRITE_AGAIN).get("splits")
    if not isinstance(splits, list) or not all(isinstance(split, str) and _is_plain(split) for split in splits):
        raise _broken(folder / SPLITS, "no names of splits")
    return [(file, split) for split in splits for file in _files_of(folder / split)]


def _files_of(folder: Path) -> Iterator[Path]:
    """The files of a Dataset; the folder may contain others, such as the cache of `map`."""
    state = read_json_object(folder / STATE, expected=EXPECTED, remedy=WRITE_AGAIN)
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) and _is_plain(name) for name in names):
        raise _broken(folder / STATE, "no names of files")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise _broken(folder / STATE, "rows selected by an index", "Save it again with a newer `datasets`.")
    for name in map(str, names):
        if not (folder / name).is_file():
            raise _broken(folder / name, "no such file")
        yield folder / name


def _is_plain(name: str) -> bool:
    """Whether a name is that of a direct entry of the folder."""
    return bool(name) and name == Path(name).name and name != ".."


def _broken(path: Path, found: str, remedy: str = WRITE_AGAIN) -> DataError:
    return DataError(where=str(path), found=found, expected=EXPECTED, remedy=remedy)


HIDDEN = (".", "_")  # prefixes of names that are no parts: _SUCCESS, _metadata, .part-00000.crc
DESCRIPTIONS = (
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
    "metadata.json",
)  # metadata of the files in the folder
BLOCK = 1 << 20  # bytes read at once


@dataclass(frozen=True, kw_only=True)
class TableParts:
    """The files of one table.

    Args:
        files: in the order of their names.
        is_folder: whether they are the parts in a folder.
        splits: the split of each file, by its name or by its folder (`save_to_disk`); () if unknown.
        unread: other entries of the folder.
    """

    files: tuple[Path, ...]
    is_folder: bool = False
    splits: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def is_in_folders(self) -> bool:
        """Whether each split has a separate folder."""
        return len({file.parent for file in self.files}) > 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files, relative to the folder."""
        return tuple(f"{file.parent.name}/{file.name}" if self.is_in_folders else file.name for file in self.files)

    def digest(self) -> str:
        """Return a digest of the content; for a folder, of all its parts in order with their splits."""
        if not self.is_folder:
            return content_digest(self.files[0])
        splits = self.splits or ("",) * len(self.files)
        each = [f"{split}:{content_digest(file)}" for file, split in zip(self.files, splits, strict=True)]
        return "sha256:" + hashlib.sha256("\n".join(each).encode()).hexdigest()[:16]

    def changed(self) -> tuple[int, ...]:
        """Return the modification time of each file, in ns."""
        return tuple(file.stat().st_mtime_ns for file in self.files)

    def notes(self) -> list[str]:
        """Return notes on the parts of a folder."""
        if not self.is_folder:
            return []
        first, last = self.names[0], self.names[-1]
        ends = f"{first}{f' to {last}' if self.files[1:] else ''}"
        notes = [f"{counted(len(self.files), 'file')}{' as one table' if self.files[1:] else ''}, {ends}"]
        if self.splits:
            notes.append(f"splits by the names of the {'folders' if self.is_in_folders else 'files'}")
        elif 0 < len(words := [file.name for file in self.files if _sides_in(file)]) < len(self.files):
            notes.append(f"{listed(words)} not read as a split")
        return [*notes, *([f"{listed(self.unread)} beside not read"] if self.unread else [])]


@dataclass(frozen=True, kw_only=True)
class RowPlaces:
    """Names a row of a table by its file and row number.

    Args:
        starts: first row of each part; () for a table in one file.
        names: of the files.
    """

    starts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __call__(self, row: int) -> str:
        if not self.starts:
            return row_name(row)
        part = bisect_right(self.starts, row) - 1
        return f"{row_name(row - self.starts[part])} of {self.names[part]}"


def parts_of(name: str, path: Path) -> TableParts:
    """Return a file, or the parts in a folder: its tables of one kind, without empty and hidden ones.

    Raises:
        DataError: no file; a folder without a table, with tables of several kinds, or with splits for only some of them.
    """
    if not path.is_dir():
        if (kind := unreadable(path)) is not None:
            raise DataError(where=name, found=kind, expected="a file", remedy="Correct corpus.file.")
        return TableParts(files=(path,))
    if is_saved(path):
        return _saved_parts(name, path)
    seen = sorted(entry for entry in path.iterdir() if not entry.name.startswith(HIDDEN))
    _refuse_collection(name, path, seen)
    tables = [entry for entry in seen if entry.is_file() and is_own_name(entry.name) and entry.name not in DESCRIPTIONS]
    tables = [entry for entry in tables if suffix_of(entry) != PLAIN_SUFFIX] or tables  # readme.txt next to tables is no table
    if not tables:
        raise _no_table(name, path, seen)
    kinds = {(suffix_of(entry), is_packed(entry)): entry for entry in reversed(tables)}
    if len(kinds) > 1:
        found = f"a folder with files of several kinds, such as {listed([entry.name for entry in kinds.values()])}"
        remedy = "Name one of the files, or put the parts into a separate folder."
        raise DataError(where=name, found=found, expected="the parts of one table, of one kind", remedy=remedy)
    files = tuple(entry for entry in tables if not _is_empty(entry))
    if not files:
        raise no_rows(name)
    unread = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in seen if entry not in tables]
    return TableParts(files=files, is_folder=True, splits=_splits(name, files), unread=tuple(unread))


def _refuse_collection(name: str, folder: Path, seen: Sequence[Path]) -> None:
    """Raise DataError for queries, documents and judgements, whose files would be read as parts of one table."""
    stems = {entry.name.partition(".")[0] for entry in seen}
    if {"corpus", "queries"} <= stems:
        raise DataError(
            where=name,
            found="queries, documents and judgements in separate files, as in BEIR",
            expected="the parts of one table, a row for each pair of texts",
            remedy="Write a row for each query with a relevant document, in columns query and document. A recipe reads the folder itself "
            f"and holds out a fifth of its queries at a time: corpus: {{source: {folder.name}, split: null}}, folds: {{num: 5}}, with "
            f"--data {folder.parent}.",
        )


def _saved_parts(name: str, folder: Path) -> TableParts:
    """The files and splits of a data set saved by `datasets`. DataError as in `saved_files`, and for unknown names of splits."""
    saved = saved_files(folder)
    if not saved:
        raise no_rows(name)
    names = list(dict.fromkeys(split for _, split in saved))
    sides = {split: OWN_NAMES.get(split.casefold()) for split in names}
    if len(names) > 1 and (unknown := [split for split, side in sides.items() if side is None]):
        found = f"splits {listed(names)}"
        remedy = f"Name the folder of one: {folder / unknown[0]}."
        raise DataError(where=name, found=found, expected=f"splits called by some of {', '.join(OWN_NAMES)}", remedy=remedy)
    splits = tuple(SIDES[sides[split] or 0] for _, split in saved) if len({*sides.values()}) > 1 else ()
    return TableParts(files=tuple(file for file, _ in saved), is_folder=True, splits=splits)


def format_of_parts(name: str, parts: TableParts, given: FileFormat, known_names: Sequence[str]) -> FileFormat:
    """Return the format of all parts, as found by `recognised`: separator and header of the first, the encoding of all.

    Raises:
        DataError: as in `recognised`; parts in several encodings.
    """
    first = recognised(_named(name, parts, 0), parts.files[0], given, known_names)
    if first.encoding is None or given.encoding is not None:
        return first
    alike = replace(given, separator=first.separator, has_header=first.has_header)
    encodings = {0: first.encoding}
    for number, file in enumerate(parts.files[1:], 1):
        encodings[number] = recognised(_named(name, parts, number), file, alike, known_names).encoding or "utf-8"
    if len(set(encodings.values())) > 1:  # ASCII is the same in all these encodings
        encodings = {number: one for number, one in encodings.items() if one != "utf-8" or not _is_ascii(parts.files[number])}
    different = {one: parts.files[number].name for number, one in reversed(encodings.items())}
    if len(different) > 1:
        found = listed([f"{file} in {encoding}" for encoding, file in different.items()])
        remedy = "Save them all as UTF-8, or set the encoding: --encoding (tune), or --set corpus.encoding=… (a recipe)."
        raise DataError(where=name, found=found, expected="parts in one encoding", remedy=remedy)
    return replace(first, encoding=next(iter(different)))


def read_parts(name: str, parts: TableParts, file_format: FileFormat, *, named: Sequence[str | None] = ()) -> tuple[pa.Table, RowPlaces]:
    """Return the concatenated rows of all parts, without a copy, as `own_table` reads each; and the names of the rows.

    Raises:
        DataError: as in `own_table`; a part whose columns differ from the first. JSON objects may lack keys, in one file or several.
    """
    if not parts.is_folder:
        return own_table(name, parts.files[0], file_format, named=named), RowPlaces()
    import pyarrow as pa

    tables: list[pa.Table] = []
    known: dict[str, tuple[pa.Field, str]] = {}
    for number, file in enumerate(parts.files):
        where = _named(name, parts, number)
        table = part_table(where, file, file_format, named=named).replace_schema_metadata(None)
        if tables and suffix_of(file) not in (LINES, OBJECTS):
            _check_same_columns(where, table, tables[0], parts.files[0].name)
            table = table.select(tables[0].column_names)
        for field in table.schema:
            other, other_file = known.get(field.name, (field, file.name))
            _check_same_type(where, field, other, other_file)
            known[field.name] = (field, file.name) if pa.types.is_null(other.type) else (other, other_file)
        tables.append(table)
    starts = [0]
    for table in tables:
        starts.append(starts[-1] + table.num_rows)
    if not starts[-1]:
        raise no_rows(name)
    if parts.splits and "split" not in known:
        tables = [
            table.append_column("split", pa.repeat(pa.scalar(split, pa.large_string()), table.num_rows))
            for table, split in zip(tables, parts.splits, strict=True)
        ]
    whole = pa.concat_tables(tables, promote_options="permissive")
    return whole, RowPlaces(starts=tuple(starts[:-1]), names=parts.names)


def _named(name: str, parts: TableParts, number: int) -> str:
    return f"{name}/{parts.names[number]}" if parts.is_folder else name


def _check_same_columns(where: str, table: pa.Table, first: pa.Table, first_name: str) -> None:
    lacking = [column for column in first.column_names if column not in table.column_names]
    more = [column for column in table.column_names if column not in first.column_names]
    if lacking or more:
        differences = [*([f"no column {listed(lacking)}"] if lacking else []), *([f"a column {listed(more)}"] if more else [])]
        remedy = "Parts of one table need the same columns, named in the first line of each: correct that, or name one file."
        expected = f"columns {listed(first.column_names)}, as in {first_name}"
        raise DataError(where=where, found=" but ".join(differences), expected=expected, remedy=remedy)


def _check_same_type(where: str, field: pa.Field, other: pa.Field, other_file: str) -> None:
    import pyarrow as pa

    try:
        pa.unify_schemas([pa.schema([field]), pa.schema([other])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        expected = f"{_plain(other)}, as in {other_file}"
        remedy = "Use the same type in all parts."
        raise DataError(where=f"{where}, {field.name}", found=f"values of type {_plain(field)}", expected=expected, remedy=remedy) from None


def _plain(field: pa.Field) -> str:
    return str(field.type).replace("large_", "")


def _splits(name: str, files: Sequence[Path]) -> tuple[str, ...]:
    """The splits in the names of files: train-00000-of-00004.parquet, snli_dev.csv; () if all belong to one split or none, or if a word
    such as "test" belongs to the name rather than to a split: crash_test.csv next to crash_report.csv."""
    sides = [_sides_in(file) for file in files]
    splits = [SIDES[next(iter(side))] if len(side) == 1 else "" for side in sides]
    if len(set(splits)) == 1:
        return ()
    plain_stems = [_stem(file) for file, split in zip(files, splits, strict=True) if not split]
    stems = [_stem(file) for file, split in zip(files, splits, strict=True) if split]
    if len({*splits} - {""}) == 1 and all(stem and stem not in plain_stems for stem in stems):
        return ()
    if "" in splits:
        plain, of_split = files[splits.index("")].name, next(file.name for file, split in zip(files, splits, strict=True) if split)
        found = f"{of_split}, which is a split by its name, beside {plain}"
        remedy = f"Name one file, or rename them by train, dev and test: train-{plain}."
        raise DataError(where=name, found=found, expected="a split in the name of every file, or of no file", remedy=remedy)
    return tuple(splits)


def _words(file: Path) -> list[str]:
    return re.findall("[a-z]+", file.name.lower())


def _sides_in(file: Path) -> set[int]:
    """The splits that words in a file's name denote."""
    return {OWN_NAMES[word] for word in _words(file) if word in OWN_NAMES}


def _stem(file: Path) -> tuple[str, ...]:
    """The words of a file's name without splits, part counts and suffix."""
    return tuple(word for word in _words(file.with_name(file.name.partition(".")[0])) if word not in (*OWN_NAMES, "of", "part", "v"))


def _no_table(name: str, folder: Path, seen: Sequence[Path]) -> DataError:
    expected = f"a table of texts, or the parts of one: {READABLE}"
    inside = [entry for entry in seen if entry.is_dir() and any(is_own_name(one.name) for one in entry.iterdir())]
    remedy = f"Name a folder in it: {listed([str(entry) for entry in inside[:3]])}." if inside else "Name the file, or its folder."
    return DataError(where=name, found="a folder without a table", expected=expected, remedy=remedy)


def _is_empty(file: Path) -> bool:
    """Whether a part is empty, as Spark writes parts without rows."""
    if suffix_of(file) in (PARQUET, ARROW):
        return False
    with reading(file, expected="a part of a table"), open_bytes(file) as opened:
        return not opened.read(1)


def _is_ascii(file: Path) -> bool:
    with reading(file, expected="a part of a table"), open_bytes(file) as opened:
        return all(block.isascii() for block in iter(lambda: opened.read(BLOCK), b""))
