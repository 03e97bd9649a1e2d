"""Files of the tasks that ship are looked at while planning, before anything is trained: damaged ones are refused, short ones reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import DataError
from sentdist.plan.tasks import TASKS
from sentdist.stages.tasks import load
from tests.support.tasks_data import write_table
from tests.unit.stages.test_task_contents import plan_here, recipe_of

PAIR: dict[str, object] = {"split": "test", "sentence1": "a dog", "sentence2": "a cat", "score": 2.0}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        ("stsb", [PAIR, PAIR | {"score": 9.0}], "score 9.0 in row 2; expected a number from 0 to 5"),
        ("stsb", [{**PAIR, "label": 1.0} | {"score": None}, PAIR | {"sentence2": ""}], "empty sentence2"),
        ("stsb", [{"split": "test", "s1": "a", "s2": "b", "score": 1.0}], "sentence1"),
        ("mr", [{"text": f"film {n}", "label": 1} for n in range(30)], "one label"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_training(
    task: str, rows: list[dict[str, object]], message: str, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    write_table(tmp_path, TASKS[task].source, rows)
    with pytest.raises(DataError, match=message):
        plan_here(recipe_of(tiny_encoder_dir, evaluation={"tasks": [task]}), tmp_path)
    if task == "stsb":
        write_table(tmp_path, TASKS[task].source, [row | {"split": "dev"} for row in rows])
        with pytest.raises(DataError, match=message):
            plan_here(recipe_of(tiny_encoder_dir, selection={"task": "stsb-dev"}), tmp_path)


def test_a_broken_page_is_found_though_header_and_end_are_whole(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write_table(tmp_path, "sts/stsb", [PAIR | {"sentence1": f"a dog {n}", "score": float(n % 5)} for n in range(1379)])
    file = tmp_path / "sts/stsb.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:4000] + b"\0" * 400 + whole[4400:])
    with pytest.raises(DataError, match=r"sts/stsb.*cannot be read"):
        plan_here(recipe_of(tiny_encoder_dir, evaluation={"tasks": ["stsb"]}), tmp_path)


@pytest.mark.parametrize(("num_rows", "is_reported"), [(1378, True), (1379, False)])
def test_a_set_that_is_smaller_than_it_was_published_is_reported(
    num_rows: int, is_reported: bool, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path, "sts/stsb", [PAIR | {"sentence1": f"a dog {n}", "score": float(n % 5)} for n in range(num_rows)])
    recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["stsb"]})
    said = f"stsb: {num_rows:,} items, where the published set has 1,379: its scores are not those of stsb elsewhere."
    assert (said in plan_here(recipe, tmp_path).notes) is is_reported

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(load, "load_task", refuse)
    assert (said in plan_here(recipe, tmp_path).notes) is is_reported


def test_labelled_rows_are_counted_with_those_of_the_classifier(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    rows = [{"split": "test" if n < 40 else "train", "text": f"what is {n}", "label": n % 2} for n in range(100)]
    write_table(tmp_path, TASKS["trec"].source, rows)  # type: ignore[arg-type]
    (note,) = [note for note in plan_here(recipe_of(tiny_encoder_dir, evaluation={"tasks": ["trec"]}), tmp_path).notes if "trec" in note]
    assert note.startswith("trec: 100 items, where the published set has 5,952")


@pytest.mark.data
def test_no_shipped_set_that_is_whole_is_called_small(tiny_encoder_dir: Path, data_root: Path, tmp_path: Path) -> None:
    tasks = [name for name, card in TASKS.items() if card.role != "dev" and list(data_root.glob(f"{card.source}*"))]
    planned = plan_here(recipe_of(tiny_encoder_dir, evaluation={"tasks": tasks}), data_root)
    assert not [note for note in planned.notes if "published" in note]
