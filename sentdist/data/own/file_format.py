"""A person's own file: whether there is one that can be read, and the table in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sentdist.data.own.passages import with_passages
from sentdist.data.sources.arrow_files import read_arrow
from sentdist.data.sources.files import read_text_table, with_large_strings
from sentdist.data.sources.separated import FileFormat
from sentdist.data.text_errors import is_pattern
from sentdist.errors import DataError
from sentdist.reading import reading, unreadable
from sentdist.spelling import near_file
from sentdist.table_files import ARROW, PACKABLE, PARQUET, SHOWN_READ, suffix_of

if TYPE_CHECKING:
    import pyarrow as pa

READABLE = SHOWN_READ
NOTHING = (
    "\\N",
    "NULL",
    "null",
    "NaN",
    "nan",
    "<NA>",
    "#N/A",
    "N/A",
    "n/a",
    "None",
)  # what databases, pandas and Excel write for no value


SAID_BY_SUFFIX = {
    ".json": "JSON, a list of objects", ".jsonl": "JSON, an object a line", PARQUET: "a Parquet file", ARROW: "a file or stream of Arrow",
}  # fmt: skip


def is_own_name(name: str) -> bool:
    """Whether a file of that name can be read here."""
    return suffix_of(PurePath(name)) in (*PACKABLE, PARQUET, ARROW)


def no_such_file(path: Path, file: str) -> DataError:
    """The error for a path where no file is, or a pipe or device, with the name that was probably meant."""
    folder = path.parent
    names = [entry.name for entry in folder.iterdir() if is_own_name(entry.name) and entry.is_file()] if folder.is_dir() else []
    closest, found = near_file(path.name, names), unreadable(path) or "no such file"
    remedy = (
        f'Did you mean "{Path(file).parent / closest}"?'
        if closest
        else _folder_of_pattern(path) or "Give its path, or its name below --data; to a recipe --set corpus.file=YOURS.csv."
    )
    return DataError(where=file, found=found, expected=f"a table of texts: {READABLE}", remedy=remedy)


def _folder_of_pattern(path: Path) -> str:
    """What to do where a pattern names the parts of one table; "" for what is none."""
    return f"Name the folder, {path.parent}: its files are read as one table." if is_pattern(path) and path.parent.is_dir() else ""


@contextmanager
def may_lack_header(is_guessed: bool) -> Iterator[None]:
    """Adds to a refusal how to say that the first line names the columns, where nobody said that it does not."""
    try:
        yield
    except DataError as error:
        if not is_guessed:
            raise
        remedy = f"{error.remedy} If the first line names the columns: --header (tune), or --set corpus.header=true (a recipe)."
        raise error.with_context(remedy=remedy) from None


def own_table(name: str, path: Path, file_format: FileFormat, *, named: Sequence[str | None] = ()) -> pa.Table:
    """The rows of a file, text columns as large_string; separated values are all text. named: columns that will be read, of which
    `ticket.question` is a field of the objects in `ticket`. DataError where it is not as `file_format` says, or has none."""
    table = part_table(name, path, file_format, named=named)
    if not table.num_rows:
        raise no_rows(name)
    return table


def part_table(name: str, path: Path, file_format: FileFormat, *, named: Sequence[str | None] = ()) -> pa.Table:
    """`own_table` of what may have no rows."""
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
    """The error for a table of nothing."""
    return DataError(where=name, found="no rows", expected="at least one", remedy="Write the file again.")


def _with_fields(table: pa.Table, named: Sequence[str | None]) -> pa.Table:
    """The table with those columns that are named and stand within objects."""
    within = [name for name in named if name is not None and name not in table.column_names]
    if not within:
        return table
    flat = flattened(table)
    for name in dict.fromkeys(within):
        if name in flat.column_names:
            table = table.append_column(name, flat[name])
    return table


def flattened(table: pa.Table) -> pa.Table:
    """The table with the fields of objects as columns of their own, called by what they stand in: ticket.question."""
    import pyarrow as pa

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _without_blank_end(table: pa.Table) -> pa.Table:
    """The table without the rows at its end in which nothing stands: spreadsheets write them, and nobody knows of them."""
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
    """The table without the words that stand for no value: a text NULL would be a positive like any other, of all rows that lack one."""
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
