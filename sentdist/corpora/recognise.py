"""Recognise the columns and held-out rows of a user file while planning, with notes for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from sentdist.corpora.own_rows import FileRows, digest_of_sides, file_rows, score_cells, sides_of_file
from sentdist.data import hub
from sentdist.data.columns import Layout, layout_of, scale_of
from sentdist.data.split import DEV, SIDES, TEST, TRAIN, Sides
from sentdist.data.tables import find_table
from sentdist.errors import DataError, brief, counted, listed
from sentdist.recipe.resolver import OwnPin
from sentdist.recipe.specs import HeldOutSection, OwnFileSection, OwnRows
from sentdist.recipe.stages import tokens_in

MOST_COUNTED = 7  # distinct scores whose counts are listed
SMALL = 2_000  # rows below which a tenth is too few to compare encoders
AUTO_SHARES = (0.1, 0.1)  # of dev and test
AUTO_SHARES_OF_SMALL = (0.15, 0.3)
MOST_FOR_NEAR = 50_000  # distinct texts up to which "auto" looks for near-duplicates: some 20 s


def recognise(name: str, path: Path | None, section: OwnFileSection) -> OwnPin:
    """Recognise a file and choose its held-out rows.

    Args:
        path: a file, or a folder of its parts; None for a data set of the hub.

    Raises:
        DataError: as in `find_table`, `TableFiles.read`, `layout_of`, `file_rows` and `sides_of`.
    """
    if path is None:
        table, revision, note = hub.read(name, revision=section.revision), str(section.revision), ""
    else:
        parts = find_table(name, path, encoding=section.encoding)
        table, revision, note = parts.read(), parts.digest(), parts.note
    layout = layout_of(name, table, section.columns)
    rows = file_rows(name, table, layout)
    low, high = scale_of(rows.grades, score_cells(table, layout)) if layout.shape == "graded" else (None, None)
    num_texts = len({text for row in rows.texts for text in row})
    held_out = section.held_out
    ways = list(product(_nears(held_out, num_texts), (3, 2) if layout.shape == "triplets" else (2,), _shares(held_out, len(rows.texts))))
    own, sides = _first_possible(
        name, rows, revision,
        [
            OwnRows(
                encoding=section.encoding, shape=layout.shape, columns=layout.columns, group=layout.group, split=layout.split, low=low,
                high=high, dev=dev, test=test, seed=held_out.seed, most=held_out.most, near=near, num_linking=num_linking, sides="",
            )
            for near, num_linking, (dev, test) in ways
        ],
    )  # fmt: skip
    training, dev_rows, test_rows = (
        [texts for texts, its in zip(rows.texts, sides.of_rows.tolist(), strict=True) if its == side] for side in (TRAIN, DEV, TEST)
    )
    num_bytes = [len(text.encode()) for texts in training for text in texts]
    width = 2 if layout.shape == "graded" else 1  # texts of an item: a graded pair, or an anchor
    sizes = (len(training), len(dev_rows), len(test_rows))
    return OwnPin(
        name=name,
        revision=revision,
        rows=own,
        num_rows=len(training),
        num_apart=min(len(set(texts)) for texts in zip(*training, strict=True)),
        num_dev=len({texts[:width] for texts in dev_rows}),
        num_test=len({texts[:width] for texts in test_rows}),
        tokens=tokens_in(sum(num_bytes) / len(num_bytes)),
        notes=(
            f"{name}: {'; '.join(_reading(note, layout, table.column_names, table.num_rows, rows, own))}",
            *_split(layout, sides, sizes),
            *_likeness(held_out, own, num_texts),
        ),
    )


def _nears(held_out: HeldOutSection, num_texts: int) -> list[float | None]:
    """From which similarity texts are near-duplicates, preferred one first; None: they are not looked for."""
    if held_out.near != "auto":
        return [held_out.near]
    return [0.8, None] if num_texts <= MOST_FOR_NEAR else [None]


def _shares(held_out: HeldOutSection, num_rows: int) -> list[tuple[float, float]]:
    """Shares of dev and test, preferred ones first: large groups in a small file may leave less to hold out."""
    found = [
        (dev if held_out.dev == "auto" else held_out.dev, test if held_out.test == "auto" else held_out.test)
        for dev, test in ([AUTO_SHARES_OF_SMALL, AUTO_SHARES] if num_rows < SMALL else [AUTO_SHARES])
    ]
    return list(dict.fromkeys(found))


def _first_possible(name: str, rows: FileRows, revision: str, ways: Sequence[OwnRows]) -> tuple[OwnRows, Sides]:
    """The strictest settings that leave rows to hold out, and their split; the DataError of the last if none does."""
    for own in ways[:-1]:
        try:
            sides = sides_of_file(name, rows, own, revision)
        except DataError:
            continue
        return own.model_copy(update={"sides": digest_of_sides(sides)}), sides
    sides = sides_of_file(name, rows, ways[-1], revision)
    return ways[-1].model_copy(update={"sides": digest_of_sides(sides)}), sides


def _reading(note: str, layout: Layout, columns: Sequence[str], num_rows: int, rows: FileRows, own: OwnRows) -> Iterator[str]:
    """How the file is read."""
    yield f"{layout.shape} in {listed(layout.columns)}"
    if note:
        yield note
    if own.low is not None:
        each = sorted(Counter(rows.grades).items())
        rows_of = listed([f"{grade:g} in {counted(number, 'row')}" for grade, number in each])
        counts = f" ({rows_of})" if len(each) <= MOST_COUNTED else ""
        yield f"{layout.columns[2]} read as scores from {own.low:g} to {own.high:g}, the highest for texts that are most alike{counts}"
    if unread := [column for column in columns if column not in (*layout.columns, layout.group, layout.split)]:
        yield f"{listed(unread)} not read"
    if len(set(rows.origin)) < len(rows.texts):
        yield f"{len(rows.texts):,} rows of {num_rows:,}: one for each positive or negative in a list"
    if rows.num_empty:
        yield f"{counted(rows.num_empty, 'row')} without a text{' or a score' if own.low is not None else ''} left out"
    if rows.num_repeated:
        yield f"{counted(rows.num_repeated, 'repeated row')} left out"


def _split(layout: Layout, sides: Sides, sizes: Sequence[int]) -> Iterator[str]:
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


def _likeness(held_out: HeldOutSection, own: OwnRows, num_texts: int) -> Iterator[str]:
    """Which links between rows are ignored."""
    if own.shape == "triplets" and own.num_linking < 3:
        yield "Negatives link nearly all rows: rows that share an anchor or a positive stay in one split, a negative may be in several."
    if held_out.near == "auto" and own.near is None:
        yield f"Near-duplicates among {num_texts:,} texts are not kept in one split; corpus.held_out.near=0.8 does, with fewer groups."
