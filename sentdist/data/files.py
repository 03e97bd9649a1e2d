"""Tables below a data root: find a file by its name, read it, and cache its digest, size and splits."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sentdist.data import mirror
from sentdist.data.tables import check_columns, content_digest, find_table
from sentdist.errors import DataError, did_you_mean, listed, near_file
from sentdist.files import SHOWN_TABLES, TABLES, cache_folder, reading, unreadable, whole_file

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE = "train"  # the split of a file without a column `split`
TREC = (".qrels", ".trec", ".txt")  # for judgements of a retrieval source only
GENERATED_SOURCES = ("generated/nli", "generated/sts", "generated/faq")  # without files
NOTED = 3  # version of the cache
RACY_S = 2.0  # a file changed this recently may change again within one tick of a coarse clock: not remembered


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Facts of a source.

    Args:
        digest: pins the content: "sha256:" and 16 hex digits, the commit of a hub data set, or the generator's version.
        num_rows: judgements for a retrieval source.
        columns: of the documents for a retrieval source.
        splits: values of a column `split` with their row counts, in order of appearance.
        note: a sentence for the user.
    """

    digest: str
    num_rows: int
    columns: tuple[str, ...]
    splits: tuple[tuple[str, int], ...]
    note: str = ""


def recall_note(identity: Sequence[str | int]) -> FileFacts | None:
    """Return the cached facts of an identity: its first member names the source, the others its version."""
    try:
        noted = json.loads(_note_of(identity).read_text())
        splits = tuple((name, count) for name, count in noted["splits"])
        facts = FileFacts(
            digest=noted["digest"], num_rows=noted["num_rows"], columns=tuple(noted["columns"]), splits=splits, note=noted["note"]
        )
        return facts if noted["identity"] == list(identity) else None
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or written by another version
        return None


def remember_note(identity: Sequence[str | int], facts: FileFacts) -> None:
    """Cache facts under an identity, atomically. A failing write costs time only."""
    note = _note_of(identity)
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(note) as part:
            part.write_text(json.dumps({"identity": list(identity), **asdict(facts)}))


def _note_of(identity: Sequence[str | int]) -> Path:
    return cache_folder("sources") / f"{hashlib.sha256(str(identity[0]).encode()).hexdigest()[:24]}.json"


def file_facts(name: str, path: Path) -> FileFacts:
    """Return digest, rows, columns and splits of a file; cached while the file does not change."""
    with reading(path, expected="a table"):
        status = path.stat()
    identity: list[str | int] = [str(path.resolve()), status.st_size, status.st_mtime_ns, NOTED]
    if (known := recall_note(identity)) is not None:
        return known
    splits: tuple[tuple[str, int], ...] = ()
    if path.suffix in TREC:
        table = _judgements(path)
        columns, num_rows = tuple(table.column_names), table.num_rows
    else:
        file = find_table(f"{name} ({path})", path)
        columns, stated = file.shape()
        if "split" in columns or stated is None:
            table = file.read(["split"] if "split" in columns else columns[:1])
            splits = split_sizes(table)
        num_rows = table.num_rows if stated is None else stated
    facts = FileFacts(digest=content_digest(path), num_rows=num_rows, columns=columns, splits=splits)
    if time.time() - status.st_mtime >= RACY_S:
        remember_note(identity, facts)
    return facts


def split_sizes(table: pa.Table) -> tuple[tuple[str, int], ...]:
    """Return the values of a column `split` with their numbers of rows; () without it."""
    if "split" not in table.column_names:
        return ()
    return tuple((str(one["values"]), int(one["counts"])) for one in table["split"].value_counts().to_pylist())


def existing_root(name: str, data_root: Path | None) -> Path:
    """Return the data root, with the files of `name` copied into a mirror; raise DataError for a name outside it, or without a root."""
    if data_root is None or not data_root.is_dir():
        raise DataError(
            where=name, found="no data root" if data_root is None else f"no folder {data_root}",
            expected="a folder that holds the source",
            remedy=f"Pass --data DIR (data=DIR in Python) or set SENTDIST_DATA; {listed(GENERATED_SOURCES)} need none.",
        )  # fmt: skip
    pure = PurePosixPath(name)
    if not name or pure.is_absolute() or ".." in pure.parts:
        remedy = "Put the file under the data root and name it relative to it."
        raise DataError(where="source", found=f'"{name}"', expected="a name below the data root, such as nli/triplets", remedy=remedy)
    mirror.copy_into_mirror(name, data_root)
    return data_root


def locate(name: str, data_root: Path | None) -> Path:
    """Return the file of the source `name` (a path below the data root, with or without its suffix).

    Raises:
        DataError: no data root, a name outside it, no matching file, or several.
    """
    root = existing_root(name, data_root)
    found = with_suffixes(root / name)
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(where=name, found=f"{len(found)} files: {names}", expected="one", remedy="Write the name with its suffix.")
    if not found:
        place = root / name
        is_near = not place.exists() and place.parent.is_dir()
        closest = near_file(place.name, [entry.name for entry in place.parent.iterdir()] if is_near else [])
        reason = (unreadable(place) or f"suffix {place.suffix}") if place.is_file() else "no such file"
        raise DataError(
            where=name, found=f"{reason} under {root}",
            expected=f"{name} with one of {SHOWN_TABLES}, or documents, queries and qrels of that name",
            remedy=f'Did you mean "{closest}"?' if closest else "List the folder to see what there is; save a spreadsheet as CSV.",
        )  # fmt: skip
    return found[0]


def with_suffixes(path: Path, *further: str) -> list[Path]:
    """Return the tables at a path, which has their suffix or lacks it."""
    if path.name.endswith(TABLES):
        return [path] if os.path.lexists(path) else []
    return [one for suffix in (*TABLES, *further) if os.path.lexists(one := path.with_name(f"{path.name}{suffix}"))]


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
    if path.suffix in TREC:
        return chosen(name, _judgements(path), split=split, columns=columns)
    wanted = None if columns is None else [*columns, *([] if split is None else ["split"])]
    return chosen(name, find_table(f"{name} ({path})", path).read(wanted), split=split, columns=columns)


def chosen(name: str, table: pa.Table, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the given columns of a split; raise DataError for absent columns."""
    import pyarrow.compute as pc

    check_columns(name, table.column_names, [*(columns or ()), *(["split"] if split is not None else [])])
    if split is not None:
        table = table.filter(pc.equal(table["split"], split))
    return table if columns is None else table.select(list(dict.fromkeys(columns)))


def _judgements(path: Path) -> pa.Table:
    """TREC judgements: lines "query 0 document grade"."""
    import pyarrow as pa

    with reading(path, expected="lines of query, 0, document, grade"):
        rows = [line.split() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        queries, _, documents, grades = zip(*rows, strict=True)
    return pa.table({"query_id": list(queries), "document_id": list(documents), "relevance": list(grades)})
