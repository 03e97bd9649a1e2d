"""Tests in turns: a third each day, all of them within three."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.turns import NUM_TURNS, others


@dataclass(frozen=True)
class Collected:
    """What is asked of a collected test."""

    nodeid: str
    is_in_turns: bool = True
    turn: int | None = None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        assert name == "in_turns"
        mark = pytest.mark.in_turns() if self.turn is None else pytest.mark.in_turns(self.turn)
        return mark.mark if self.is_in_turns else None


CASES = [Collected(f"tests/a.py::test_cases[{number}-[]]") for number in range(7)]
NAMED = [Collected(f"tests/c{turn}.py::test_long", turn=turn) for turn in range(NUM_TURNS)]
SINGLE = [Collected("tests/b.py::test_one"), Collected("tests/b.py::Group::test_two")]
ALWAYS = [Collected("tests/a.py::test_always", is_in_turns=False), Collected("tests/b.py::test_cases[1]", is_in_turns=False)]


@pytest.mark.parametrize("first_day", [0, 20786])
def test_each_runs_once_in_three_days_and_what_is_unmarked_always(first_day: int) -> None:
    items = [*ALWAYS[:1], *CASES, *SINGLE, *NAMED, *ALWAYS[1:]]
    days = [[item for item in items if item not in others(items, day)] for day in range(first_day, first_day + NUM_TURNS)]
    for item in items:
        assert sum(item in kept for kept in days) == (1 if item.is_in_turns else NUM_TURNS), item
    for kept in days:
        assert len(set(CASES) & set(kept)) in {2, 3}, "each day has some cases of a test"
        assert len(set(SINGLE) & set(kept)) in {0, 2}, "tests of one file without cases run together"
        assert len(set(NAMED) & set(kept)) == 1
