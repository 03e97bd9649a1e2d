"""What figures of a sweep are labelled with."""

from __future__ import annotations

import pytest

from sentdist.report.sweep_drawings import dev_unit


@pytest.mark.parametrize(
    ("task", "unit"),
    [
        ("scenes-sts-dev", "scenes-sts-dev (Spearman × 100)"),
        ("stsb-dev", "stsb-dev (Spearman × 100)"),
        ("stackfaq", "stackfaq (MAP × 100)"),
    ],
)
def test_dev_scores_carry_the_name_of_the_recipes_task(task: str, unit: str) -> None:
    recipe = {"selection": {"task": task}}
    assert dev_unit(recipe) == unit  # type: ignore[arg-type]
