"""A person's own file as rows to train on and to be scored on: looked at while planning, read again where it is needed."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.cache import cache_folder
from sentdist.data.cells import number_in
from sentdist.data.own.file_format import may_lack_header, own_table
from sentdist.data.own.shapes import GRADES, KNOWN_NAMES, Layout, Shape, grades_of, layout_of, scale_of
from sentdist.data.own.sides import DEV, SIDES, TEST, TRAIN, HeldOut, Sides, sides_of
from sentdist.data.retrieval import Retrieval
from sentdist.data.seeded_order import digest_u64
from sentdist.data.sources import hub
from sentdist.data.sources.file_facts import changed_since_planning, content_digest
from sentdist.data.sources.separated import FileFormat, format_notes, recognised
from sentdist.durable import whole_file
from sentdist.errors import DataError, brief, counted, listed
from sentdist.reading import read_array, unreadable

PAIR, GRADED = ("sent0", "sent1", "hard_neg"), ("sentence1", "sentence2", "score")  # what columns are called from here on
NOTED = 4  # version of what is noted: of how sides are drawn
TOP = 5.0  # of the scale that scores are brought to
MOST_FOR_NEAR = 50_000  # different texts among which near-duplicates are looked for, if nobody said: some 20 s
MOST_DOCUMENTS = {DEV: 2_000, TEST: 10_000}  # that a query's positives stand among


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """All that decides what is read out of a file of known content: how it is written, what its columns are, what is held out.

    shape, columns, group, split: as `Layout`. low, high: the scale of its scores; None: it has none. dev, test, seed, most, near: as
    `HeldOut`. num_linking: texts of a row, from its first, by which rows are linked. sides: digest of the rows' sides, so that a key means
    these very rows. The plan has a value of the same fields.
    """

    encoding: str | None
    separator: str | None
    has_header: bool | None
    shape: Shape
    columns: tuple[str, ...]
    group: str | None
    split: str | None
    low: float | None
    high: float | None
    dev: float
    test: float
    seed: int
    most: int
    near: float | None
    num_linking: int
    sides: str


@dataclass(frozen=True, kw_only=True)
class OwnFileOptions:
    """What a recipe says of a file; None: to be found out. near: "auto" looks for near-duplicates where there are not too many texts."""

    shape: Shape | None = None
    columns: tuple[str, ...] | None = None
    group: str | None = None
    encoding: str | None = None
    separator: str | None = None
    has_header: bool | None = None
    dev: float = 0.1
    test: float = 0.1
    seed: int = 0
    most: int = 1000
    near: float | str | None = "auto"


@dataclass(frozen=True, kw_only=True)
class RecognisedFile:
    """What was found. revision: of the content. sizes: rows of train, dev and test. told: sentences for a person."""

    revision: str
    file: OwnFile
    sizes: tuple[int, int, int]
    told: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _FileRows:
    """texts: (R,) of each row. grades: (R,) on the file's own scale, () without. num_repeated, num_empty: rows left out.
    num_otherwise: those of the repeated ones whose grade is another than that of the row that is kept."""

    texts: tuple[tuple[str, ...], ...]
    grades: tuple[float, ...]
    group: tuple[str, ...] | None
    split: tuple[str, ...] | None
    num_repeated: int
    num_empty: int
    num_otherwise: int


def recognise(name: str, path: Path | None, options: OwnFileOptions, *, hub_revision: str | None = None) -> RecognisedFile:
    """Find out what a file is and which of its rows are held out. path: None for a data set of the hub.

    Raises:
        DataError: what `recognised`, `layout_of`, `scale_of` and `sides_of` refuse.
    """
    file_format = FileFormat()
    if path is None:
        table, revision = hub.read(name, split=None, columns=None, revision=hub_revision), str(hub_revision)
    else:
        _check_file(name, path)
        given = FileFormat(encoding=options.encoding, separator=options.separator, has_header=options.has_header)
        file_format = recognised(name, path, given, _known_names(options))
        table, revision = own_table(name, path, file_format), content_digest(path)
    with may_lack_header(file_format.has_header is False and options.has_header is None):
        layout = layout_of(name, table, shape=options.shape, columns=options.columns, group=options.group)
        rows = _rows(name, table, layout)
        low, high = scale_of(name, layout.columns[2], table[layout.columns[2]].to_pylist()) if layout.shape == "graded" else (None, None)
    num_texts = len({text for row in rows.texts for text in row})
    file = OwnFile(
        **asdict(file_format), shape=layout.shape, columns=layout.columns, group=layout.group, split=layout.split, low=low, high=high,
        dev=options.dev, test=options.test, seed=options.seed, most=options.most, near=None, num_linking=len(layout.texts), sides="",
    )  # fmt: skip
    file, sides, loosened = _first_possible(
        name, rows, [replace(file, near=near, num_linking=num) for near, num in _ways(options, layout, num_texts)], revision
    )
    sizes = tuple(int((sides.of_rows == side).sum()) for side in (TRAIN, DEV, TEST))
    told = _told(
        name, path, file_format, layout, table, rows, sides, sizes, scale=(low, high) if low is not None and high is not None else None
    )
    told = (*told, *_told_of_likeness(options, file, loosened, num_texts))
    return RecognisedFile(revision=revision, file=file, sizes=(sizes[0], sizes[1], sizes[2]), told=told)


def read_rows(name: str, path: Path | None, file: OwnFile, side: int, *, revision: str) -> pa.Table:
    """The rows of a side, in the file's order: `sent0`, `sent1` and `hard_neg`, or `sentence1`, `sentence2` and `score` (0 to 5).

    Raises:
        DataError: a file that has changed since it was planned with.
    """
    rows, sides_R = _read(name, path, file, revision)
    kept = np.flatnonzero(sides_R == side).tolist()
    names = GRADED[:2] if file.shape == "graded" else PAIR
    columns = {
        column: pa.array([rows.texts[row][place] for row in kept], pa.large_string())
        for place, column in zip(range(len(rows.texts[0])), names, strict=False)
    }
    if file.shape == "graded":
        assert file.low is not None and file.high is not None
        columns["score"] = pa.array([round(TOP * (rows.grades[row] - file.low) / (file.high - file.low), 9) for row in kept], pa.float64())
    return pa.table(columns)


def read_groups(name: str, path: Path | None, file: OwnFile, side: int, *, revision: str) -> tuple[str, ...]:
    """What the rows of `read_rows` belong to, "" for nothing; () for a file without a column of groups. DataError as there."""
    rows, sides_R = _read(name, path, file, revision)
    return () if rows.group is None else tuple(rows.group[row] for row in np.flatnonzero(sides_R == side).tolist())


def read_queries(name: str, path: Path | None, file: OwnFile, side: int, *, revision: str) -> Retrieval:
    """The pairs or triplets of a side as queries, each to find its positives.

    Documents are the positives and negatives of the side and, up to 2,000 for dev and 10,000 for test, those of other rows; dev has none
    of test's. A text is a query or a document, never both: one that stands in both columns is what it is in the first of its rows, by their
    texts, and rows that do not fit that are not scored.
    """
    rows, sides_R = _read(name, path, file, revision)
    own = [rows.texts[row] for row in np.flatnonzero(sides_R == side).tolist()]
    judged = list(_judged(own))
    relevant: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for query, document in judged:
        relevant[query][document] = 1
    documents = dict.fromkeys([document for _, document in judged])
    documents |= dict.fromkeys(text for row in own for text in row[2:] if text not in relevant)
    allowed = (TRAIN, DEV) if side == DEV else (TRAIN, DEV, TEST)
    others = {rows.texts[row][1] for row in np.flatnonzero(np.isin(sides_R, allowed)).tolist()} - documents.keys() - relevant.keys()
    room = max(0, MOST_DOCUMENTS[side] - len(documents))
    documents |= dict.fromkeys(sorted(others, key=lambda text: (digest_u64(file.seed, text), text))[:room])
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
    """(query, document) of the rows in which each text plays one role."""
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


def _known_names(options: OwnFileOptions) -> list[str]:
    """By which a header is known for one: usual names, and those that a person gave; numbers are what columns without names are called."""
    given = {name.strip().casefold() for name in (*(options.columns or ()), options.group or "") if name and not name.strip().isdigit()}
    return sorted(KNOWN_NAMES | given)


def _read(name: str, path: Path | None, file: OwnFile, revision: str) -> tuple[_FileRows, np.ndarray]:
    if path is None:
        return _opened(name, None, 0, file, revision)
    _check_file(name, path)
    return _opened(name, path, path.stat().st_mtime_ns, file, revision)


@lru_cache(maxsize=2)
def _opened(name: str, path: Path | None, changed: int, file: OwnFile, revision: str) -> tuple[_FileRows, np.ndarray]:
    """A file's rows and their sides: dev, test and training of one run ask for the same."""
    if path is None:
        table = hub.read(name, split=None, columns=None, revision=revision)
    elif content_digest(path) != revision:
        raise changed_since_planning(f"{name} ({path})", revision)
    else:
        table = own_table(name, path, FileFormat(encoding=file.encoding, separator=file.separator, has_header=file.has_header))
    rows = _rows(name, table, Layout(shape=file.shape, columns=file.columns, group=file.group, split=file.split))
    sides = _sides(name, rows, file, revision)
    if _digest(sides) != file.sides:
        raise DataError(
            where=name, found="other rows held out than when the run was planned", expected="one version of this package, and one of datasketch",
            remedy="Install the same versions on all machines.",
        )  # fmt: skip
    return rows, sides.of_rows


