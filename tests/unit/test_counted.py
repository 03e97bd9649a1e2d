"""Counts in words."""

from __future__ import annotations

import pytest

from sentdist.errors import counted


@pytest.mark.parametrize(
    ("number", "noun", "plural", "reported"),
    [
        (0, "trial", None, "0 trials"),
        (1, "trial", None, "1 trial"),
        (2000, "query", "queries", "2,000 queries"),
        (1, "query", "queries", "1 query"),
    ],
)
def test_a_count_agrees_with_its_noun(number: int, noun: str, plural: str | None, reported: str) -> None:
    assert counted(number, noun, plural) == reported
