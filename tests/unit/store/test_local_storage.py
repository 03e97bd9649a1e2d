"""A store whose file system is taken away under a run: nothing is written to the folder that is left, and it goes on when it is back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.store.store import ArtifactStore


def _staged(store: ArtifactStore) -> None:
    with store.staged():
        pass


WRITES: dict[str, Callable[[ArtifactStore], object]] = {
    "makes an artifact": _staged,
    "writes a file": lambda store: store.files.write_text("sweeps/one.json", "{}"),
    "adds a line": lambda store: store.files.append_line("searches/one/log.jsonl", "{}"),
    "writes a folder": lambda store: store.files.write_folder(Path(__file__).parent, "reports/one"),
    "asks whether it can": lambda store: store.check_writable(),
    "moves aside": lambda store: store.set_aside("train/one", "damaged"),
}


def test_a_store_that_was_taken_away_takes_nothing(tmp_path: Path) -> None:
    for is_sent in [False, True]:
        for leaves in ["an empty folder", "nothing"]:
            for what in WRITES:
                root = tmp_path / "volume" / "store"
                store = ArtifactStore(root)
                store.check_writable()
                store = pickle.loads(pickle.dumps(store)) if is_sent else store
                away = root if leaves == "an empty folder" else root.parent
                away.rename(tmp_path / "away")
                root.parent.mkdir(exist_ok=True)
                if leaves == "an empty folder":
                    root.mkdir()

                with pytest.raises(StoreError, match=r"no \.staging in it any more.*Was its file system unmounted"):
                    WRITES[what](store)
                assert not list(root.rglob("*"))
                assert root.exists() == (leaves == "an empty folder")

                for path in (root, root.parent):
                    if path.exists() and path.stem == away.stem:
                        path.rmdir()
                (tmp_path / "away").rename(away)
                store.files.write_text("sweeps/one.json", "{}")
                assert (root / "sweeps" / "one.json").read_text() == "{}"


def test_a_store_is_made_by_the_first_who_writes_it(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(ArtifactStore(tmp_path / "new" / "store")))
    store.files.write_text("sweeps/one.json", "{}")
    assert store.files.read_text("sweeps/one.json") == "{}"


def test_an_artifact_that_went_with_its_store_is_not_said_to_be_lost(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    stage = RowsCorpus(source="toy", source_revision="1")
    with store.staged() as folder:
        (folder / "rows").write_text("all")
        artifact = store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreError, match="Was its file system unmounted"):
        store.folder(artifact, "rows")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux has a folder that takes none")
def test_a_store_where_no_folder_can_be_made_is_not_said_to_have_gone() -> None:
    with pytest.raises(StoreError, match=r"/proc/store: found a place where no folder can be made.*Name another: --store"):
        ArtifactStore("/proc/store").check_writable()
