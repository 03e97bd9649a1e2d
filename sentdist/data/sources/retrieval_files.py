"""Find and read the three tables of a retrieval source (documents, queries, judgements) under a data root, also in a zip."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sentdist.data.cells import GROUP, row_name
from sentdist.data.sources import files, mirror, releases
from sentdist.errors import DataError, brief, similar_names
from sentdist.files import TABLES, cache_folder, reading, whole_file

if TYPE_CHECKING:
    import pyarrow as pa


QUERY, POSITIVE, NEGATIVE = "query", "positive", "negative"
ROW_COLUMNS = ("query_id", QUERY, "document_id", "document", "relevance")  # of a table with one row per candidate


def columns_as_rows(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of `as_rows` for a table with these columns."""
    return (*columns, *(column for column in ROW_COLUMNS if column not in columns and _are_lists(columns)))


def as_rows(name: str, table: pa.Table) -> pa.Table:
    """Return a table with lists of candidates as one row per candidate; any other table unchanged.

    Each row is a separate query, and its group applies to its candidates. Negatives come first: an encoder that cannot distinguish
    candidates keeps the order of rows, and must not win by it.

    Raises:
        DataError: a candidate that is not a text.
    """
    import pyarrow as pa

    if not _are_lists(table.column_names):
        return table
    columns = (*ROW_COLUMNS, *([GROUP] if GROUP in table.column_names else []))
    rows = [(*row, given.get(GROUP)) for number, given in enumerate(table.to_pylist()) for row in _candidates(name, number, given)]
    return pa.table({column: [row[place] for row in rows] for place, column in enumerate(columns)})


def _are_lists(columns: Sequence[str]) -> bool:
    return {QUERY, POSITIVE, NEGATIVE} <= set(columns) and "document" not in columns


def _candidates(name: str, number: int, given: dict[str, object]) -> Iterator[tuple[object, ...]]:
    place = 0
    for column, relevance in ((NEGATIVE, 0), (POSITIVE, 1)):
        found = given[column]
        for text in found if isinstance(found, list) else () if found in (None, "") else (found,):
            if not isinstance(text, str):
                expected = "a text, or a list of texts"
                remedy = "Write the texts themselves."
                raise DataError(where=f"{name}: {row_name(number)}, {column}", found=brief(text), expected=expected, remedy=remedy)
            yield str(number), given[QUERY], f"{number}-{place}", text, relevance
            place += 1


EXPECTED = "a zip of corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"


def unpacked(path: Path, *, where: str) -> Path:
    """Unpack the corpus, queries and judgements of a zip, from any folder in it, and return their folder in the cache.

    Raises:
        DataError: not a zip, a damaged one, missing parts, several corpora, or no space for them.
    """
    with reading(path, expected=EXPECTED, where=where), zipfile.ZipFile(path) as archive:
        parts = _parts(archive, where=f"{where} ({path})")
        content = repr(sorted((name, part.CRC, part.file_size) for name, part in parts.items()))
        folder = cache_folder("unpacked") / hashlib.sha256(content.encode()).hexdigest()[:24]
        for name, part in parts.items():
            target = folder / name
            if target.is_file() and target.stat().st_size == part.file_size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(target) as unfinished, archive.open(part) as packed, unfinished.open("wb") as file:
                shutil.copyfileobj(packed, file)  # compares the checksum, too
    return folder


def _parts(archive: zipfile.ZipFile, *, where: str) -> Mapping[str, zipfile.ZipInfo]:
    """The entries to read, by their path relative to the corpus."""
    entries = {PurePosixPath(entry.filename): entry for entry in archive.infolist() if not entry.filename.startswith("__MACOSX/")}
    corpora = [path for path in entries if path.name == "corpus.jsonl"]
    if len(corpora) != 1:
        remedy = "Unpack it, and name one of its folders." if corpora else "Name a zip in BEIR's layout, or unpack it and name its content."
        raise DataError(where=where, found=f"{len(corpora) or 'no'} corpus.jsonl in it", expected=EXPECTED, remedy=remedy)
    top = corpora[0].parent
    judged = [path for path in entries if path.parent == top / "qrels" and path.suffix == ".tsv"]
    wanted = [corpora[0], top / "queries.jsonl", *judged]
    return {path.relative_to(top).as_posix(): entries[path] for path in wanted if path in entries}


