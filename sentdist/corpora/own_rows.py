"""Read a user file as rows to train on or as queries to score, split into train, dev and test; cache the split of each file."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentdist.data import hub
from sentdist.data.cells import is_invisible
from sentdist.data.columns import Layout, grades_of
from sentdist.data.mirror import copy_into_mirror
from sentdist.data.retrieval import Retrieval
from sentdist.data.sampler import digest_u64
from sentdist.data.sources import changed_since_planning
from sentdist.data.split import DEV, SIDES, TEST, TRAIN, HeldOut, Sides, sides_of
from sentdist.data.tables import TableFiles, find_table
from sentdist.errors import DataError, counted
from sentdist.files import cache_folder, read_array, whole_file
from sentdist.recipe.specs import OwnRows

NOTED = 7  # version of the cache: of how rows are read and split
NOTHING = ("\\N", "NULL", "null", "NaN", "nan", "<NA>", "#N/A", "N/A", "n/a", "None")  # null values of databases, pandas and Excel


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """The R distinct rows of a file.

    Args:
        texts: (R,) the texts of each row.
        grades: (R,) on the scale of the file; () without scores.
        num_repeated, num_empty: rows left out; those that repeat the column names count as empty.
        origin: (R,) number of the file's row that each row comes from: one with several positives or negatives becomes several.
    """

    texts: tuple[tuple[str, ...], ...]
    grades: tuple[float, ...]
    group: tuple[str, ...] | None
    split: tuple[str, ...] | None
    num_repeated: int
    num_empty: int
    origin: tuple[int, ...]


def file_rows(name: str, table: pa.Table, layout: Layout) -> FileRows:
    """Return the distinct rows with a text in each column; a row with several positives or negatives becomes one row for each."""
    cells = [_without_nulls(table[column]).to_pylist() for column in layout.texts]
    is_header = [row == layout.texts for row in zip(*cells, strict=True)]
    grades = grades_of(name, layout.columns[2], score_cells(table, layout)) if layout.shape == "graded" else []
    kept: dict[tuple[str, ...], int] = {}
    num_empty = num_repeated = 0
    for row, found in enumerate(zip(*cells, strict=True)):
        parted = _parted(found) if not (is_header[row] or (grades and math.isnan(grades[row]))) else []
        num_empty += not parted
        for texts in parted:
            kept.setdefault(texts, row)
            num_repeated += 1
    if not kept:
        raise DataError(where=name, found="no row with all its texts", expected="texts", remedy="Name other columns: corpus.columns.")

    def of(column: str | None) -> tuple[str, ...] | None:
        values = [] if column is None else table[column].to_pylist()
        return None if column is None else tuple("" if values[row] is None else str(values[row]) for row in kept.values())

    return FileRows(
        texts=tuple(kept),
        grades=tuple(grades[row] for row in kept.values()) if grades else (),
        group=of(layout.group),
        split=of(layout.split),
        num_repeated=num_repeated - len(kept),
        num_empty=num_empty,
        origin=tuple(kept.values()),
    )


def score_cells(table: pa.Table, layout: Layout) -> list[object]:
    """Return the cells of the score column, None for rows that repeat the column names."""
    columns = [_without_nulls(table[column]).to_pylist() for column in layout.columns]
    return [None if row == layout.columns else row[2] for row in zip(*columns, strict=True)]


def _without_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with null words as nulls: a text NULL would be the positive of all rows without one."""
    if not pa.types.is_large_string(column.type):
        return column
    is_nothing = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(NOTHING, pa.large_string()))
    return pc.if_else(is_nothing, pa.scalar(None, pa.large_string()), column)


def _parted(cells: Sequence[object]) -> list[tuple[str, ...]]:
    """The rows that a row of the file becomes: its anchor with each positive and negative (the shorter list starts again); none if one of
    them is missing. cells: anchor, positive, negatives; each a text or a list of texts."""
    anchors, positives, *others = [_texts_in(cell) for cell in cells]
    roles = [anchors, positives, *([[text for texts in others for text in texts]] if others else [])]
    if not all(roles):
        return []
    return [tuple(role[number % len(role)] for role in roles) for number in range(max(map(len, roles)))]


