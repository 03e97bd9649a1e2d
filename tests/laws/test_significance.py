"""What holds for tests of significance where no system is better than another: they err as rarely as they say."""

from __future__ import annotations

import pytest

from rayjobs.benchmarks.calibration import by_items_alone, by_seeds_alone, errors
from rayjobs.benchmarks.null_worlds import NullWorld


@pytest.mark.parametrize(("items_over_seeds", "expected"), [(2.0, 0.23), (4.0, 0.48)])
def test_seeds_alone_err_where_items_vary(items_over_seeds: float, expected: float) -> None:
    """Why a test must ask both: over 3 seeds Welch's stars are false in 23 and 48 of 100 cases (20,000 tables elsewhere)."""
    world = NullWorld(items_over_seeds=items_over_seeds, num_items=100)
    assert errors(by_seeds_alone, world, count=1500).one_row == pytest.approx(expected, abs=0.05)


def test_items_alone_err_where_seeds_vary_or_items_belong_together() -> None:
    assert errors(by_items_alone, NullWorld(items_over_seeds=0.5, num_items=100, interaction=0.0), count=600).one_row > 0.3
    assert errors(by_items_alone, NullWorld(items_over_seeds=4.0, num_items=200, group_size=20), count=600).one_row > 0.3


def test_many_rows_err_more_often_than_one() -> None:
    """With 30 equal rows over 3 seeds and items that hardly vary, some row had a star in every third table."""
    found = errors(by_seeds_alone, NullWorld(num_rows=30, items_over_seeds=0.01, num_items=20), count=300)
    assert found.any_row > 0.25
