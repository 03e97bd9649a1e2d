"""Checkpoints of a training that is lost: two are kept, damage is reported and never resumed from, and none of it stops a training."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sentdist.recipe.stages import Train
from sentdist.run.checkpoints import RunningFolder, forget_finished
from sentdist.run.rank import train_as_first_rank
from sentdist.run.submissions import Submission
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train_setup import ALONE
from sentdist.store.store import ASIDE, STAGING, ArtifactStore
from sentdist.tracking.tracker import Run
from tests.support.lost_training import HostLost, RecordingSink
from tests.support.planning import plan_of, small_recipe
from tests.support.rank_threads import on_ranks
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _stage() -> Train:
    return next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))


STAGE = _stage()


def _write(text: str) -> Callable[[Path], None]:
    def into(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "weights").write_text(text)
        (folder / "progress.json").write_text("{}")

    return into


def _resumed(running: RunningFolder) -> tuple[str | None, list[str]]:
    """What the weights of the checkpoint say that was gone on from, and the notes."""
    loaded: list[str] = []
    step, notes = running.resume(lambda folder: loaded.append((folder / "inner" / "weights").read_text()))
    return (loaded[-1] if step is not None else None), notes


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _on_ranks(store: ArtifactStore, world_size: int, act: Callable[[RunningFolder, int], Any]) -> list[Any]:
    return on_ranks(world_size, lambda ranks: act(RunningFolder(store, STAGE, ranks), ranks.rank))


def _save_share(step: int) -> Callable[[RunningFolder, int], str | None]:
    def save(running: RunningFolder, rank: int) -> str | None:
        return running.save(lambda folder: (folder / f"share-{rank}").write_text(f"{rank} at {step}") and None, step=step)

    return save


def _weights(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    artifact = context.store.get(stage)
    assert artifact is not None
    return load_file(context.store.folder(artifact) / "model.safetensors")


def _resume_shares(running: RunningFolder, rank: int) -> tuple[int | None, list[str]]:
    return running.resume(lambda found: None)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Any:
    """A training that was lost after step 4 with two checkpoints, and the weights of an undisturbed one; a copy for each test."""
    threads = torch.get_num_threads()
    data = write_data(tmp_path_factory.mktemp("data"))
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "checkpoint_every_s": 1e-9, "log_every": 1})

    def trained(store: Path, lost_at: int | None) -> tuple[Train, Context]:
        plan, context = tiny_plan(values, data=data, store=store)
        stage = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is not None and not stage.banks)
        if not context.store.has(stage.corpus):
            build_here(stage.corpus, context)
            with pytest.raises(HostLost) if lost_at else nullcontext():
                train_as_first_rank(stage, Submission(context=context), RecordingSink(lost_at=lost_at), Run())
        return stage, context

    whole, begun = trained(tmp_path_factory.mktemp("whole"), None), tmp_path_factory.mktemp("begun")
    trained(begun, 4)

    def copy(target: Path) -> tuple[Train, Context, Path]:
        shutil.copytree(begun, target)
        stage, context = trained(target, 4)
        return stage, context, target / "running" / stage.key

    yield copy, _weights(*whole)
    torch.set_num_threads(threads)


def _of_another_engine(folder: Path, store: ArtifactStore, stage: Train) -> None:
    """The checkpoint as DeepSpeed would have sealed it."""

    def write(target: Path) -> None:
        shutil.copytree(folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("seal*"))
        changed = (folder / "progress.json").read_text().replace('"engine": "torch"', '"engine": "deepspeed"')
        (target / "progress.json").write_text(changed)

    RunningFolder(store, stage, ALONE).save(write, step=int(folder.name))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("inner/weights", _flip),
        ("inner/weights", Path.unlink),
        ("progress.json", lambda path: path.write_bytes(b"")),
        ("seal-00000.json", lambda path: path.write_text("[" * 200_000)),
    ],
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    for step in (5, 10):
        running.save(_write(f"step {step}"), step=step)
    folder = tmp_path / "running" / STAGE.key / "00000010"
    damage(folder / name)
    found, (note,) = _resumed(running)
    assert found == "step 5" and "step 10" in note and not folder.exists()
    if "not written to its end" not in note:
        (aside,) = (tmp_path / ASIDE).iterdir()
        assert str(aside) in note
    assert _resumed(running) == ("step 5", [])  # reported once
    _flip(tmp_path / "running" / STAGE.key / "00000005" / "inner" / "weights")
    found, notes = _resumed(running)
    assert found is None and len(notes) == 1, "when none is whole it begins anew"
    assert running.save(_write("anew"), step=3) is None and _resumed(running) == ("anew", [])


def test_a_rank_that_cannot_write_stops_no_other(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    assert _on_ranks(store, 2, _save_share(5)) == [None, None]

    def save(running: RunningFolder, rank: int) -> str | None:
        def write(folder: Path) -> None:
            if rank == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            (folder / "share-0").write_text("0")

        return running.save(write, step=10)

    problems = _on_ranks(store, 2, save)
    assert all(problem is not None and "no space left" in problem for problem in problems)
    assert _on_ranks(store, 2, _resume_shares) == [(5, [])] * 2


@pytest.mark.parametrize(("name", "both"), [("engine.pt", False), ("rng-00000.pt", False), ("history.jsonl", True), (None, True)])
def test_every_damage_of_a_real_checkpoint_ends_in_the_parameters_of_an_undisturbed_training(
    interrupted: Any, tmp_path: Path, name: str | None, both: bool
) -> None:
    """None: nothing is damaged, and the checkpoints are those of another engine."""
    copy, expected = interrupted
    stage, context, running = copy(tmp_path / "store")
    folders = sorted(running.iterdir())
    assert len(folders) == 2
    for folder in folders if both else folders[1:]:
        if name is None:
            _of_another_engine(folder, context.store, stage)
        else:
            _flip(folder / name)
    sink = RecordingSink()
    train_as_first_rank(stage, Submission(context=context), sink, Run())
    (reported,) = [event.what_happened for event in sink.reported if event.what == "resumed"]
    assert ("starts over" in reported) == both and reported.count("is of no use") == (2 if both else 1)
    assert name is not None or "the deepspeed engine" in reported
    found = _weights(stage, context)
    for weight, value in expected.items():
        torch.testing.assert_close(found[weight], value, rtol=0, atol=0)


def test_two_checkpoints_are_kept_until_the_training_is_finished(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    running = RunningFolder(store, STAGE, ALONE)
    assert _resumed(running) == (None, [])
    for step in (5, 10, 15, 20):
        assert running.save(_write(f"step {step}"), step=step) is None
    assert sorted(path.name for path in (tmp_path / "running" / STAGE.key).iterdir()) == ["00000015", "00000020"]
    assert _resumed(running) == ("step 20", [])
    assert list((tmp_path / STAGING).iterdir()) == []
    forget_finished(store, {"0123456789abcdef"})
    assert (tmp_path / "running" / STAGE.key / "00000020").exists()
    forget_finished(store, {STAGE.key})
    assert list((tmp_path / "running").iterdir()) == []
    running.save(_write("step 5"), step=5)
    forget_finished(store, {STAGE.key})
    assert _resumed(running) == (None, [])
