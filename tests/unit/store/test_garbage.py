"""What `sentdist store gc` takes: what nobody needs any more, also of checkpoints; never what somebody may still be writing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stages import Train
from sentdist.store import garbage
from sentdist.store import local_storage as scratch
from sentdist.store.garbage import ELSEWHERE_KEPT_S, UNFINISHED_KEPT_S, collect_garbage, orphans
from sentdist.store.store import STAGING, ArtifactStore
from tests.support.planning import plan_of, small_recipe

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
TRAIN = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path)


def _commit(store: ArtifactStore, stage: RowsCorpus | Train) -> str:
    with store.staged() as folder:
        (folder / "data.bin").write_bytes(b"data")
        return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={}).record.place


def _age(folder: Path, seconds: float) -> None:
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - seconds,) * 2)


def test_checkpoints_of_a_finished_training_go_and_those_of_one_that_may_go_on_stay_for_a_month(store: ArtifactStore) -> None:
    store.files.write_text(f"running/{TRAIN.key}/00000100/weights", "w")
    store.files.write_text("running/shoes/list.txt", "somebody else's")
    _age(Path(store.base) / "running" / "shoes", 10 * UNFINISHED_KEPT_S)
    folder = Path(store.base) / "running" / TRAIN.key
    _age(folder, 2 * 3600.0)
    assert orphans(store) == []
    _age(folder, UNFINISHED_KEPT_S + 60)
    assert orphans(store) == [f"running/{TRAIN.key}"]
    _age(folder, 2 * 3600.0)
    place = _commit(store, TRAIN)
    assert collect_garbage(store) == [f"running/{TRAIN.key}"]
    assert not folder.exists() and store.at(place) is not None


@pytest.mark.parametrize("fresh", ["a.bin", "b.bin", "c.bin"])
def test_a_folder_is_as_young_as_the_newest_of_its_files(fresh: str, store: ArtifactStore) -> None:
    folder = Path(store.base) / CORPUS.place
    for name in ("a.bin", "b.bin", "c.bin"):
        store.files.write_text(f"{CORPUS.place}/{name}", "")
    _age(folder, 2 * 3600.0)
    assert orphans(store) == [CORPUS.place]
    os.utime(folder / fresh)
    assert orphans(store) == []


def test_a_folder_that_a_living_process_writes_stays_however_long_nothing_changes_in_it(store: ArtifactStore) -> None:
    with store.staged() as folder:
        (folder / "shards").mkdir()
        _age(folder, 10 * ELSEWHERE_KEPT_S)
        assert collect_garbage(store, older_than_s=-1) == []
        assert folder.exists()


def test_a_folder_of_another_machine_s_process_stays_for_a_day(store: ArtifactStore) -> None:
    with store.staged() as folder:
        elsewhere = folder.with_name(folder.name.replace("~", "~other-host-", 1))
    elsewhere.mkdir()
    _age(elsewhere, 2 * 3600.0)
    assert orphans(store) == []
    _age(elsewhere, ELSEWHERE_KEPT_S + 60)
    assert orphans(store) == [f"{STAGING}/{elsewhere.name}"]


def test_another_boot_with_the_same_name_is_another_machine(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two virtual machines made of one image are, with one store."""
    monkeypatch.setattr(scratch, "BOOT_ID", Path(store.base) / "boot_id")
    scratch._machine.cache_clear()
    names = []
    for boot in ("0a1b2c3d-0000", "4e5f6a7b-0000"):
        (Path(store.base) / "boot_id").write_text(f"{boot}\n")
        scratch._machine.cache_clear()
        with store.staged() as folder:
            names.append(folder.name.replace(f"~{os.getpid()}~", "~4194303~"))  # no such process here
        (folder.parent / names[-1]).mkdir()
    scratch.remove_left(folder.parent)
    scratch._machine.cache_clear()
    assert [path.name for path in folder.parent.iterdir()] == names[:1]


def test_what_is_gone_by_then_is_passed_over(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("probe-1", "probe-2"):
        store.files.write_text(f"{STAGING}/{name}", "")
    store.files.write_text(f"{STAGING}/abandoned/half.bin", "half")
    listed = orphans(store, older_than_s=-1)
    (Path(store.base) / STAGING / "probe-1").unlink()
    (Path(store.base) / STAGING / "abandoned" / "half.bin").unlink()
    (Path(store.base) / STAGING / "abandoned").rmdir()
    monkeypatch.setattr(garbage, "orphans", lambda *_, **__: listed)
    assert collect_garbage(store) == [f"{STAGING}/probe-2"]


def test_what_is_finished_by_then_stays(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.files.write_text(f"{CORPUS.place}/half.bin", "half")
    listed = orphans(store, older_than_s=-1)
    assert listed == [CORPUS.place]
    _commit(store, CORPUS)
    monkeypatch.setattr(garbage, "orphans", lambda *_, **__: listed)
    assert collect_garbage(store) == []
    assert store.has(CORPUS)