def _texts_in(cell: object) -> list[str]:
    texts = cell if isinstance(cell, list) else [cell]
    return list(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and not is_invisible(text)))


def sides_of_file(name: str, rows: FileRows, own: OwnRows, revision: str) -> Sides:
    """Return the split of a file's rows, cached for the other processes of the run and for later runs."""
    about = repr((NOTED, revision, own.model_dump_json(exclude={"sides"})))
    note = cache_folder("sides") / f"{hashlib.sha256(about.encode()).hexdigest()[:24]}.npy"
    with suppress(DataError):  # absent or damaged: computed again
        noted = read_array(note)
        if noted.shape == (3 + len(rows.texts),) and noted.dtype == np.int64:
            num_groups, largest, num_linked = noted[:3].tolist()
            return Sides(of_rows=noted[3:].astype(np.int8), num_groups=num_groups, largest_group=largest, num_linked=num_linked)
    held_out = HeldOut(dev=own.dev, test=own.test, seed=own.seed, most=own.most, near=own.near)
    linking = [row[: own.num_linking] for row in rows.texts]
    sides = sides_of(name, linking, held_out=held_out, given=rows.group, splits=rows.split, origin=rows.origin)
    numbers = np.array([sides.num_groups, sides.largest_group, sides.num_linked, *sides.of_rows.tolist()], dtype=np.int64)
    with suppress(OSError):  # costs time only
        note.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(note) as part, part.open("wb") as file:
            np.save(file, numbers)
    return sides


def digest_of_sides(sides: Sides) -> str:
    """Return 16 hex digits of the split of each row."""
    return hashlib.sha256(sides.of_rows.tobytes()).hexdigest()[:16]


PAIR, GRADED = ("sent0", "sent1", "hard_neg"), ("sentence1", "sentence2")  # names of the columns that are returned
TOP = 5.0  # maximum of the scale to which scores are mapped
MOST_DOCUMENTS = {DEV: 2_000, TEST: 10_000}  # of the collection to search


@dataclass(frozen=True, kw_only=True)
class OwnSplit:
    """The rows of a user file that are in one split."""

    name: str
    own: OwnRows
    rows: FileRows
    of_rows: np.ndarray  # (R,) the split of each row of the file
    side: int  # TRAIN, DEV or TEST

    @property
    def _kept(self) -> list[int]:
        kept: list[int] = np.flatnonzero(self.of_rows == self.side).tolist()
        return kept

    def table(self) -> pa.Table:
        """Return the rows in file order: `sent0`, `sent1` and `hard_neg`, or `sentence1`, `sentence2` and `score` (0 to 5)."""
        own, rows, kept = self.own, self.rows, self._kept
        names = GRADED if own.shape == "graded" else PAIR[: len(rows.texts[0])]
        columns = {name: pa.array([rows.texts[row][place] for row in kept], pa.large_string()) for place, name in enumerate(names)}
        if own.low is not None and own.high is not None:
            columns["score"] = pa.array([round(TOP * (rows.grades[row] - own.low) / (own.high - own.low), 9) for row in kept], pa.float64())
        return pa.table(columns)

    @property
    def groups(self) -> tuple[str, ...]:
        """The group of each row, "" for none; () for a file without a column of groups."""
        group = self.rows.group
        return () if group is None else tuple(group[row] for row in self._kept)

    def queries(self) -> Retrieval:
        """Return pairs or triplets of dev or test as queries with their positives as relevant documents.

        The documents are the positives and negatives of the split and positives of other rows, up to 2,000 for dev (without test rows) and
        10,000 for test. A text is a query or a document, never both: if it occurs in both columns, the first of its rows, in the order of
        their texts, decides, and rows that contradict it are not scored.
        """
        texts = self.rows.texts
        kept = [texts[row] for row in self._kept]
        judged = list(_judged(kept))
        if kept and not judged:
            raise DataError(
                where=f"{self.name}, {SIDES[self.side]}", found=f"the same text in both columns of all of {counted(len(kept), 'row')}",
                expected="pairs of different texts", remedy="Name the columns that belong together, or correct the file.",
            )  # fmt: skip
        relevant: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for query, document in judged:
            relevant[query][document] = 1
        documents = dict.fromkeys([document for _, document in judged])
        documents |= dict.fromkeys(text for row in kept for text in row[2:] if text not in relevant)
        allowed = (TRAIN, DEV) if self.side == DEV else (TRAIN, DEV, TEST)
        others = {texts[row][1] for row in np.flatnonzero(np.isin(self.of_rows, allowed)).tolist()} - documents.keys() - relevant.keys()
        room = max(0, MOST_DOCUMENTS[self.side] - len(documents))
        documents |= dict.fromkeys(sorted(others, key=lambda text: (digest_u64(self.own.seed, text), text))[:room])
        document_id = {text: f"d{number}" for number, text in enumerate(documents)}
        query_id = {text: f"q{number}" for number, text in enumerate(relevant)}
        return Retrieval(
            query_ids=tuple(query_id.values()),
            queries=tuple(query_id),
            document_ids=tuple(document_id.values()),
            documents=tuple(document_id),
            qrels={query_id[query]: {document_id[document]: 1 for document in found} for query, found in relevant.items()},
        )


