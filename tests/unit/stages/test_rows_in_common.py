"""Which rows of own files count, and how often, is shown while planning: rows that two files share, and splits that are scored together."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.task_names import OWN_KINDS
from sentdist.stages.tasks import load
from tests.unit.stages.test_task_contents import GOOD, HEADS, plan_here, recipe_of, write


def _write_overlapping(kind: str, root: Path) -> int:
    """KIND and a copy `other` with half of its rows; how many items both have."""
    write(kind, GOOD[kind], root)
    half = len(GOOD[kind]) // 2
    other = [*GOOD[kind][:half], *(row.replace("text", "new").replace("what", "why").replace("q", "p") for row in GOOD[kind][half:])]
    (root / f"my/other-{kind}.csv").write_text("\n".join([HEADS[kind], *other]) + "\n")
    return half // 2 if kind == "reranking" else half


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", [kind for kind in OWN_KINDS if TASK_KINDS[kind].chooses and kind != "retrieval"])
def test_rows_that_two_dev_files_share_are_reported(
    kind: str, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = _write_overlapping(kind, tmp_path)
    recipe = recipe_of(tiny_encoder_dir, selection={"task": f"{kind}=my/{kind}+{kind}=my/other-{kind}"})
    (note,) = [note for note in plan_here(recipe, tmp_path).notes if "in common" in note]
    assert note == (
        f"selection.task: {kind}-my-{kind} and {kind}-my-other-{kind} have {shared} rows of their {2 * shared} and {2 * shared} in common: "
        "their mean, which chooses checkpoints, counts them in each."
    )

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(load, "load_task", refuse)
    assert note in plan_here(recipe, tmp_path).notes


def test_rows_that_two_test_files_share_are_reported_once(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    shared = _write_overlapping("sts", tmp_path)
    tasks: Json = {"tasks": ["sts=my/sts", "scenes-sts", "sts=my/other-sts"]}
    notes = [note for note in plan_here(recipe_of(tiny_encoder_dir, evaluation=tasks), tmp_path).notes if "in common" in note]
    assert [note.partition(" have ")[2] for note in notes] == [
        f"{shared} rows of their 12 and 12 in common: an average counts them in each, and its interval takes them for one group."
    ]


def test_a_dev_file_beside_a_test_file_is_no_mean(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """What they share is a leak, which is counted elsewhere."""
    _write_overlapping("sts", tmp_path)
    recipe = recipe_of(tiny_encoder_dir, selection={"task": "sts=my/sts"}, evaluation={"tasks": ["sts=my/other-sts"]})
    assert not [note for note in plan_here(recipe, tmp_path).notes if "in common" in note]


def test_a_file_with_splits_of_which_none_is_named_is_scored_whole_and_says_so(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Training rows were scored in silence beside those of test."""
    (tmp_path / "my").mkdir()
    rows = "".join(f"text {n}\tanother {n}\t{n % 4}\t{('train', 'test', 'dev')[n % 3]}\n" for n in range(12))
    (tmp_path / "my/sts.tsv").write_text("sentence1\tsentence2\tscore\tsplit\n" + rows)
    whole = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["sts=my/sts"]})
    note = "sts=my/sts: 12 rows, of all splits (train, test, dev): sts=my/sts@test scores one alone"
    assert note in plan_here(whole, tmp_path).notes
    part = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["sts=my/sts@test"]})
    assert "sts=my/sts@test: 4 rows" in plan_here(part, tmp_path).notes
