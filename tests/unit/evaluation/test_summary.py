"""The summary of scores over seeds, by hand."""

from __future__ import annotations

import pytest

from sentdist.errors import DataError
from sentdist.evaluation.significance import summarize


def test_summary_and_its_interval_by_hand() -> None:
    found = summarize([80.0, 82.0, 84.0])
    assert (found.mean, found.sd, found.num_seeds) == (82.0, 2.0, 3)
    # t(0.975, 2) = 4.303 from any table; 4.303 · 2 / √3 = 4.968.
    assert (found.low, found.high) == pytest.approx((82 - 4.968, 82 + 4.968), abs=1e-3)


def test_one_seed_has_no_spread() -> None:
    found = summarize([80.0])
    assert (found.mean, found.sd, found.low, found.high, found.num_seeds) == (80.0, None, None, None, 1)


@pytest.mark.parametrize("scores", [[], [80.0, float("nan")]])
def test_what_has_no_mean_is_refused(scores: list[float]) -> None:
    with pytest.raises(DataError, match="Leave out runs"):
        summarize(scores)
