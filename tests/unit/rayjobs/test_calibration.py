"""The page on how often the test of significance errs is written, and its models are as equal as they say."""

from __future__ import annotations

import numpy as np
import pytest

from rayjobs.benchmarks.calibration_page import Curve, picture
from rayjobs.benchmarks.null_measures import MEASURES, false_positives
from rayjobs.benchmarks.null_models import NullModel


@pytest.mark.parametrize("luck", ["normal", "skewed", "bimodal"])
def test_luck_has_mean_zero_and_the_standard_errors_that_are_asked_for(luck: str) -> None:
    model = NullModel(luck=luck, num_items=40, items_over_seeds=2.0, num_seeds=4)  # type: ignore[arg-type]
    scores = np.concatenate([tables.mean(axis=(2, 3)) for tables in model.tables(2000, np.random.default_rng(0))])
    moved = scores[:, 1] - scores[:, 0]
    expected = np.sqrt(2 / 4 * (1 + 2.0**2))  # two systems, four seeds of variance 1, items twice as much again
    assert moved.std() == pytest.approx(expected, rel=0.06) and abs(moved.mean()) < 4 * expected / 2000**0.5


@pytest.mark.in_turns
@pytest.mark.parametrize("measure", list(MEASURES))
def test_every_measure_keeps_the_level_on_thirty_items(measure: str) -> None:
    """100 tables: 5 % is counted as 5 ± 2.2."""
    assert false_positives(measure, num_items=30, count=100) <= 0.11


def test_clusters_of_a_few_labels_keep_the_level_for_single_encoders() -> None:
    """200 tables: 5 % is counted as 10 ± 3.1. By derivatives of the V-measure it was 14.5 %."""
    assert false_positives("V-measure of 5", num_items=30, count=200, num_seeds=1) <= 0.09


def test_the_picture_has_every_share() -> None:
    drawn = picture(
        [Curve(label="seeds and items", places=(1.0, 2.0), shares=(0.04, 0.05))],
        [Curve(label="some mark", places=(1, 10), shares=(0.04, 0.03))],
    )
    assert drawn.table.splitlines()[1:] == ["seeds and items,1,0.04", "seeds and items,2,0.05", "some mark,1,0.04", "some mark,10,0.03"]
