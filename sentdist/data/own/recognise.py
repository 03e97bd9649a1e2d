"""Recognise the columns and held-out rows of a user file while planning, with notes for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.data import hub
from sentdist.data.columns import Layout, Named, layout_of, scale_of
from sentdist.data.own.rows import FileRows, OwnFile, digest_of_sides, file_rows, score_cells, sides_of_file
from sentdist.data.own.split import DEV, SIDES, TEST, TRAIN, Sides
from sentdist.data.tables import find_table
from sentdist.errors import DataError, brief, counted, listed

MOST_COUNTED = 7  # distinct scores whose counts are listed
SMALL = 2_000  # rows below which a tenth is too few to compare encoders
AUTO_SHARES = (0.1, 0.1)  # shares of dev and test
AUTO_SHARES_OF_SMALL = (0.15, 0.3)
MOST_FOR_NEAR = 50_000  # distinct texts up to which "auto" looks for near-duplicates: some 20 s


@dataclass(frozen=True, kw_only=True)
class OwnFileOptions:
    """Settings of a recipe for a file.

    Args:
        columns: of each role; None: by usual names.
        encoding: of text; None: UTF-8.
        dev, test: shares of the rows; "auto" depends on the number of rows.
        near: as in `HeldOut`; "auto" looks for near-duplicates among at most 50,000 texts.
    """

    columns: Named | None = None
    encoding: str | None = None
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
        DataError: as in `find_table`, `TableFiles.read`, `layout_of`, `file_rows` and `sides_of`.
    """
    if path is None:
        table, revision, note = hub.read(name, split=None, columns=None, revision=hub_revision), str(hub_revision), ""
    else:
        parts = find_table(name, path, encoding=options.encoding)
        table, revision, note = parts.read(), parts.digest(), parts.note
    layout = layout_of(name, table, options.columns)
    rows = file_rows(name, table, layout)
    low, high = scale_of(rows.grades, score_cells(table, layout)) if layout.shape == "graded" else (None, None)
    num_texts = len({text for row in rows.texts for text in row})
    file = OwnFile(
        encoding=options.encoding, shape=layout.shape, columns=layout.columns, group=layout.group, split=layout.split, low=low, high=high,
        dev=0.0, test=0.0, seed=options.seed, most=options.most, near=None, num_linking=min(3, len(layout.texts)), sides="",
    )  # fmt: skip
    nears, shares = _ways(options, layout, num_texts), _shares(options, len(rows.texts))
    file, sides = _first_possible(
        name, rows, [replace(file, near=near, num_linking=num, dev=dev, test=test) for near, num in nears for dev, test in shares], revision
    )
    sizes = tuple(int((sides.of_rows == side).sum()) for side in (TRAIN, DEV, TEST))
    notes = (
        f"{name}: {'; '.join(_reading(note, layout, table.column_names, table.num_rows, rows, file))}",
        *_split(layout, rows, sides, sizes),
        *_likeness(options, file, (file.near, file.num_linking) != nears[0], num_texts),
    )
    training = [texts for texts, side in zip(rows.texts, sides.of_rows.tolist(), strict=True) if side == TRAIN]
    num_items = [_num_items(layout, rows, sides, side) for side in (DEV, TEST)]
    num_bytes = [len(text.encode()) for texts in training for text in texts]
    return RecognisedFile(
        revision=revision, file=file, sizes=(sizes[0], sizes[1], sizes[2]), notes=notes, num_items=(num_items[0], num_items[1]),
        num_apart=min(len(set(texts)) for texts in zip(*training, strict=True)),
        text_bytes=sum(num_bytes) / len(num_bytes),
    )  # fmt: skip


def _num_items(layout: Layout, rows: FileRows, sides: Sides, side: int) -> int:
    """Number of distinct anchors, or graded pairs, of a split."""
    width = 2 if layout.shape == "graded" else 1
    return len({texts[:width] for texts, its in zip(rows.texts, sides.of_rows.tolist(), strict=True) if its == side})


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


def _reading(note: str, layout: Layout, columns: Sequence[str], num_rows: int, rows: FileRows, file: OwnFile) -> Iterator[str]:
    """How the file is read."""
    yield f"{layout.shape} in {listed(layout.columns)}"
    if note:
        yield note
    if file.low is not None:
        each = sorted(Counter(rows.grades).items())
        rows_of = [f"{grade:g} in {counted(number, 'row')}" for grade, number in each]
        counts = f" ({listed(rows_of)})" if len(each) <= MOST_COUNTED else ""
        yield f"{layout.columns[2]} read as scores from {file.low:g} to {file.high:g}, the highest for texts that are most alike{counts}"
    if unread := [column for column in columns if column not in (*layout.columns, layout.group, layout.split)]:
        yield f"{listed(unread)} not read"
    if len(set(rows.origin)) < len(rows.texts):
        yield f"{len(rows.texts):,} rows of {num_rows:,}: one for each positive or negative in a list"
    if rows.num_empty:
        yield f"{counted(rows.num_empty, 'row')} without a text{' or a score' if file.low is not None else ''} left out"
    if rows.num_repeated:
        yield f"{counted(rows.num_repeated, 'repeated row')} left out"


def _split(layout: Layout, rows: FileRows, sides: Sides, sizes: Sequence[int]) -> Iterator[str]:
    """The number of rows of each split, and linked ones."""
    parts = ", ".join(f"{size:,} {side}" for side, size in zip(SIDES, sizes, strict=True))
    by_split = f" (by column {brief(layout.split)})" if layout.split else ""
    largest = f"the largest group has {counted(sides.largest_group, 'row')}"
    yield f"{counted(sum(sizes), 'row')}{by_split}: {parts}, in {counted(sides.num_groups, 'group')}; {largest}"
    if sides.num_linked:
        yield (
            f"{counted(sides.num_linked, 'row')} of the file's dev and test splits share texts with training rows: "
            "`sentdist plan RECIPE --leaks` lists them."
        )


def _likeness(options: OwnFileOptions, file: OwnFile, loosened: bool, num_texts: int) -> Iterator[str]:
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
