"""`sentdist store`: what is listed, checked, removed and collected is what was asked for, and the exit code says what was found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Train
from sentdist.store.store import RECORD, ArtifactStore
from tests.support.planning import plan_of, small_recipe

STAGES = plan_of(small_recipe()).stages
CORPUS = next(stage for stage in STAGES if stage.kind == "corpus")
TRAIN = next(stage for stage in STAGES if isinstance(stage, Train) and CORPUS in stage.inputs)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """A corpus and a training on it."""
    made = ArtifactStore(tmp_path)
    for stage in (CORPUS, TRAIN):
        with made.staged() as folder:
            (folder / "data.bin").write_bytes(b"0123456789")
            made.commit(stage, folder, seconds=1.0, runtime={}, environment={}, results={})
    return made


@pytest.fixture
def call(store: ArtifactStore) -> Callable[..., Result]:
    return lambda *words, answer=None: CliRunner().invoke(app, ["store", *words, "--store", store.root], input=answer)


def _is_there(store: ArtifactStore, stage: Stage) -> bool:
    return store.at(stage.place) is not None


def _data(store: ArtifactStore, stage: Stage) -> Path:
    return Path(store.base) / stage.place / "data.bin"


def test_one_damaged_artifact_among_others_ends_a_check_with_1(call: Callable[..., Result], store: ArtifactStore) -> None:
    whole = call("check")
    assert whole.exit_code == 0 and "2 artifacts, 20 " in whole.output and "0 damaged." in whole.output and "without" not in whole.output
    _data(store, TRAIN).write_bytes(b"0123456780")
    done = call("check")
    assert done.exit_code == 1 and done.stdout.splitlines()[0].startswith(f"{TRAIN.place}: ") and "2 artifacts" in done.output
    assert done.output.rstrip().endswith("1 damaged.")


@pytest.mark.parametrize(
    ("words", "answer", "code", "left"), [((), "y\n", 0, ()), ((), "", 1, ("corpus", "train")), (("--yes",), None, 0, ())]
)
def test_what_is_removed_is_asked_for_and_takes_what_was_made_from_it_along(
    words: tuple[str, ...], answer: str | None, code: int, left: tuple[str, ...], call: Callable[..., Result], store: ArtifactStore
) -> None:
    done = call("drop", CORPUS.key, *words, answer=answer)
    assert done.exit_code == code, done.output
    assert tuple(stage.kind for stage in (CORPUS, TRAIN) if _is_there(store, stage)) == left
    removed = 2 - len(left)
    if removed:
        assert done.output.splitlines()[:2] == [TRAIN.place, CORPUS.place], "what was made from it goes first"


@pytest.mark.parametrize(("hours", "words", "goes"), [(0.5, (), False), (2, (), True), (2, ("--dry-run",), False)])
def test_what_nobody_has_touched_for_an_hour_is_collected_unless_it_is_only_asked(
    hours: float, words: tuple[str, ...], goes: bool, call: Callable[..., Result], store: ArtifactStore
) -> None:
    (Path(store.base) / CORPUS.place / RECORD).unlink()
    for path in (_data(store, CORPUS), _data(store, CORPUS).parent):
        os.utime(path, (time.time() - 3600 * hours,) * 2)
    done = call("gc", *words)
    assert done.exit_code == 0 and _data(store, CORPUS).exists() != goes, done.output
    number = 1 if hours > 1 else 0
    assert done.output.splitlines()[:-1] == [CORPUS.place] * number and done.output.splitlines()[-1].startswith(f"{number} orphan")
