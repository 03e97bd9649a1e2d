"""Scores of a person's own table as people and spreadsheets write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sentdist.data.own.columns import grades_of, score_in
from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.errors import DataError


@pytest.mark.parametrize(
    ("text", "number"),
    [("45%", 0.45), ("7 %", 0.07), (" 12,5\xa0% ", 0.125), ("100%", 1.0), ("0.45", 0.45), ("%", None), ("45%%", None), ("four%", None)],
)
def test_a_percentage_is_a_share(text: str, number: float | None) -> None:
    assert score_in(text) == number


def test_scores_in_percent_are_scores(tmp_path: Path) -> None:
    """The first of them was called no number."""
    path = tmp_path / "own.csv"
    path.write_text("a,b,match\n" + "".join(f"one {n},other {n},{'' if n == 3 else f'{n % 11}0%'}\n" for n in range(60)))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert (found.file.shape, found.file.low, found.file.high) == ("graded", 0.0, 1.0) and "1 row without" in found.notes[0]


@pytest.mark.parametrize("cells", [["45%", "7"], [None, "0", "", "10 %", "20%"]])
def test_scores_of_which_some_are_in_percent_are_reported(cells: Sequence[object]) -> None:
    with pytest.raises(DataError, match=r"found '(45|10 )%' in row .* and '.' in row .; expected all in percent, or none"):
        grades_of("own.csv", "score", cells)
