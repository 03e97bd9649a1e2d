"""How the three tables of a retrieval source (documents, queries, judgements) lie under a data root."""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sentdist.data.cells import GROUP, number_in, row_name
from sentdist.data.sources import files, mirror, releases
from sentdist.errors import DataError, brief, similar_names
from sentdist.files import SEPARATED, TABLES, cache_folder, open_bytes, reading, suffix_of, whole_file

if TYPE_CHECKING:
    import pyarrow as pa


QUERY, POSITIVE, NEGATIVE = "query", "positive", "negative"
ROW_COLUMNS = ("query_id", QUERY, "document_id", "document", "relevance")  # of a table with a row a candidate


def columns_as_rows(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that a table with these has where it is read as a row a candidate."""
    return (*columns, *(column for column in ROW_COLUMNS if column not in columns and _are_lists(columns)))


def as_rows(name: str, table: pa.Table) -> pa.Table:
    """A table with lists as a row a candidate; any other as it is. Each row is a query of its own, its group that of its candidates.
    Negatives come first: an encoder that cannot distinguish candidates keeps the order of rows, and must not win by it.

    Raises:
        DataError: a candidate that is no text.
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
                raise DataError(
                    where=f"{name}: {row_name(number)}, {column}", found=brief(text), expected="a text, or a list of texts",
                    remedy="Put the texts themselves there.",
                )  # fmt: skip
            yield str(number), given[QUERY], f"{number}-{place}", text, relevance
            place += 1


EXPECTED = "a zip of corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"


def unpacked(path: Path, *, where: str) -> Path:
    """The folder with the parts of a zip, whatever the folders in it are called; other files in it are left alone.

    Raises:
        DataError: no zip, a damaged one, one without these parts or with several corpora, or no room for them.
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
    """The entries that are read, by their name below the folder of the corpus."""
    entries = {PurePosixPath(entry.filename): entry for entry in archive.infolist() if not entry.filename.startswith("__MACOSX/")}
    corpora = [path for path in entries if path.name == "corpus.jsonl"]
    if len(corpora) != 1:
        remedy = "Unpack it, and name one of its folders." if corpora else "Name a zip as BEIR's, or unpack it and name what is inside."
        raise DataError(where=where, found=f"{len(corpora) or 'no'} corpus.jsonl in it", expected=EXPECTED, remedy=remedy)
    top = corpora[0].parent
    judged = [path for path in entries if path.parent == top / "qrels" and path.suffix == ".tsv"]
    wanted = [corpora[0], top / "queries.jsonl", *judged]
    return {path.relative_to(top).as_posix(): entries[path] for path in wanted if path in entries}


# The names that the parts of a retrieval source go by, first match wins.
DOCUMENT_FILES = ("documents", "docs", "faqs")
QUERY_ID = ("query_id", "query-id", "_id")
DOCUMENT_ID = ("document_id", "doc_id", "faq_id", "corpus-id", "_id")
QUERY_TEXT = ("query", "text")
RELEVANCE = ("relevance", "score")
SHAPES = (
    "a folder or zip with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, as BEIR's are, or tables NAME_docs, NAME_queries and "
    "NAME_qrels, named as NAME"
)
LONGEST_JUDGEMENT = 10_000  # bytes of its line


@dataclass(frozen=True, kw_only=True)
class RetrievalFiles:
    """judgements: (split, file); the split is None where a column `split`, or nothing, distinguishes the splits.
    release: who reads the files, where they are those of a known release."""

    documents: Path
    queries: Path
    judgements: tuple[tuple[str | None, Path], ...]
    release: releases.FaqRelease | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.documents, self.queries, *(path for _, path in self.judgements)) if self.release is None else self.release.paths


def find(name: str, data_root: Path | None) -> RetrievalFiles | None:
    """Return the files of the retrieval source `name`, or None when `name` is not one.

    Three shapes: NAME_docs|faqs, NAME_queries, NAME_qrels side by side;
    a folder, or a zip, as BEIR (Thakur et al. 2021, arXiv 2104.08663) has it, with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv;
    or a folder with the files of a release of `faq_releases`.
    Raises DataError when some of the parts are there and others are not.
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
                where=name,
                found="corpus.jsonl alone",
                expected="queries.jsonl and qrels/SPLIT.tsv beside it",
                remedy="Complete the folder.",
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
        raise DataError(
            where=name,
            found=", ".join(present),
            expected=f"{last}_docs (or _faqs), {last}_queries and {last}_qrels",
            remedy="Fetch the missing part.",
        )
    return RetrievalFiles(documents=documents, queries=queries, judgements=((None, judgements),))


def missing_parts(name: str, root: Path, known: Sequence[str]) -> DataError:
    """The error for a name behind which there are neither the parts of a retrieval source nor a table. known: names of such sources."""
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
    """What under the root is, by its files' names, documents with queries and judgements, or a zip, sorted."""
    remote = mirror.remote_names(root)
    paths = [path.relative_to(root) for path in root.rglob("*")] if remote is None else [Path(name) for name in remote]
    found = {path.parent.as_posix() for path in paths if path.name == "corpus.jsonl" and path.parent.name}
    found |= {path.as_posix() for path in paths if path.suffix == ".zip"}
    names = {files.without_suffix(path.as_posix()) for path in paths}
    return sorted(found | {name.removesuffix("_qrels") for name in names if name.endswith("_qrels")})


def refuse_headless(name: str, path: Path, *, is_of_beir: bool) -> None:
    """Raise DataError for judgements without a header, of TREC or not, in a file whose suffix says that it has one (MS MARCO's are such).
    is_of_beir: it is one of a folder in BEIR's shape."""
    if suffix_of(path) not in SEPARATED:
        return
    with reading(path, expected=f"{suffix_of(path)[1:]}, as its suffix says", where=name), open_bytes(path) as file:
        line = file.readline(LONGEST_JUDGEMENT)
    first, fields = line.split(), re.split(r"[\t,;|]", line.decode(errors="replace").strip())
    if len(fields) == 3 and number_in(fields[2].strip(' "')) is not None:
        raise DataError(
            where=f"{name} ({path})", found=f"a judgement in the first line, {brief(line.decode(errors='replace').strip())}",
            expected="a header there", remedy="Write a line above it that says query-id, corpus-id and score, with the same separator.",
        )  # fmt: skip
    if len(first) == 4 and first[1] in (b"0", b"Q0"):
        raise DataError(
            where=f"{name} ({path})",
            found="judgements as TREC writes them",
            expected=f"a table with a header, as {suffix_of(path)} says",
            remedy="Write query-id, corpus-id and score, below a header that says so."
            if is_of_beir
            else f"Call the file {files.without_suffix(path.name)}.txt.",
        )


def check_part_columns(name: str, parts: RetrievalFiles, columns: Mapping[Path, Sequence[str]]) -> None:
    """Raise DataError for a file without the columns that will be read. columns: of each file."""
    for path, wanted in (
        (parts.documents, (DOCUMENT_ID,)),
        (parts.queries, (QUERY_ID, QUERY_TEXT)),
        *((judged, (QUERY_ID, DOCUMENT_ID, RELEVANCE)) for _, judged in parts.judgements),
    ):
        for known in wanted:
            _column_of(f"{name} ({path})", columns[path], known)


def read_documents(name: str, parts: RetrievalFiles) -> pa.Table:
    """Return a table whose column `document_id` is text; the text fields keep the names that they have in the file."""
    return _with_id(name, files.read_file(name, parts.documents), DOCUMENT_ID, "document_id")


def read_queries(name: str, parts: RetrievalFiles) -> pa.Table:
    """Return columns query_id and query, both text, and that of groups, if there is one."""
    table = _with_id(name, files.read_file(name, parts.queries), QUERY_ID, "query_id")
    text = _column_of(name, table.column_names, QUERY_TEXT)
    grouped = [GROUP] if GROUP in table.column_names else []
    return table.select(["query_id", text, *grouped]).rename_columns(["query_id", "query", *grouped])


def read_judgements(name: str, parts: RetrievalFiles, split: str | None) -> pa.Table:
    """Return columns query_id, document_id and relevance (text or number, as in the file) of a split, of all when it is None."""
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
    raise DataError(
        where=where,
        found=f"columns {', '.join(columns)}",
        expected=f"one called {' or '.join(known)}",
        remedy="Rename the column in the file.",
    )
