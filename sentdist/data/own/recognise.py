"""Recognise the format, columns and held-out rows of a user file while planning, with notes for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from sentdist.data.own.columns import GRADES, KNOWN_NAMES, is_called_negative, scale_of, score_in, words_of
from sentdist.data.own.file_rows import FileRows, OwnFile, file_rows, grade_cells, remarks
from sentdist.data.own.files import RowPlaces, TableParts, format_of_parts, may_lack_header, parts_of, read_parts
from sentdist.data.own.rows import digest_of_sides, sides_of_file
from sentdist.data.own.shapes import Layout, Shape, layout_of
from sentdist.data.own.split import DEV, SIDES, TEST, TRAIN, Sides
from sentdist.data.sources import hub
from sentdist.data.sources.separated import FileFormat, format_notes
from sentdist.errors import DataError, brief, counted, listed

MOST_COUNTED = 7  # distinct scores whose counts are listed
SMALL = 2_000  # rows below which a tenth is too few to compare encoders
AUTO_SHARES = (0.1, 0.1)  # shares of dev and test
AUTO_SHARES_OF_SMALL = (0.15, 0.3)
MOST_FOR_NEAR = 50_000  # distinct texts up to which "auto" looks for near-duplicates: some 20 s


@dataclass(frozen=True, kw_only=True)
class OwnFileOptions:
    """Settings of a recipe for a file; None: to be recognised.

    Args:
        dev, test: shares of the rows; "auto" depends on the number of rows.
        near: as in `HeldOut`; "auto" looks for near-duplicates among at most 50,000 texts.
    """

    shape: Shape | None = None
    columns: tuple[str, ...] | None = None
    group: str | None = None
    encoding: str | None = None
    separator: str | None = None
    has_header: bool | None = None
    dev: float | str = "auto"
    test: float | str = "auto"
    seed: int = 0
    most: int = 1000
    near: float | str | None = "auto"


@dataclass(frozen=True, kw_only=True)
class RecognisedFile:
    """A recognised file.

    Args:
        revision: digest of the content.
        sizes: rows of train, dev and test.
        notes: sentences for the user.
        num_items: anchors or graded pairs that dev and test score.
        num_apart: size of the largest set of training rows with distinct texts, an upper limit for a batch.
        text_bytes: mean length of a training text.
    """

    revision: str
    file: OwnFile
    sizes: tuple[int, int, int]
    notes: tuple[str, ...]
    num_items: tuple[int, int]
    num_apart: int
    text_bytes: float


def recognise(name: str, path: Path | None, options: OwnFileOptions, *, hub_revision: str | None = None) -> RecognisedFile:
    """Recognise a file and choose its held-out rows.

    Args:
        path: a file, or a folder of its parts; None for a data set of the hub.

    Raises:
        DataError: as in `parts_of`, `format_of_parts`, `read_parts`, `layout_of`, `scale_of` and `sides_of`.
    """
    file_format, parts, places = FileFormat(), None, RowPlaces()
    if path is None:
        table, revision = hub.read(name, split=None, columns=None, revision=hub_revision), str(hub_revision)
    else:
        parts = parts_of(name, path)
        given = FileFormat(encoding=options.encoding, separator=options.separator, has_header=options.has_header)
        file_format = format_of_parts(name, parts, given, _known_names(options))
        table, places = read_parts(name, parts, file_format, named=(*(options.columns or ()), options.group))
        revision = parts.digest()
    with may_lack_header(file_format.has_header is False and options.has_header is None):
        layout = layout_of(name, table, shape=options.shape, columns=options.columns, group=options.group)
        rows = file_rows(name, table, layout, places)
        low, high = scale_of(name, layout.columns[2], grade_cells(table, layout)) if layout.shape == "graded" else (None, None)
    num_texts = len({text for row in rows.texts for text in row})
    file = OwnFile(
        **asdict(file_format), shape=layout.shape, columns=layout.columns, group=layout.group, split=layout.split, low=low, high=high,
        dev=0.0, test=0.0, seed=options.seed, most=options.most, near=None, num_linking=min(3, len(layout.texts)), sides="",
    )  # fmt: skip
    nears, shares = _ways(options, layout, num_texts), _shares(options, len(rows.texts))
    file, sides = _first_possible(
        name, rows, [replace(file, near=near, num_linking=num, dev=dev, test=test) for near, num in nears for dev, test in shares], revision
    )
    loosened = (file.near, file.num_linking) != nears[0]
    sizes = tuple(int((sides.of_rows == side).sum()) for side in (TRAIN, DEV, TEST))
    scale = (low, high) if low is not None and high is not None else None
    notes = (
        f"{name}: {_words_of_reading(parts, file_format, layout, table, rows, scale)}",
        *_sentences_of_sides(layout, rows, sides, sizes),
        *_sentences_of_likeness(options, file, loosened, num_texts),
        *remarks(rows.texts),
    )
    training = [texts for texts, side in zip(rows.texts, sides.of_rows.tolist(), strict=True) if side == TRAIN]
    num_items = [_num_items(layout, rows, sides, side) for side in (DEV, TEST)]
    num_apart = min(len(set(texts)) for texts in zip(*training, strict=True))
    num_bytes = [len(text.encode()) for texts in training for text in texts]
    return RecognisedFile(
        revision=revision, file=file, sizes=(sizes[0], sizes[1], sizes[2]), notes=notes, num_items=(num_items[0], num_items[1]),
        num_apart=num_apart,
        text_bytes=sum(num_bytes) / len(num_bytes),
    )  # fmt: skip


def _num_items(layout: Layout, rows: FileRows, sides: Sides, side: int) -> int:
    """Number of distinct anchors, or graded pairs, of a split."""
    width = 2 if layout.shape == "graded" else 1
    return len({texts[:width] for texts, its in zip(rows.texts, sides.of_rows.tolist(), strict=True) if its == side})


def _known_names(options: OwnFileOptions) -> list[str]:
    """Names that identify a header: usual names and those of the user, except for numbers, which name columns without a header."""
    given = {name.strip().casefold() for name in (*(options.columns or ()), options.group or "") if name and not name.strip().isdigit()}
    return sorted(KNOWN_NAMES | given)


def _ways(options: OwnFileOptions, layout: Layout, num_texts: int) -> list[tuple[float | None, int]]:
    """(near, number of linking texts), strictest first."""
    nears = (
        [0.8, None]
        if options.near == "auto" and num_texts <= MOST_FOR_NEAR
        else [None if options.near in ("auto", None) else float(str(options.near))]
    )
    return [(near, num) for near in nears for num in ((3, 2) if layout.shape == "triplets" else (2,))]


def _shares(options: OwnFileOptions, num_rows: int) -> list[tuple[float, float]]:
    """Shares of dev and test, preferred ones first: large groups in a small file may leave less to hold out."""
    auto = [AUTO_SHARES_OF_SMALL, AUTO_SHARES] if num_rows < SMALL else [AUTO_SHARES]
    found = [
        (dev if options.dev == "auto" else float(options.dev), test if options.test == "auto" else float(options.test))
        for dev, test in auto
    ]
    return list(dict.fromkeys(found))


def _first_possible(name: str, rows: FileRows, ways: Sequence[OwnFile], revision: str) -> tuple[OwnFile, Sides]:
    """The strictest settings that leave rows to hold out, and their split; the DataError of the last if none does."""
    for number, file in enumerate(ways):
        try:
            sides = sides_of_file(name, rows, file, revision)
        except DataError:
            if number == len(ways) - 1:
                raise
        else:
            return replace(file, sides=digest_of_sides(sides)), sides
    raise AssertionError("the last way is raised or returned")


def _words_of_reading(
    parts: TableParts | None, file_format: FileFormat, layout: Layout, table: pa.Table, rows: FileRows, scale: tuple[float, float] | None
) -> str:
    unread = [column for column in table.column_names if column not in (*layout.columns, layout.group, layout.split)]
    read = [
        f"{layout.shape} in {listed(layout.columns)}",
        *([] if parts is None else [*parts.notes(), *format_notes(file_format, parts.files[0])]),
        *([_words_of_scores(layout.columns[2], rows.grades, *scale, words_of(grade_cells(table, layout)))] if scale else []),
        *([f"{listed([column or 'unnamed' for column in unread])} not read{_why_unread(table, layout, unread)}"] if unread else []),
        *([_words_of_parting(layout, table.num_rows, rows)] if rows.num_parted else []),
        *([f"{counted(rows.num_empty, 'row')} without a text{' or a score' if scale else ''} left out"] if rows.num_empty else []),
        *([f"{counted(rows.num_headers, 'row')} with the names of the columns left out"] if rows.num_headers else []),
        *([f"{counted(rows.num_repeated, 'repeated row')} left out"] if rows.num_repeated else []),
    ]
    return "; ".join(read)


def _words_of_parting(layout: Layout, num_rows: int, rows: FileRows) -> str:

    what = "positive and negative" if layout.shape == "triplets" else "positive"
    several = counted(rows.num_parted, "row with several", "rows with several")
    return f"{several} read as a row for each {what}: {len(rows.texts):,} rows of {num_rows:,}"


def _sentences_of_sides(layout: Layout, rows: FileRows, sides: Sides, sizes: Sequence[int]) -> Iterator[str]:
    """The number of rows of each split, and warnings."""
    parts = ", ".join(f"{size:,} {side}" for side, size in zip(SIDES, sizes, strict=True))
    by_split = f" (by column {brief(layout.split)})" if layout.split else ""
    largest = f"the largest group has {counted(sides.largest_group, 'row')}"
    yield f"{counted(sum(sizes), 'row')}{by_split}: {parts}, in {counted(sides.num_groups, 'group')}; {largest}"
    if rows.num_otherwise:
        yield f"The score of {counted(rows.num_otherwise, 'repeated row')} differs from the first row of that pair, which is used."
    if sides.num_linked:
        yield (
            f"{counted(sides.num_linked, 'row')} of its own dev and test splits share texts with training rows: "
            "`sentdist leaks` lists them."
        )


def _words_of_scores(column: str, grades: Sequence[float], low: float, high: float, words: Mapping[str, float]) -> str:
    """The scale (a mistyped score widens it), and the counts of few distinct scores, which may be classes."""
    each = Counter(grades)
    if words:
        by_grade = {grade: word for word, grade in reversed([*words.items()])}  # the first word of each
        counts = ", ".join(f"{by_grade[grade]} ({counted(each[grade], 'row')})" for grade in sorted(each))
        return f"{column} read as how alike the texts are, the last most: {counts}"
    counts = ", ".join(f"{grade:g} ({counted(number, 'row')})" for grade, number in sorted(each.items()))
    reading = f"; {column} read as how alike the texts are, the highest most: {counts}" if len(each) <= MOST_COUNTED else ""
    why = ", the narrowest usual scale that contains them: rank correlations do not depend on it, losses that fit the scores do"
    scale = f"scores from {min(grades):g} to {max(grades):g}, on a scale from {low:g} to {high:g}"
    return f"{scale}{'' if {low, high} <= {*grades} else why}{reading}"


def _why_unread(table: pa.Table, layout: Layout, unread: Sequence[str]) -> str:
    if layout.shape == "triplets" and any(is_called_negative(column, surely=True) for column in unread):
        return f" (to read all negatives, name their columns after {layout.columns[2]})"
    for column in unread:
        if column.lower() in GRADES and len(table):
            word = next((str(cell) for cell in table[column].slice(0, 1000).to_pylist() if score_in(str(cell)) is None), None)
            return "" if word is None else f" ({column} holds no numbers: {brief(word)})"
    return ""


def _sentences_of_likeness(options: OwnFileOptions, file: OwnFile, loosened: bool, num_texts: int) -> Iterator[str]:
    """Which links between rows are ignored, and why."""
    if file.shape == "triplets" and file.num_linking < 3:
        yield (
            "Negatives link nearly all rows: rows that share an anchor or a positive stay in one split, but a negative may be in several."
        )
    if options.near == "auto" and file.near is None:
        why = (
            "Too many rows are near-duplicates to keep all of them"
            if loosened
            else f"Among {num_texts:,} texts near-duplicates are not kept"
        )
        yield f"{why} in one split; corpus.held_out.near=0.8 does, with fewer groups."
