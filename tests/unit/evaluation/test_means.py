"""A mean needs all of its values."""

from __future__ import annotations

import pytest

from sentdist.evaluation.sts import mean_of_all


@pytest.mark.parametrize(
    ("values", "weights", "mean"),
    [
        ([1.0, 2.0, 6.0], None, 3.0),
        ([1.0, 4.0], [2.0, 1.0], 2.0),
        ([0.0], None, 0.0),
        ([1.0, None], None, None),
        ([None], None, None),
        ([], None, None),
    ],
)
def test_a_mean_is_of_all_values_or_none(values: list[float | None], weights: list[float] | None, mean: float | None) -> None:
    assert mean_of_all(iter(values), weights) == mean
