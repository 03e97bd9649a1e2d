"""Find and read tables under a data root: Parquet, Arrow, CSV, TSV, JSON, JSON lines and TREC judgements."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from sentdist.data.sources import mirror
from sentdist.data.sources.file_facts import FileFacts, check_columns, content_digest, recall, refuse_repeated, remember
from sentdist.data.sources.json_lines import objects_in, rows_in, values_in
from sentdist.data.sources.separated import MAY_BE_SEPARATED, FileFormat, format_notes, read_separated, source_format, unpacked_stream
from sentdist.errors import DataError, did_you_mean, listed, similar_names
from sentdist.files import OBJECTS, SHOWN_TABLES, TABLES, open_text, reading, suffix_of, unreadable, whole_text

if TYPE_CHECKING:
    import pyarrow as pa


# pyarrow takes 0.2 s to import, which planning with cached facts avoids: hence the imports inside functions.

WHOLE = "train"  # the split of a file without a column `split`
LONGEST_LINE = 1 << 26  # bytes of an object in JSON lines; pyarrow's default is 1 MiB
TREC = (".qrels", ".trec", ".txt")  # for judgements of a retrieval source only
PACKED = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst")  # not read; a zip is a BEIR collection, or reported as such
GENERATED_SOURCES = ("generated/nli", "generated/sts", "generated/faq")  # without files


def locate(name: str, data_root: Path | None) -> Path:
    """Return the file of the source `name` (a path below the data root, with or without its suffix).

    Raises:
        DataError: no data root, a name outside it, no matching file, or several.
    """
    root = existing_root(name, data_root)
    found = _candidates(root, name)
    if len(found) > 1:
        expected = "one file of that name"
        remedy = "Write the name with its suffix."
        raise DataError(where=name, found=f"{len(found)} files: {', '.join(path.name for path in found)}", expected=expected, remedy=remedy)
    if found:
        return found[0]
    if os.path.lexists(path := root / name) and (path.suffix or not path.is_dir()) and (kind := unreadable(path)) is not None:
        raise DataError(where=str(path), found=kind, expected="a file", remedy="Put the file itself there.")
    if path.is_file() and name not in RELEASES:
        expected = f"one of {SHOWN_TABLES}"
        remedy = "Unpack it, and name what is inside." if path.suffix in PACKED else "Save it as CSV, and name that."
        raise DataError(where=str(path), found=f"suffix {path.suffix}" if path.suffix else "no suffix", expected=expected, remedy=remedy)
    raise missing(name, root)


def existing_root(name: str, data_root: Path | None) -> Path:
    """Return the data root, with the files of `name` copied into a mirror; raise DataError for a name outside it, or without a root."""
    if data_root is None:
        raise DataError(
            where=name,
            found="no data root",
            expected="a folder that holds the source",
            remedy=f"{_meant(_same_end(name, GENERATED_SOURCES))}Pass --data DIR (data=DIR in Python) or set SENTDIST_DATA; "
            f"{listed(GENERATED_SOURCES)} need none.",
        )
    if not data_root.is_dir():
        remedy = "Correct --data DIR (data=DIR in Python) or SENTDIST_DATA."
        raise DataError(where="data root", found=f"no folder {data_root}", expected="the folder of the data sets", remedy=remedy)
    pure = PurePosixPath(name)
    if not name or pure.is_absolute() or ".." in pure.parts:
        remedy = "Put the file under the data root and name it relative to it."
        raise DataError(where="source", found=f'"{name}"', expected="a name below the data root, such as nli/triplets", remedy=remedy)
    mirror.copy_into_mirror(name, data_root)
    return data_root


RELEASES = {"retrieval/faqir": "FAQIR*.xml", "retrieval/cough": "FAQ_Bank_eval.csv", "reranking/askubuntu": "text_tokenized.txt"}


def missing(name: str, root: Path) -> DataError:
    """Return the error for a missing source, with similar names."""
    known = [*known_names(root), *GENERATED_SOURCES]
    hints = list(dict.fromkeys([*_same_end(name, known), *similar_names(name, known, most=3, alike=0.5)]))[:3]
    remedy = _meant(hints).strip() or "List the folder to see what there is."
    pure = PurePosixPath(name)
    if name in RELEASES:
        expected, remedy = f"{name}/{RELEASES[name]} there, as its authors released it", "Put the files of the release into that folder."
    elif name.endswith(TABLES):
        expected, plain = f"{name} there", without_suffix(pure.name)
        here = Path(name)
        remedy = (
            f"It is elsewhere: use --data {here.parent} and {plain}, since sources are named below --data, without suffix."
            if here.is_file()
            else remedy
        )
    else:
        expected = f"{name} with one of {SHOWN_TABLES}"
    return DataError(where=name, found=f"no such file under {root}", expected=expected, remedy=remedy)


def without_suffix(name: str) -> str:
    """Return the name of a source without the suffix of its file."""
    return name.removesuffix(next((suffix for suffix in sorted(TABLES, key=len, reverse=True) if name.endswith(suffix)), ""))


def _same_end(name: str, known: Sequence[str]) -> list[str]:
    return [other for other in known if PurePosixPath(other).name == PurePosixPath(name).name]


def _meant(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}? " if names else ""


def known_names(root: Path) -> list[str]:
    """Return the names of all sources under the root, without suffixes, sorted."""
    remote = mirror.remote_names(root)
    paths = (path.relative_to(root) for path in root.rglob("*")) if remote is None else map(PurePosixPath, remote)
    names = {without_suffix(name) for path in paths if (name := path.as_posix()).endswith(TABLES)}
    retrieval = {name.removesuffix("_qrels") for name in names if name.endswith("_qrels")}
    return sorted(names | retrieval)


def file_facts(name: str, path: Path) -> FileFacts:
    """Return digest, rows, columns and splits of a file; cached while the file does not change."""
    facts = recall(path)
    if facts is None:
        facts = _look(name, path)
        remember(path, facts)
    return facts


def check_split(name: str, splits: Sequence[str], split: str | None) -> None:
    """Raise DataError unless `split` is one of the splits or None (all rows)."""
    if split is None or split in splits:
        return
    expected = f"one of {', '.join(splits)}" if splits else 'no split, or "train" for all rows (the source has no column `split`)'
    remedy = did_you_mean(split, splits, "Name one of them, or no split (a recipe: split: null) to take all rows.")
    raise DataError(where=name, found=f'split "{split}"', expected=expected, remedy=remedy)


def part_of(splits: Sequence[str], split: str | None) -> str | None:
    """Return the split to read from a file: "train" means all rows of a file without splits."""
    return None if split == WHOLE and not splits else split


def read_file(name: str, path: Path, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a file, text columns as large_string; all columns of CSV and TSV are text."""
    wanted = None if columns is None else list(dict.fromkeys([*columns, *(["split"] if split is not None else [])]))
    with _reading(name, path):
        table = chosen(name, _parse(name, path, wanted), split=split, columns=columns)
        _check_texts(name, path, table)
    if table.num_rows == 0:
        raise _empty(name, path)
    return table