def _sides(name: str, rows: _FileRows, file: OwnFile, revision: str) -> Sides:
    """The sides of a file's rows, noted for the other processes of a run and for the next one."""
    note = _note(revision, file)
    if (noted := _noted(note, len(rows.texts))) is not None:
        return noted
    held_out = HeldOut(dev=file.dev, test=file.test, seed=file.seed, most=file.most, near=file.near)
    linking = [row[: file.num_linking] for row in rows.texts]
    sides = sides_of(name, linking, held_out=held_out, given=rows.group, splits=rows.split)
    _keep(note, sides)
    return sides


def _rows(name: str, table: pa.Table, layout: Layout) -> _FileRows:
    """The rows with a text in each column, each once."""
    texts = [[(text or "").strip() for text in table[column].to_pylist()] for column in layout.texts]
    grades = grades_of(name, layout.columns[2], table[layout.columns[2]].to_pylist()) if layout.shape == "graded" else []
    kept: dict[tuple[str, ...], int] = {}
    num_empty = num_otherwise = 0
    for row, found in enumerate(zip(*texts, strict=True)):
        if not all(found) or (grades and math.isnan(grades[row])):
            num_empty += 1
        else:
            first = kept.setdefault(found, row)
            num_otherwise += bool(grades) and grades[first] != grades[row]
    if not kept:
        raise DataError(where=name, found="no row with all its texts", expected="texts", remedy="Name other columns: corpus.columns.")
    of = {
        column: ["" if cell is None else str(cell) for cell in table[column].to_pylist()]
        for column in (layout.group, layout.split)
        if column
    }
    return _FileRows(
        texts=tuple(kept),
        grades=tuple(grades[row] for row in kept.values()) if grades else (),
        group=None if layout.group is None else tuple(of[layout.group][row] for row in kept.values()),
        split=None if layout.split is None else tuple(of[layout.split][row] for row in kept.values()),
        num_repeated=table.num_rows - len(kept) - num_empty,
        num_empty=num_empty,
        num_otherwise=num_otherwise,
    )