# Names of the parts of a retrieval source and of their columns; the first match wins.
DOCUMENT_FILES = ("documents", "docs", "faqs")
QUERY_ID = ("query_id", "query-id", "_id")
DOCUMENT_ID = ("document_id", "doc_id", "faq_id", "corpus-id", "_id")
QUERY_TEXT = ("query", "text")
RELEVANCE = ("relevance", "score")
SHAPES = (
    "a folder or zip with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, as in BEIR, or tables NAME_docs, NAME_queries and "
    "NAME_qrels, named as NAME"
)


@dataclass(frozen=True, kw_only=True)
class RetrievalFiles:
    """The files of a retrieval source.

    Args:
        judgements: (split, file); the split is None if a column `split`, or nothing, distinguishes the splits.
        release: reader of the files of a known release.
    """

    documents: Path
    queries: Path
    judgements: tuple[tuple[str | None, Path], ...]
    release: releases.FaqRelease | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.documents, self.queries, *(path for _, path in self.judgements)) if self.release is None else self.release.paths


def find(name: str, data_root: Path | None) -> RetrievalFiles | None:
    """Return the files of the retrieval source `name`, or None if it is none.

    There are three layouts: files NAME_docs (or _faqs), NAME_queries and NAME_qrels; a folder or zip as in BEIR (Thakur et al. 2021,
    arXiv 2104.08663), with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; or a folder with a release known to `releases.find_faq`.

    Raises:
        DataError: some of the parts are missing.
    """
    root = files.existing_root(name, data_root)
    folder = unpacked(root / name, where=name) if name.endswith(".zip") and (root / name).is_file() else root / name
    if (release := releases.find_faq(folder)) is not None:
        bank = release.paths[0]
        return RetrievalFiles(documents=bank, queries=bank, judgements=((None, bank),), release=release)
    if (folder / "corpus.jsonl").is_file():
        judged = tuple((path.stem, path) for path in sorted((folder / "qrels").glob("*.tsv")))
        if not (folder / "queries.jsonl").is_file() or not judged:
            raise DataError(
                where=name, found="corpus.jsonl alone", expected="queries.jsonl and qrels/SPLIT.tsv, too", remedy="Complete the folder."
            )
        return RetrievalFiles(documents=folder / "corpus.jsonl", queries=folder / "queries.jsonl", judgements=judged)
    parts = {part: _beside(folder, part) for part in (*DOCUMENT_FILES, "queries")} | {"qrels": _beside(folder, "qrels", *files.TREC)}
    documents = next((path for part in DOCUMENT_FILES if (path := parts[part])), None)
    queries, judgements = parts["queries"], parts["qrels"]
    if documents is None and queries is None and judgements is None:
        return None
    if documents is None or queries is None or judgements is None:
        present = [path.name for path in parts.values() if path]
        last = folder.name
        expected = f"{last}_docs (or _faqs), {last}_queries and {last}_qrels"
        raise DataError(where=name, found=", ".join(present), expected=expected, remedy="Fetch the missing part.")
    return RetrievalFiles(documents=documents, queries=queries, judgements=((None, judgements),))


def missing_parts(name: str, root: Path, known: Sequence[str]) -> DataError:
    """Return the error for a name that is neither a retrieval source nor a table, with similar names among the `known` ones."""
    name = name.rstrip("/")
    folder = root / name
    found = f"nothing of that name under {root}"
    if folder.is_dir():
        found = "a folder without corpus.jsonl"
    elif folder.exists():
        found = "a file that is neither a table nor a zip"
    near = [one for one in known if one.startswith(f"{name}/") or one == PurePosixPath(name).parent.as_posix()][:3]
    if not near and not folder.is_dir():
        ends = {one: PurePosixPath(one).name for one in known}
        alike = similar_names(PurePosixPath(name).name, list(dict.fromkeys(ends.values())), most=3, alike=0.5)
        near = [one for end in alike for one in known if ends[one] == end][:3]
    if near:
        remedy = f"Did you mean {' or '.join(near)}?"
    else:
        remedy = "Complete the folder." if folder.is_dir() else "List the folder to see what there is."
    return DataError(where=name, found=found, expected=SHAPES, remedy=remedy)


