"""Checkpoints of a training that is lost: two are kept, damage is reported and never resumed from, and none of it stops a training."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sentdist.errors import StoreError
from sentdist.execution.board.submissions import Submission
from sentdist.execution.training.checkpoints import RunningFolder, forget_finished, forget_running, newest_step
from sentdist.execution.training.rank import train_as_first_rank
from sentdist.learning.checkpoint import PROGRESS_FILE, EngineFacts, Progress, read_progress, write_progress
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train_setup import ALONE
from sentdist.store.store import ASIDE, STAGING, ArtifactStore
from sentdist.tracking.tracker import NullRun
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


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    assert _resumed(running) == (None, [])
    for step in (5, 10, 15, 20):
        assert running.save(_write(f"step {step}"), step=step) is None
    assert sorted(path.name for path in (tmp_path / "running" / STAGE.key).iterdir()) == ["00000015", "00000020"]
    assert _resumed(running) == ("step 20", [])
    assert newest_step(ArtifactStore(tmp_path), STAGE) == 20
    assert list((tmp_path / STAGING).iterdir()) == []
    forget_running(ArtifactStore(tmp_path), STAGE)
    assert _resumed(running) == (None, [])


def test_checkpoints_of_what_is_finished_go(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    forget_finished(store, {STAGE.key})
    RunningFolder(store, STAGE, ALONE).save(_write("step 5"), step=5)
    forget_finished(store, {"0123456789abcdef"})
    assert newest_step(store, STAGE) == 5
    forget_finished(store, {STAGE.key})
    assert newest_step(store, STAGE) is None and list((tmp_path / "running").iterdir()) == []


@pytest.mark.parametrize(
    "damage", [_flip, _halve, Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_text("[" * 200_000)]
)
@pytest.mark.parametrize("name", ["inner/weights", "progress.json", "seal-00000.json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    for step in (5, 10):
        running.save(_write(f"step {step}"), step=step)
    folder = tmp_path / "running" / STAGE.key / "00000010"
    damage(folder / name)
    found, (note,) = _resumed(running)
    assert found == "step 5"
    assert "step 10" in note
    assert not folder.exists()
    if "not written to its end" not in note:
        (aside,) = (tmp_path / ASIDE).iterdir()
        assert str(aside) in note
    assert _resumed(running) == ("step 5", [])  # reported once


def test_a_damaged_checkpoint_that_cannot_be_moved_aside_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = ArtifactStore(tmp_path), list[str]()
    running = RunningFolder(store, STAGE, ALONE)
    for step in (5, 10):
        running.save(_write(f"step {step}"), step=step)
    _flip(tmp_path / "running" / STAGE.key / "00000010" / "inner" / "weights")

    def stays(place: str, reason: str) -> str:
        asked.append(place)
        assert len(asked) == 1, "it is looked at again and again"
        return "it could not be moved aside"

    monkeypatch.setattr(store, "set_aside", stays)
    text, (note,) = _resumed(running)
    assert text == "step 5" and note.startswith("the checkpoint of step 10") and note.endswith("it could not be moved aside")


def test_when_none_is_whole_it_begins_anew(tmp_path: Path) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    for step in (5, 10):
        running.save(_write(f"step {step}"), step=step)
        _flip(tmp_path / "running" / STAGE.key / f"{step:08d}" / "inner" / "weights")
    found, notes = _resumed(running)
    assert found is None and len(notes) == 2
    assert running.save(_write("anew"), step=3) is None
    assert _resumed(running) == ("anew", [])


def test_one_that_does_not_fit_is_moved_aside_and_the_loader_begins_anew(tmp_path: Path) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    for step in (5, 10):
        running.save(_write(f"step {step}"), step=step)
    seen: list[int] = []

    def load(folder: Path) -> str | None:
        seen.append(int(folder.name))
        return "of another engine" if seen == [10] else None

    step, (note,) = running.resume(load)
    assert (step, seen) == (5, [10, 5])
    assert "of another engine" in note


def test_a_disk_that_cannot_be_read_for_a_moment_costs_no_checkpoint(tmp_path: Path) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    running.save(_write("whole"), step=5)

    def fails(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(StoreError, match=r"stays where it is"):
        running.resume(fails)
    assert _resumed(running) == ("whole", [])


@pytest.mark.parametrize("file", ["seal-00000.json", PROGRESS_FILE])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_file_of_a_checkpoint_that_cannot_be_read_for_a_moment_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, number: int
) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    running.save(lambda folder: write_progress(folder, Progress(step=5), EngineFacts(engine="torch", zero_stage=0, world_size=1)), step=5)
    real = Path.read_text

    def fails(path: Path, *rest: Any, **named: Any) -> str:
        if path.name == file:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *rest, **named)

    def read(folder: Path) -> None:
        read_progress(folder)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", fails)
        with pytest.raises(StoreError, match=r"stays where it is"):
            running.resume(read)
    assert running.resume(read) == (5, [])


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("PytorchStreamWriter failed writing file data/0")]
)
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before_it(tmp_path: Path, error: Exception) -> None:
    running = RunningFolder(ArtifactStore(tmp_path), STAGE, ALONE)
    running.save(_write("before"), step=5)

    def fails(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    problem = running.save(fails, step=10)
    assert problem is not None and ("no space left" in problem or "failed writing" in problem)
    assert _resumed(running) == ("before", [])
    assert list((tmp_path / STAGING).iterdir()) == []


def _on_ranks(store: ArtifactStore, world_size: int, act: Callable[[RunningFolder, int], Any]) -> list[Any]:
    return on_ranks(world_size, lambda ranks: act(RunningFolder(store, STAGE, ranks), ranks.rank))


def _save_share(step: int) -> Callable[[RunningFolder, int], str | None]:
    def save(running: RunningFolder, rank: int) -> str | None:
        return running.save(lambda folder: (folder / f"share-{rank}").write_text(f"{rank} at {step}") and None, step=step)

    return save


def _resume_shares(running: RunningFolder, rank: int) -> tuple[int | None, list[str]]:
    return running.resume(lambda found: None)


@pytest.mark.parametrize("damaged_rank", [0, 1, 2])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_damage_of_any_ranks_share_is_seen_by_all_ranks_of_any_world(tmp_path: Path, damaged_rank: int, world_size: int) -> None:
    store = ArtifactStore(tmp_path)
    for step in (5, 10):
        assert _on_ranks(store, 3, _save_share(step)) == [None] * 3
    assert _on_ranks(store, world_size, _resume_shares) == [(10, [])] * world_size
    _flip(tmp_path / "running" / STAGE.key / "00000010" / f"share-{damaged_rank}")
    results = _on_ranks(store, world_size, _resume_shares)
    assert {step for step, _ in results} == {5}
    assert all(f"share-{damaged_rank}" in note for _, (note,) in results)


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


# A whole training, its checkpoint damaged in every way, resumed by the code that a cluster runs.


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Any:
    """A training that was lost after step 4 with two checkpoints, and the weights of an undisturbed one; a copy for each test."""
    threads = torch.get_num_threads()
    data = write_data(tmp_path_factory.mktemp("data"))
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "checkpoint_every_s": 1e-9, "log_every": 1})

    def place(store: Path) -> tuple[Train, Context]:
        plan, context = tiny_plan(values, data=data, store=store)
        return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is not None and not stage.banks), context

    stage, whole = place(tmp_path_factory.mktemp("whole"))
    build_here(stage.corpus, whole)
    train_as_first_rank(stage, Submission(context=whole), RecordingSink(), NullRun())
    begun = tmp_path_factory.mktemp("begun")
    stage, context = place(begun)
    build_here(stage.corpus, context)
    with pytest.raises(HostLost):
        train_as_first_rank(stage, Submission(context=context), RecordingSink(lost_at=4), NullRun())

    def copy(target: Path) -> tuple[Train, Context, Path]:
        shutil.copytree(begun, target)
        stage, context = place(target)
        return stage, context, target / "running" / stage.key

    yield copy, _weights(stage, whole)
    torch.set_num_threads(threads)


def _weights(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    artifact = context.store.get(stage)
    assert artifact is not None
    return load_file(context.store.folder(artifact) / "model.safetensors")


FILES = ["best.pt", "engine.pt", "history.jsonl", "progress.json", "rng-00000.pt", "seal-00000.json"]


@pytest.mark.in_turns
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "both"), [(_flip, False), (_halve, False), (Path.unlink, False), (lambda path: path.write_bytes(b""), False), (_halve, True)]
)
def test_every_damage_of_a_real_checkpoint_ends_in_the_parameters_of_an_undisturbed_training(
    interrupted: Any, tmp_path: Path, name: str, damage: Callable[[Path], None], both: bool
) -> None:
    copy, expected = interrupted
    stage, context, running = copy(tmp_path / "store")
    folders = sorted(running.iterdir())
    assert len(folders) == 2
    for folder in folders if both else folders[1:]:
        assert set(FILES) <= {path.name for path in folder.iterdir()}
        damage(folder / name)
    sink = RecordingSink()
    train_as_first_rank(stage, Submission(context=context), sink, NullRun())
    reported = [event.what_happened for event in sink.reported if event.what == "resumed"]
    assert ("starts over" in reported[-1]) == both and len(reported) == (3 if both else 2)
    found = _weights(stage, context)
    for weight, value in expected.items():
        torch.testing.assert_close(found[weight], value, rtol=0, atol=0)


def test_a_checkpoint_of_another_engine_is_reported_and_the_training_begins_anew(interrupted: Any, tmp_path: Path) -> None:
    copy, expected = interrupted
    stage, context, running = copy(tmp_path / "store")
    for folder in running.iterdir():
        progress = (folder / "progress.json").read_text()
        shutil.rmtree(folder / "inner", ignore_errors=True)
        changed = progress.replace('"engine": "torch"', '"engine": "deepspeed"')
        assert changed != progress

        def write(target: Path, source: Path = folder, changed: str = changed) -> None:
            for path in source.iterdir():
                if not path.name.startswith("seal"):
                    shutil.copy(path, target)
            (target / "progress.json").write_text(changed)

        RunningFolder(context.store, stage, ALONE).save(write, step=int(folder.name))
    sink = RecordingSink()
    train_as_first_rank(stage, Submission(context=context), sink, NullRun())
    reported = [event.what_happened for event in sink.reported if event.what == "resumed"]
    assert "the deepspeed engine" in reported[0] and "moved to" in reported[0] and "starts over" in reported[-1]
    found = _weights(stage, context)
    for weight, value in expected.items():
        torch.testing.assert_close(found[weight], value, rtol=0, atol=0)