def _judged(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """(query, document) of the rows in which each text has one role."""
    anchors, positives = {row[0] for row in rows}, {row[1] for row in rows}
    is_query = {text: text in anchors for text in anchors ^ positives}
    for row in sorted(map(tuple, rows)):
        first, second = row[:2]
        if first == second:
            continue
        if first not in is_query and second not in is_query:
            is_query[first], is_query[second] = True, False
        elif first not in is_query:
            is_query[first] = not is_query[second]
        elif second not in is_query:
            is_query[second] = not is_query[first]
        if is_query[first] != is_query[second]:
            yield (first, second) if is_query[first] else (second, first)


def open_split(name: str, own: OwnRows, side: str | None, *, revision: str, folders: Mapping[str, str], root: Path | None) -> OwnSplit:
    """Read the rows of a split: train, dev or test.

    Args:
        folders: revision -> folder, of files given by path; others are below the data root.

    Raises:
        DataError: the file is missing or has changed since planning.
    """
    parts = None
    if not name.startswith(hub.PREFIX):
        folder = Path(folders[revision]) if revision in folders else root
        if folder is None:
            expected = f"the file with content {revision}"
            raise DataError(where=name, found="no such file in this run", expected=expected, remedy="Plan with corpus.file.")
        copy_into_mirror(name, folder)
        parts = find_table(name, folder / name, encoding=own.encoding)
    changed = () if parts is None else tuple(one.stat().st_mtime_ns for one in parts.files if one is not None)
    rows, of_rows = _opened(name, parts, changed, own, revision)
    return OwnSplit(name=name, own=own, rows=rows, of_rows=of_rows, side=SIDES.index(side or ""))


@lru_cache(maxsize=2)
def _opened(name: str, parts: TableFiles | None, changed: tuple[int, ...], own: OwnRows, revision: str) -> tuple[FileRows, np.ndarray]:
    """A file's rows and their split, cached: dev, test and training of a run need the same."""
    if parts is None:
        table = hub.read(name, revision=revision)
    elif parts.digest() != revision:
        raise changed_since_planning(f"{name} ({parts.files[0]})", revision)
    else:
        table = parts.read()
    assert own.shape != "faq", "a shape of records of 0.4"
    rows = file_rows(name, table, Layout(shape=own.shape, columns=own.columns, group=own.group, split=own.split))
    sides = sides_of_file(name, rows, own, revision)
    if digest_of_sides(sides) != own.sides:
        found = "other rows held out than when the run was planned"
        remedy = "Install the same versions on all machines."
        raise DataError(where=name, found=found, expected="the same versions of sentdist and datasketch on all machines", remedy=remedy)
    return rows, sides.of_rows