def known_sources(root: Path) -> list[str]:
    """Return the sorted names of retrieval sources and zips under the root, judged by file names only."""
    remote = mirror.remote_names(root)
    paths = [path.relative_to(root) for path in root.rglob("*")] if remote is None else [Path(name) for name in remote]
    found = {path.parent.as_posix() for path in paths if path.name == "corpus.jsonl" and path.parent.name}
    found |= {path.as_posix() for path in paths if path.suffix == ".zip"}
    names = {files.without_suffix(path.as_posix()) for path in paths}
    return sorted(found | {name.removesuffix("_qrels") for name in names if name.endswith("_qrels")})


def check_part_columns(name: str, parts: RetrievalFiles, columns: Mapping[Path, Sequence[str]]) -> None:
    """Raise DataError for a file (with these columns) that lacks one of those to read."""
    for path, wanted in (
        (parts.documents, (DOCUMENT_ID,)),
        (parts.queries, (QUERY_ID, QUERY_TEXT)),
        *((judged, (QUERY_ID, DOCUMENT_ID, RELEVANCE)) for _, judged in parts.judgements),
    ):
        for known in wanted:
            _column_of(f"{name} ({path})", columns[path], known)


def read_documents(name: str, parts: RetrievalFiles) -> pa.Table:
    """Return the documents with a text column `document_id`; text fields keep their names."""
    return _with_id(name, files.read_file(name, parts.documents), DOCUMENT_ID, "document_id")


def read_queries(name: str, parts: RetrievalFiles) -> pa.Table:
    """Return text columns query_id and query, and the column of groups if there is one."""
    table = _with_id(name, files.read_file(name, parts.queries), QUERY_ID, "query_id")
    text = _column_of(name, table.column_names, QUERY_TEXT)
    grouped = [GROUP] if GROUP in table.column_names else []
    return table.select(["query_id", text, *grouped]).rename_columns(["query_id", "query", *grouped])


def read_judgements(name: str, parts: RetrievalFiles, split: str | None) -> pa.Table:
    """Return columns query_id, document_id and relevance (text or number, as in the file) of a split; None: of all splits."""
    import pyarrow as pa

    tables = []
    for file_split, path in parts.judgements:
        if split is not None and file_split not in (None, split):
            continue
        table = files.read_file(name, path, split=split if file_split is None else None)
        table = _with_id(name, _with_id(name, table, QUERY_ID, "query_id"), DOCUMENT_ID, "document_id")
        relevance = _column_of(name, table.column_names, RELEVANCE)
        tables.append(table.select(["query_id", "document_id", relevance]).rename_columns(["query_id", "document_id", "relevance"]))
    return pa.concat_tables(tables, promote_options="permissive")


def _beside(folder: Path, part: str, *further: str) -> Path | None:
    paths = (folder.with_name(f"{folder.name}_{part}{suffix}") for suffix in (*TABLES, *further))
    return next((path for path in paths if path.is_file()), None)


def _with_id(name: str, table: pa.Table, known: Sequence[str], become: str) -> pa.Table:
    import pyarrow as pa

    column = _column_of(name, table.column_names, known)
    ids = table[column].cast(pa.large_string())
    return table.drop_columns([column]).append_column(become, ids)


def _column_of(where: str, columns: Sequence[str], known: Sequence[str]) -> str:
    for column in known:
        if column in columns:
            return column
    remedy = "Rename the column in the file."
    raise DataError(where=where, found=f"columns {', '.join(columns)}", expected=f"one called {' or '.join(known)}", remedy=remedy)
