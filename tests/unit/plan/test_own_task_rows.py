"""A plan says how many rows a task of one's own has."""

from __future__ import annotations

import pytest

from tests.support.planning import plan_of, small_recipe


@pytest.mark.parametrize(("task", "unit"), [("sts=my/data@test", "rows"), ("pairs=my/data", "rows"), ("retrieval=my/bank", "judgements")])
def test_rows_of_a_task_of_ones_own_are_reported_once(task: str, unit: str) -> None:
    methods = {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}}
    notes = plan_of(small_recipe(evaluation={"tasks": ["scenes-sts", task]}, methods=methods)).notes
    reported = [note for note in notes if note.startswith(f"{task}: ")]
    assert len(reported) == 1 and reported[0].endswith(f" {unit}") and reported[0].split()[1].replace(",", "").isdigit()
    assert not any("scenes" in note for note in notes)
