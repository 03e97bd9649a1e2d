"""Two processes at one place of a store: whatever the second meets between two steps of its own, what stands there is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.store import object_storage
from sentdist.store import store as store_module
from sentdist.store.garbage import collect_garbage, orphans
from sentdist.store.store import STAGING, Artifact, ArtifactStore

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")


class Interrupted(fs.SubTreeFileSystem):  # type: ignore[misc]
    """A folder in the part of an object store; another process works `between` two requests of this one, once."""

    between: Callable[[], object] | None = None

    def _work(self) -> None:
        work, self.between = self.between, None
        if work is not None:
            work()

    def open_output_stream(self, path: str, *arguments: Any, **options: Any) -> Any:
        self.create_dir(str(Path(path).parent), recursive=True)  # an object needs none
        return super().open_output_stream(path, *arguments, **options)

    def delete_file(self, path: str) -> None:
        super().delete_file(path)
        self._work()

    def delete_dir(self, path: str) -> None:
        self._work()
        super().delete_dir(path)

    def move(self, source: str, target: str) -> None:
        super().move(source, target)
        self._work()


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    filesystem = Interrupted(str(tmp_path), fs.LocalFileSystem())
    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(store_module, "open_root", lambda _: (filesystem, "bucket"))
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    return ArtifactStore("s3://bucket")


@pytest.fixture(params=["local", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    found: ArtifactStore = request.getfixturevalue("objects") if request.param == "objects" else ArtifactStore(tmp_path / "store")
    return found


def _commit(store: ArtifactStore, writer: str) -> Artifact:
    with store.staged() as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "model.bin").write_text(writer)
        return store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={"writer": writer})


def _assert_whole(store: ArtifactStore, writer: str) -> None:
    found = store.get(CORPUS)
    assert found is not None and found.record.results == {"writer": writer}
    assert store.damage(found) is None
    assert (store.folder(found) / "inner" / "model.bin").read_text() == writer
    assert store.open_file(f"{found.record.place}/inner/model.bin").read().decode() == writer


def test_who_copies_while_another_one_is_done_touches_nothing_of_his(objects: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write_objects, seen = object_storage.write_objects, []

    def writing(*arguments: Any) -> None:
        if not seen:  # the second has looked, and found nothing
            seen.append(True)
            _commit(objects, "first")
        write_objects(*arguments)

    monkeypatch.setattr(object_storage, "write_objects", writing)
    assert _commit(objects, "second").record.results == {"writer": "first"}
    _assert_whole(objects, "first")
    (_, *more) = objects.filesystem.get_file_info(fs.FileSelector(f"bucket/{CORPUS.place}"))
    assert len(more) == 1, "the record and the files of one"


def test_what_a_killed_writer_has_copied_goes_with_the_garbage(objects: ArtifactStore) -> None:
    objects.filesystem.create_dir(f"bucket/{CORPUS.place}/data-0123456789ab")
    objects.files.write_text(f"{CORPUS.place}/data-0123456789ab/model.bin", "half")
    artifact = _commit(objects, "whole")
    left = [f"{CORPUS.place}/data-0123456789ab"]
    assert orphans(objects) == []
    assert collect_garbage(objects, older_than_s=-1) == left
    assert orphans(objects, older_than_s=-1) == []
    assert objects.get(CORPUS) == artifact
    _assert_whole(objects, "whole")


def test_what_is_built_again_while_it_is_dropped_stays(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = _commit(store, "old")
    steps: list[bool] = []

    def again() -> None:
        steps.append(True)
        _commit(store, "new")

    if store.is_shared:
        rmtree = shutil.rmtree

        def removing(path: Path, **options: Any) -> None:
            if not steps and STAGING in str(path):
                again()
            rmtree(path, **options)

        monkeypatch.setattr(shutil, "rmtree", removing)
    else:
        store.filesystem.between = again
    store.drop(artifact)
    assert steps
    _assert_whole(store, "new")


def test_what_is_built_again_while_it_is_moved_aside_stays(objects: ArtifactStore) -> None:
    artifact = _commit(objects, "damaged")

    def another_process() -> None:
        shutil.rmtree(Path(str(objects.filesystem.base_path)) / "bucket" / artifact.record.place)
        _commit(objects, "new")

    objects.filesystem.between = another_process
    assert "moved to" in objects.set_aside(artifact.record.place, "damaged")
    _assert_whole(objects, "new")
