"""The optimism of a chosen trial; means of scores."""

from __future__ import annotations

import pytest

from sentdist.evaluation.significance import optimism, summarize
from sentdist.evaluation.sts import mean_of_all


def test_optimism_is_what_chose_minus_what_fresh_seeds_give() -> None:
    found = optimism(80.0, [78.0, 79.0, 80.0])
    # t(0.975, 2) = 4.303 from any table; 4.303 · 1 / √3 = 2.484.
    assert (found.points, found.num_fresh) == (1.0, 3)
    assert (found.low, found.high) == pytest.approx((1 - 2.484, 1 + 2.484), abs=1e-3)
    assert not found.is_significant
    assert optimism(80.0, [77.0, 77.1, 76.9]).is_significant and optimism(70.0, [77.0, 77.1, 76.9]).is_significant, "above or below"
    alone = optimism(80.0, [79.0])
    assert (alone.points, alone.low, alone.is_significant) == (1.0, None, False)


def test_a_mean_is_of_all_values_or_none() -> None:
    assert (mean_of_all(iter([1.0, 2.0, 6.0])), mean_of_all([0.0])) == (3.0, 0.0)
    assert [mean_of_all(values) for values in ([1.0, None], [None], [])] == [None] * 3


def test_summary_and_its_interval_by_hand() -> None:
    found, alone = summarize([80.0, 82.0, 84.0]), summarize([80.0])
    assert (found.mean, found.sd, found.num_seeds) == (82.0, 2.0, 3)
    # t(0.975, 2) = 4.303 from any table; 4.303 · 2 / √3 = 4.968.
    assert (found.low, found.high) == pytest.approx((82 - 4.968, 82 + 4.968), abs=1e-3)
    assert (alone.mean, alone.sd, alone.low, alone.high, alone.num_seeds) == (80.0, None, None, None, 1)
