"""A mean needs all of its values; the summary of scores over seeds, by hand."""

from __future__ import annotations

import pytest

from sentdist.evaluation.means import mean_of_all
from sentdist.evaluation.summary import summarize


def test_a_mean_is_of_all_values_or_none() -> None:
    assert (mean_of_all(iter([1.0, 2.0, 6.0]), None), mean_of_all([1.0, 4.0], [2.0, 1.0]), mean_of_all([0.0], None)) == (3.0, 2.0, 0.0)
    assert [mean_of_all(values, None) for values in ([1.0, None], [None], [])] == [None] * 3


def test_summary_and_its_interval_by_hand() -> None:
    found, alone = summarize([80.0, 82.0, 84.0]), summarize([80.0])
    assert (found.mean, found.sd, found.num_seeds) == (82.0, 2.0, 3)
    # t(0.975, 2) = 4.303 from any table; 4.303 · 2 / √3 = 4.968.
    assert (found.low, found.high) == pytest.approx((82 - 4.968, 82 + 4.968), abs=1e-3)
    assert (alone.mean, alone.sd, alone.low, alone.high, alone.num_seeds) == (80.0, None, None, None, 1)
