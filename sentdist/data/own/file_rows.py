"""Extract the distinct rows of a user file; warn about mis-encoded texts and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sentdist.data.cells import is_invisible, row_name
from sentdist.data.own.columns import grades_of
from sentdist.data.own.shapes import Layout, Shape
from sentdist.errors import DataError, brief, counted


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """Everything that determines the rows read from a file of known content. The plan has a value of the same fields.

    Args:
        shape, columns, group, split: as in `Layout`.
        low, high: scale of the scores; None without scores.
        dev, test, seed, most, near: as in `HeldOut`.
        num_linking: number of leading texts of a row that link it to other rows.
        sides: digest of the split of the rows, so that a key pins exactly these rows.
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
class FileRows:
    """The R distinct rows of a file.

    Args:
        texts: (R,) the texts of each row.
        grades: (R,) on the scale of the file; () without scores.
        num_repeated, num_empty, num_headers: rows left out; headers repeat the column names, for example in concatenated files.
        num_otherwise: repeated rows whose grade differs from that of the row that is kept.
        num_parted: rows of the file with several positives or negatives, read as several rows.
        origin: (R,) number of the file's row that each row comes from.
    """

    texts: tuple[tuple[str, ...], ...]
    grades: tuple[float, ...]
    group: tuple[str, ...] | None
    split: tuple[str, ...] | None
    num_repeated: int
    num_empty: int
    num_headers: int
    num_otherwise: int
    num_parted: int
    origin: tuple[int, ...]


def file_rows(name: str, table: pa.Table, layout: Layout, place: Callable[[int], str] = row_name) -> FileRows:
    """Return the distinct rows with a text in each column; a row with several positives or negatives becomes one row for each."""
    cells = [table[column].to_pylist() for column in layout.texts]
    grades = grades_of(name, layout.columns[2], grade_cells(table, layout), place) if layout.shape == "graded" else []
    kept: dict[tuple[str, ...], int] = {}
    num_empty = num_headers = num_otherwise = num_repeated = num_parted = 0
    for row, found in enumerate(zip(*cells, strict=True)):
        if all(isinstance(cell, str) and cell.strip() == column for cell, column in zip(found, layout.texts, strict=True)):
            num_headers += 1
            continue
        parted = _parted(found) if not (grades and math.isnan(grades[row])) else []
        num_empty += not parted
        num_parted += len(parted) > 1
        for texts in parted:
            first = kept.setdefault(texts, row)
            num_otherwise += bool(grades) and grades[first] != grades[row]
            num_repeated += 1
    num_repeated -= len(kept)
    if not kept:
        raise DataError(where=name, found="no row with all its texts", expected="texts", remedy="Name other columns: corpus.columns.")
    of = {
        column: ["" if cell is None else str(cell) for cell in table[column].to_pylist()]
        for column in (layout.group, layout.split)
        if column
    }
    return FileRows(
        texts=tuple(kept),
        grades=tuple(grades[row] for row in kept.values()) if grades else (),
        group=None if layout.group is None else tuple(of[layout.group][row] for row in kept.values()),
        split=None if layout.split is None else tuple(of[layout.split][row] for row in kept.values()),
        num_repeated=num_repeated,
        num_empty=num_empty,
        num_headers=num_headers,
        num_otherwise=num_otherwise,
        num_parted=num_parted,
        origin=tuple(kept.values()),
    )


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


def grade_cells(table: pa.Table, layout: Layout) -> list[object]:
    """Return the cells of the score column, None for rows that repeat the column names."""
    columns = [table[column].to_pylist() for column in layout.columns]
    return [None if row == layout.columns else row[2] for row in zip(*columns, strict=True)]


_MARKS = "\xa0«»‘’“”‚„…•–—‹›"  # may follow a word in capitals that ends in Ã, such as AMANHÃ…
_SECOND = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"  # the second byte of a UTF-8 character, read as cp1252
_CAPITAL = "A-ZÀ-ÖØ-Þ"
SPOILT = re.compile(
    f"(?<![{_CAPITAL}])[ÃÂ][{_SECOND}]|(?<=[{_CAPITAL}])[ÃÂ](?:[{_MARKS}](?=\\w)|(?![{_MARKS}])[{_SECOND}])|â€[™œ\x9d“”¦˜]|\ufffd"
)
_TAGS = "a|b|blockquote|br|code|div|em|h[1-6]|hr|i|img|li|ol|p|pre|small|span|strong|sub|sup|table|tbody|td|th|thead|tr|u|ul"
HTML = re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]*)?/?>|&(?:[a-z]{{2,8}}|#\d{{1,6}}|#x[0-9a-f]{{1,5}});", re.IGNORECASE)
LEAST_HTML = 0.01  # share of the texts that is no accident; at least three texts


def remarks(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield warnings about texts that were decoded wrongly or contain HTML."""
    texts = [text for row in rows for text in row]
    spoilt = [(text, match.start()) for text in texts if (match := SPOILT.search(text))]
    if spoilt:
        text, place = spoilt[0]
        word = text[max(0, place - 20) : place].split(" ")[-1] + text[place : place + 20].split(" ")[0]
        yield f"{counted(len(spoilt), 'text')} with characters like {brief(word)}, decoded wrongly earlier: export them again as UTF-8."
    marked = [(text, match) for text in texts if ("<" in text or "&" in text) and (match := HTML.search(text))]
    if len(marked) >= max(3, LEAST_HTML * len(texts)):
        text, match = marked[0]
        around = text[max(0, match.start() - 20) : match.end() + 20]
        yield (
            f"{counted(len(marked), 'text')} with HTML, such as {brief(match[0])} in {brief(around)}: it is read as it is. "
            "Remove it, unless the texts that you will encode contain it, too."
        )