def _no_grades(table: pa.Table, unread: Sequence[str]) -> str:
    """Why a column that is called as scores are is not taken for them."""
    for column in unread:
        if column.lower() in GRADES and len(table):
            word = next((str(cell) for cell in table[column].slice(0, 1000).to_pylist() if number_in(str(cell)) is None), None)
            return "" if word is None else f" ({column} holds no numbers: {brief(word)})"
    return ""


def _told(
    name: str, path: Path | None, file_format: FileFormat, layout: Layout, table: pa.Table, rows: _FileRows, sides: Sides, sizes: Sequence[int],
    *, scale: tuple[float, float] | None,
) -> tuple[str, ...]:  # fmt: skip
    unread = [column for column in table.column_names if column not in (*layout.columns, layout.group, layout.split)]
    read = [
        f"{layout.shape} in {listed(layout.columns)}",
        *([] if path is None else format_notes(file_format, path)),
        *([_scores_told(rows.grades, *scale)] if scale else []),
        *([f"{listed([column or 'unnamed' for column in unread])} not read{_no_grades(table, unread)}"] if unread else []),
        *([f"{counted(rows.num_empty, 'row')} without a text{' or a score' if scale else ''} left out"] if rows.num_empty else []),
        *([f"{counted(rows.num_repeated, 'repeated row')} left out"] if rows.num_repeated else []),
    ]
    total = sum(sizes)
    parts = ", ".join(f"{size:,} {side}" for side, size in zip(SIDES, sizes, strict=True))
    by_split = f" (by column {brief(layout.split)})" if layout.split else ""
    largest = f"the largest group has {counted(sides.largest_group, 'row')}"
    lines = [
        f"{name}: {'; '.join(read)}",
        f"{counted(total, 'row')}{by_split}: {parts}, in {counted(sides.num_groups, 'group')}; {largest}",
    ]
    if rows.num_otherwise:
        lines.append(
            f"The score of {counted(rows.num_otherwise, 'repeated row')} is another than in the first row of that pair, which is taken."
        )
    if sides.num_linked:
        lines.append(
            f"{counted(sides.num_linked, 'row')} of its own dev and test splits share texts with training rows: `sentdist leaks` lists them."
        )
    return tuple(lines)


