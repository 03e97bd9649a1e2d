"""The power may fail at any moment: what was said to be done is there, and what is there is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.recipe.stages import Train
from sentdist.run.checkpoints import RunningFolder
from sentdist.stages.train_setup import ALONE
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
from tests.support.power_loss import Disk, disk_at

CORPORA = [RowsCorpus(source="nli/triplets", source_revision="r", limit=limit) for limit in (10, 20, 30)]
PLAN = plan_of(small_recipe())
TRAIN = next(stage for stage in PLAN.stages if isinstance(stage, Train))


def _commit_three(disk: Disk) -> None:
    store = ArtifactStore(disk.root / "store")
    for number, corpus in enumerate(CORPORA):
        with store.staged() as folder:
            (folder / "inner").mkdir()
            (folder / "inner" / "data.bin").write_bytes(bytes([number]) * 5000)
            (folder / "facts.json").write_text("{}")
            store.commit(corpus, folder, seconds=0.0, runtime={}, environment={}, results={})
        disk.promise()


def _broken_artifacts(disk: Disk, folder: Path) -> list[str]:
    """What is wrong in what each power loss leaves."""
    wrong = []
    for number, remains in enumerate(disk.remains):
        store = ArtifactStore(remains.lay_out(folder) / "store")
        wrong += [f"{number}: {artifact.record.place}: {found}" for artifact in store.artifacts() if (found := store.damage(artifact))]
        missing = [corpus for corpus in CORPORA[: remains.num_promised] if not store.has(corpus)]
        wrong += [f"{number}: {corpus.place} is gone" for corpus in missing]
    return wrong


def _save_three(disk: Disk) -> None:
    running = RunningFolder(ArtifactStore(disk.root / "store"), TRAIN, ALONE)
    for step in (5, 10, 15):

        def write(folder: Path, step: int = step) -> None:
            (folder / "deepspeed").mkdir()
            (folder / "deepspeed" / "share.pt").write_bytes(bytes([step]) * 5000)
            (folder / "progress.json").write_text(str(step))

        assert running.save(write, step=step) is None
        disk.promise()


def _broken_checkpoints(disk: Disk, folder: Path) -> list[str]:
    wrong = []
    for number, remains in enumerate(disk.remains):
        loaded: list[int] = []
        running = RunningFolder(ArtifactStore(remains.lay_out(folder) / "store"), TRAIN, ALONE)
        step, notes = running.resume(lambda found, loaded=loaded: loaded.append(int((found / "progress.json").read_text())))
        promised = 5 * remains.num_promised
        if (step or 0) < promised or loaded[-1:] != ([] if step is None else [step]):
            wrong.append(f"{number}: step {step} after {promised} was promised")
        wrong += [f"{number}: {note}" for note in notes if "not written to its end" not in note]
    return wrong


def test_a_training_goes_on_from_the_last_checkpoint_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with disk_at(tmp_path / "disk", monkeypatch) as disk:
        _save_three(disk)
    assert len(disk.remains) > 20
    assert _broken_checkpoints(disk, tmp_path / "after") == []


@pytest.mark.parametrize(("work", "broken"), [(_commit_three, _broken_artifacts), (_save_three, _broken_checkpoints)])
def test_the_simulation_sees_a_sync_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Disk], None], broken: Callable[[Disk, Path], list[str]]
) -> None:
    with disk_at(tmp_path / "disk", monkeypatch, ignores_fsync=True) as disk:
        work(disk)
    assert broken(disk, tmp_path / "after")