def chosen(name: str, table: pa.Table, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the given columns of a split, text columns as large_string; raise DataError for absent columns."""
    import pyarrow.compute as pc

    check_columns(name, table.column_names, [*(columns or ()), *(["split"] if split is not None else [])])
    if split is not None:
        table = table.filter(pc.equal(table["split"], split))
    if columns is not None:
        table = table.select(list(dict.fromkeys(columns)))
    return with_large_strings(table)


def with_large_strings(table: pa.Table) -> pa.Table:
    """Return the table with every text column as large_string (offsets of 64 bits: no limit of 2 GB a column)."""
    import pyarrow as pa

    def is_text(kind: pa.DataType) -> bool:
        return pa.types.is_string(kind) or pa.types.is_string_view(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type))

    fields = [field.with_type(pa.large_string()) if is_text(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))


def has_table(root: Path, name: str) -> bool:
    """Whether a file fits the name, with or without its suffix."""
    return bool(_candidates(root, name))


def _candidates(root: Path, name: str) -> list[Path]:
    if name.endswith(TABLES):
        return [root / name] if os.path.lexists(root / name) else []
    return [path for suffix in TABLES if os.path.lexists(path := root / f"{name}{suffix}")]


def _look(name: str, path: Path) -> FileFacts:
    splits: dict[str, int] = {}
    if path.suffix == ".parquet":
        num_rows, columns = _parquet_shape(name, path)
        table = read_file(name, path, columns=["split"]) if "split" in columns and num_rows else None
    else:
        table = read_file(name, path)
        num_rows, columns = table.num_rows, tuple(table.column_names)
    if num_rows == 0:
        raise _empty(name, path)
    if table is not None and "split" in columns:
        for entry in table["split"].value_counts().to_pylist():
            splits[str(entry["values"])] = entry["counts"]
    note = "" if path.suffix in TREC else "; ".join(format_notes(source_format(f"{name} ({path})", path), path))
    return FileFacts(digest=content_digest(path), num_rows=num_rows, columns=columns, splits=tuple(splits.items()), note=note)


def _parquet_shape(name: str, path: Path) -> tuple[int, tuple[str, ...]]:
    import pyarrow.parquet as pq

    with _reading(name, path):
        source_format(f"{name} ({path})", path)  # raises DataError for other content
    with _reading(name, path), pq.ParquetFile(path) as file:
        return file.metadata.num_rows, tuple(file.schema_arrow.names)


@contextmanager
def _reading(name: str, path: Path) -> Iterator[None]:
    with reading(path, expected=f"{suffix_of(path)[1:]}, as its suffix says", where=name):
        if path.stat().st_size == 0:
            raise _empty(name, path)
        yield


def _check_texts(name: str, path: Path, table: pa.Table) -> None:
    """Raise DataError for invalid UTF-8 and for NULs (UTF-16 read as UTF-8); pyarrow's readers check neither."""
    import pyarrow as pa
    import pyarrow.compute as pc

    refuse_repeated(f"{name} ({path})", table.column_names)
    table.validate(full=True)
    for column in table.column_names:
        if pa.types.is_large_string(table[column].type) and pc.any(pc.match_substring(table[column], "\0")).as_py():
            remedy = "Write the file again in UTF-8; UTF-16 looks like this."
            raise DataError(where=f"{name} ({path}), {column}", found="texts with NUL characters", expected="texts in UTF-8", remedy=remedy)


def _parse(name: str, path: Path, columns: list[str] | None) -> pa.Table:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        if columns is not None:
            check_columns(name, pq.read_schema(path).names, columns)
        return pq.read_table(path, columns=columns)
    if path.suffix in TREC:
        return _judgements(path)
    return read_text_table(path, source_format(f"{name} ({path})", path), may_repeat=False)


def read_text_table(path: Path, file_format: FileFormat, *, may_repeat: bool) -> pa.Table:
    """Return the table in a text file, compressed or not; separated values as in `read_separated`."""
    if suffix_of(path) in MAY_BE_SEPARATED:
        return read_separated(path, file_format, may_repeat=may_repeat)
    if suffix_of(path) == OBJECTS:
        return read_objects(path, encoding=file_format.encoding or "utf-8")
    import pyarrow as pa

    encoding = file_format.encoding or "utf-8"
    try:
        return read_lines(path if encoding == "utf-8" else io.BytesIO(whole_text(path, encoding=encoding).encode()))
    except pa.ArrowInvalid:
        with open_text(path, encoding=encoding) as lines:
            first = next((line for line in lines if line.strip()), "")
        with open_text(path, encoding=encoding) as lines:
            rows = rows_in(str(path), lines)
            if first.lstrip().startswith("["):
                return _table_of(list(rows))
            deque(rows, maxlen=0)  # raises DataError for a line that is no row
        raise


def read_lines(source: Path | IO[bytes]) -> pa.Table:
    """Read JSON lines of up to 64 MiB. A text that looks like a date stays a text."""
    import pyarrow as pa

    table = _read_lines(source, None)
    texts = [field.with_type(kept) for field in table.schema if (kept := _without_dates(field.type)) != field.type]
    if not texts:
        return table
    if not isinstance(source, Path):
        source.seek(0)
    return _read_lines(source, pa.schema(texts)).select(table.column_names)


def _read_lines(source: Path | IO[bytes], schema: pa.Schema | None) -> pa.Table:
    """schema: types of columns that are not inferred."""
    import pyarrow.json

    options = {
        "read_options": pyarrow.json.ReadOptions(block_size=LONGEST_LINE),
        "parse_options": pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
    }
    if not isinstance(source, Path):
        return pyarrow.json.read_json(source, **options)
    with unpacked_stream(source) as stream:
        return pyarrow.json.read_json(stream, **options)


def _without_dates(kind: pa.DataType) -> pa.DataType:
    """The type with strings instead of timestamps, also inside lists and objects."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_dates(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_dates(field.type)) for field in kind])
    return kind


def read_objects(path: Path, *, encoding: str = "utf-8") -> pa.Table:
    """Return the objects of a JSON file as rows, with a column per key in order of first appearance.

    The file is a list of objects (`json.dump`, pandas' records), an object with one list of objects (web services), or concatenated objects
    (Spark, `datasets`, jq).
    """
    with reading(path, expected="JSON, a list of objects"):
        value = values_in(whole_text(path, encoding=encoding))
    return _table_of(objects_in(str(path), value))


def _table_of(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)})


def _judgements(path: Path) -> pa.Table:
    """TREC judgements: lines "query 0 document grade"."""
    import pyarrow as pa

    with reading(path, expected="lines of judgements"):
        rows = [line.split() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    short = next((number for number, row in enumerate(rows, 1) if len(row) != 4), None)
    if short is not None or not rows:
        raise ValueError(f"line {short} has {len(rows[short - 1])} fields, not query, 0, document, grade" if short else "no lines")
    queries, _, documents, grades = zip(*rows, strict=True)
    return pa.table({"query_id": list(queries), "document_id": list(documents), "relevance": list(grades)})


def _empty(name: str, path: Path) -> DataError:
    return DataError(where=name, found=f"no rows in {path}", expected="at least one row", remedy="Fetch or write the file again.")


FILE_BEGINS = b"ARROW1"


def read_arrow(path: Path) -> pa.Table:
    """Return all rows of an Arrow file or stream, memory-mapped.

    Raises:
        pyarrow.ArrowInvalid: another kind of file, or a truncated one.
    """
    import pyarrow as pa

    mapped = pa.memory_map(str(path))
    is_file = mapped.read(len(FILE_BEGINS)) == FILE_BEGINS
    mapped.seek(0)
    return (pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)).read_all()