def _scores_told(grades: Sequence[float], low: float, high: float) -> str:
    """One score that is mistyped widens the scale, and all others come together at its low end."""
    why = ", the narrowest usual one that holds them: rank correlations do not depend on it, losses that fit the scores do"
    return f"scores from {min(grades):g} to {max(grades):g}, on a scale from {low:g} to {high:g}{'' if {low, high} <= {*grades} else why}"


def _told_of_likeness(options: OwnFileOptions, file: OwnFile, loosened: bool, num_texts: int) -> list[str]:
    """What does not keep rows together, and why."""
    told = []
    if file.shape == "triplets" and file.num_linking < 3:
        told.append(
            "Negatives link nearly all rows: rows that share an anchor or a positive stay on one side, and negatives may stand on several."
        )
    if options.near == "auto" and file.near is None:
        why = "Too many rows look alike to keep all look-alikes" if loosened else f"Among {num_texts:,} texts look-alikes are not kept"
        told.append(f"{why} on one side; corpus.held_out.near=0.8 does, with fewer groups.")
    return told


def _ways(options: OwnFileOptions, layout: Layout, num_texts: int) -> list[tuple[float | None, int]]:
    """How near-duplicates and how many texts of a row link rows, the strictest way first."""
    nears = (
        [0.8, None]
        if options.near == "auto" and num_texts <= MOST_FOR_NEAR
        else [None if options.near in ("auto", None) else float(str(options.near))]
    )
    return [(near, num) for near in nears for num in ((3, 2) if layout.shape == "triplets" else (2,))]


def _first_possible(name: str, rows: _FileRows, ways: Sequence[OwnFile], revision: str) -> tuple[OwnFile, Sides, bool]:
    """The strictest way that leaves rows to hold out, its sides, and whether it is not the first; DataError of the last where none does."""
    for number, file in enumerate(ways):
        try:
            sides = _sides(name, rows, file, revision)
        except DataError:
            if number == len(ways) - 1:
                raise
        else:
            return replace(file, sides=_digest(sides)), sides, number > 0
    raise AssertionError("the last way is raised or returned")


def _check_file(name: str, path: Path) -> None:
    if (kind := unreadable(path)) is not None:
        raise DataError(where=name, found=kind, expected="a file", remedy="Correct corpus.file.")


def _digest(sides: Sides) -> str:
    return hashlib.sha256(sides.of_rows.tobytes()).hexdigest()[:16]


def _note(revision: str, file: OwnFile) -> Path:
    about = repr((NOTED, revision, replace(file, sides="")))
    return cache_folder("sides") / f"{hashlib.sha256(about.encode()).hexdigest()[:24]}.npy"


def _keep(note: Path, sides: Sides) -> None:
    """Note the sides: three counts, then a number a row; a cache that cannot be written costs time, not the run."""
    numbers = np.array([sides.num_groups, sides.largest_group, sides.num_linked, *sides.of_rows.tolist()], dtype=np.int64)
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(note) as part, part.open("wb") as file:
            np.save(file, numbers)


def _noted(note: Path, num_rows: int) -> Sides | None:
    try:
        noted = read_array(note)
    except DataError:  # absent or damaged: found out again
        return None
    if noted.shape != (3 + num_rows,) or noted.dtype != np.int64:
        return None
    return Sides(of_rows=noted[3:].astype(np.int8), num_groups=int(noted[0]), largest_group=int(noted[1]), num_linked=int(noted[2]))
