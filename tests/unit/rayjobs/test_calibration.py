"""The page on how often the test of significance errs is written, and its models are as equal as they say."""

from __future__ import annotations

import numpy as np
import pytest

from rayjobs.benchmarks.null_models import NullModel


def test_luck_has_mean_zero_and_the_standard_errors_that_are_asked_for() -> None:
    for luck in ["skewed"]:
        model = NullModel(luck=luck, num_items=40, items_over_seeds=2.0, num_seeds=4)  # type: ignore[arg-type]
        scores = np.concatenate([tables.mean(axis=(2, 3)) for tables in model.tables(2000, np.random.default_rng(0))])
        moved = scores[:, 1] - scores[:, 0]
        expected = np.sqrt(2 / 4 * (1 + 2.0**2))  # two systems, four seeds of variance 1, items twice as much again
        assert moved.std() == pytest.approx(expected, rel=0.06) and abs(moved.mean()) < 4 * expected / 2000**0.5
