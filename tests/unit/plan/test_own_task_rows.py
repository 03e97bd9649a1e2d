"""A plan says how many rows a task of one's own has."""

from __future__ import annotations

from tests.support.planning import plan_of, small_recipe


def test_rows_of_a_task_of_ones_own_are_reported_once() -> None:
    for task, unit in [("sts=my/data@test", "rows"), ("pairs=my/data", "rows"), ("retrieval=my/bank", "judgements")]:
        methods = {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}}
        notes = plan_of(small_recipe(evaluation={"tasks": ["scenes-sts", task]}, methods=methods)).notes
        reported = [note for note in notes if note.startswith(f"{task}: ")]
        assert len(reported) == 1 and reported[0].endswith(f" {unit}") and reported[0].split()[1].replace(",", "").isdigit()
        assert not any("scenes" in note for note in notes)
