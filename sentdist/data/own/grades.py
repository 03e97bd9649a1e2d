"""The scores in a person's own table: cells as numbers, and the scale that they are on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sentdist.data.cells import number_in, row_name
from sentdist.data.graded import NLI_LABELS, NO_GOLD
from sentdist.errors import DataError, brief

SCALES = ((0.0, 1.0), (1.0, 5.0), (-1.0, 1.0), (0.0, 5.0), (1.0, 7.0), (1.0, 10.0), (0.0, 10.0), (0.0, 100.0))
YES_NO: Mapping[str, float] = {"no": 0.0, "n": 0.0, "nein": 0.0, "yes": 1.0, "y": 1.0, "ja": 1.0}
PERCENT, DECIMALS = "%", 12  # 7 % is 0.07, not 0.07000000000000001


def scale_of(name: str, column: str, cells: Sequence[object]) -> tuple[float, float]:
    """The scale that scores are on: the narrowest of the usual ones that holds them, else their own range.

    Raises:
        DataError: scores that are all one.
    """
    numbers = [number for number in grades_of(name, column, cells) if not math.isnan(number)]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 0.0)
    if low == high:
        found = f"{low:g} in every row" if numbers else "no score in any row"
        raise DataError(where=f"{name}, {column}", found=found, expected="scores that differ", remedy="Name the column of the scores.")
    if words_of(cells) is NLI_LABELS:
        return 0.0, 2.0
    usual = [scale for scale in SCALES if scale[0] <= low and high <= scale[1]]
    return min(usual, key=lambda scale: scale[1] - scale[0], default=(low, high))


def words_of(cells: Sequence[object]) -> Mapping[str, float]:
    """The words that scores are: those of NLI labels where one is, yes and no where all are; none for numbers."""
    found = {cell.strip().casefold() if isinstance(cell, str) else None for cell in cells if not _is_nothing(cell)}
    if found & NLI_LABELS.keys():
        return NLI_LABELS
    return YES_NO if found and found <= YES_NO.keys() else {}


def grades_of(name: str, column: str, cells: Sequence[object], place: Callable[[int], str] = row_name) -> list[float]:
    """Scores as numbers, NaN where there is none: with a point or a comma, all or none in percent, or the words of NLI labels, or yes and
    no alone. DataError for anything else. place: where a person finds a row."""
    _check_percent(name, column, cells, place)
    words = words_of(cells)
    are_some = bool(words) or any(score_in(str(cell)) is not None for cell in cells)
    return [_grade(name, column, row, cell, place, words, are_some) for row, cell in enumerate(cells)]


def score_in(text: str) -> float | None:
    """`number_in`, and 45% as 0.45."""
    plain = text.strip()
    if not plain.endswith(PERCENT):
        return number_in(plain)
    number = number_in(plain[:-1])
    return None if number is None else round(number / 100, DECIMALS)


def _check_percent(name: str, column: str, cells: Sequence[object], place: Callable[[int], str]) -> None:
    """Refuse 45% beside 45: the latter may be the same, or 100 times as much."""
    kinds: dict[bool, int] = {}
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and score_in(cell) is not None:
            kinds.setdefault(cell.strip().endswith(PERCENT), row)
            if len(kinds) > 1:
                break
    if len(kinds) > 1:
        raise DataError(
            where=f"{name}, {column}",
            found=f"{brief(cells[kinds[True]])} in {place(kinds[True])} and {brief(cells[kinds[False]])} in {place(kinds[False])}",
            expected="all in percent, or none",
            remedy="Write the scores in one way.",
        )


def _grade(
    name: str, column: str, row: int, cell: object, place: Callable[[int], str], words: Mapping[str, float], are_some: bool
) -> float:
    """are_some: whether other cells hold scores."""
    if _is_nothing(cell):
        return math.nan
    text = str(cell).strip().casefold()
    if text in words:
        return words[text]
    if words is NLI_LABELS and text in NO_GOLD:
        return math.nan
    number = score_in(text)
    if number is None:
        expected = f"a number, a percentage, or one of {', '.join(NLI_LABELS)}; or yes or no in each row"
        raise DataError(
            where=f"{name}, {column}",
            found=f"{brief(cell)} in {place(row)}",
            expected=expected,
            remedy="Correct the row or leave it out."
            if are_some
            else "Write numbers in their place, higher for texts that are more alike.",
        )
    return number


def _is_nothing(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and math.isnan(cell))
