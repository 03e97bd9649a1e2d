"""Find and read tables below a data root."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sentdist.data.sources import mirror
from sentdist.data.sources.file_facts import FileFacts, recall, remember
from sentdist.data.tables import check_columns, content_digest, find_table
from sentdist.errors import DataError, did_you_mean, listed, similar_names
from sentdist.files import SHOWN_TABLES, TABLES, reading, unreadable

if TYPE_CHECKING:
    import pyarrow as pa


WHOLE = "train"  # the split of a file without a column `split`
TREC = (".qrels", ".trec", ".txt")  # for judgements of a retrieval source only
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
        suffix = f"suffix {path.suffix}" if path.suffix else "no suffix"
        raise DataError(where=str(path), found=suffix, expected=f"one of {SHOWN_TABLES}", remedy="Save it as CSV, and name that.")
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


def has_table(root: Path, name: str) -> bool:
    """Whether a file fits the name, with or without its suffix."""
    return bool(_candidates(root, name))


def _candidates(root: Path, name: str) -> list[Path]:
    if name.endswith(TABLES):
        return [root / name] if os.path.lexists(root / name) else []
    return [path for suffix in TABLES if os.path.lexists(path := root / f"{name}{suffix}")]


def _look(name: str, path: Path) -> FileFacts:
    splits: dict[str, int] = {}
    if path.suffix in TREC:
        table = _judgements(path)
        columns, num_rows = tuple(table.column_names), table.num_rows
    else:
        file = find_table(f"{name} ({path})", path)
        columns, stated = file.shape()
        table = file.read(["split"]) if "split" in columns else None if stated is not None else file.read(columns[:1])
        num_rows = table.num_rows if table is not None else stated or 0
    if table is not None and "split" in columns:
        splits = {str(entry["values"]): entry["counts"] for entry in table["split"].value_counts().to_pylist()}
    return FileFacts(digest=content_digest(path), num_rows=num_rows, columns=columns, splits=tuple(splits.items()))


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
