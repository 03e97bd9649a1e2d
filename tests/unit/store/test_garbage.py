"""What goes and what stays: garbage of a store, scratch folders, copies of remote artifacts; never what somebody may still be writing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.recipe.stages import Train
from sentdist.store import garbage
from sentdist.store.garbage import ELSEWHERE_KEPT_S, UNFINISHED_KEPT_S, collect_garbage, orphans
from sentdist.store.local_storage import remove_left, scratch_folder
from sentdist.store.object_storage import IN_USE_S, make_room
from sentdist.store.store import STAGING, ArtifactStore
from tests.support.planning import plan_of, small_recipe

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
TRAIN = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
HOUR_S = 3600.0


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
    _age(folder, 2 * HOUR_S)
    assert orphans(store) == []
    _age(folder, UNFINISHED_KEPT_S + 60)
    assert orphans(store) == [f"running/{TRAIN.key}"]
    _age(folder, 2 * HOUR_S)
    place = _commit(store, TRAIN)
    assert collect_garbage(store) == [f"running/{TRAIN.key}"]
    assert not folder.exists() and store.at(place) is not None


def test_what_a_living_process_or_another_machine_writes_stays(store: ArtifactStore) -> None:
    with store.staged() as folder:
        (folder / "shards").mkdir()
        _age(folder, 10 * ELSEWHERE_KEPT_S)
        assert collect_garbage(store, older_than_s=-1) == [] and folder.exists()
        elsewhere = folder.with_name(folder.name.replace("~", "~other-host-", 1))
    elsewhere.mkdir()
    _age(elsewhere, 2 * HOUR_S)
    assert orphans(store) == []
    _age(elsewhere, ELSEWHERE_KEPT_S + 60)
    assert orphans(store) == [f"{STAGING}/{elsewhere.name}"]


def test_what_is_finished_by_then_stays(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.files.write_text(f"{CORPUS.place}/half.bin", "half")
    listed = orphans(store, older_than_s=-1)
    assert listed == [CORPUS.place]
    _commit(store, CORPUS)
    monkeypatch.setattr(garbage, "orphans", lambda *_, **__: listed)
    assert collect_garbage(store) == [] and store.has(CORPUS)


STARTED = """
import sys
from pathlib import Path
from sentdist.store.local_storage import scratch_folder

with scratch_folder(Path(sys.argv[1]), "tune") as folder:
    (folder / "file").write_text("left")
    print(folder, flush=True)
    sys.stdin.read()  # until it is killed, or the test fails
"""


def _start(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", STARTED, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "somebody elses").mkdir()
    killed, left = _start(tmp_path)
    living, kept = _start(tmp_path)
    with killed, living:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        elsewhere = tmp_path / kept.name.replace("~", "~other-host-", 1).replace(f"~{living.pid}~", f"~{killed.pid}~")
        elsewhere.mkdir()
        (tmp_path / f"{left.name[:-8]}00000000").symlink_to(tmp_path)
        with scratch_folder(tmp_path, "tune") as mine:
            assert not left.exists()
            names = {path.name for path in tmp_path.iterdir() if not path.is_symlink()}
            assert names == {"somebody elses", kept.name, elsewhere.name, mine.name}
        assert not mine.exists()
        living.send_signal(signal.SIGKILL)
        living.wait()
    assert remove_left(tmp_path) == [kept]


def test_old_copies_go_first_until_what_is_wanted_fits_and_a_tenth_of_the_disk_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, age_s in {"oldest": 4.0, "older": 3.0, "old": 2.0, "used": 0.5}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(b"w" * 1000)
        os.utime(tmp_path / name, (1e9 - age_s * IN_USE_S,) * 2)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(total=10_000, free=5_200 - 1_000 * len(list(folder.iterdir())))
    )
    assert make_room(tmp_path, 200, now=1e9) == []
    assert make_room(tmp_path, 2_200, now=1e9) == [tmp_path / "oldest", tmp_path / "older"]
    assert make_room(tmp_path, 10_000, now=1e9) == [tmp_path / "old"], "one that was used today stays"
