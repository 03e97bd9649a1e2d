"""Two processes at one place of an object store: whatever the second meets between two of its requests, what stands there is whole."""

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
from sentdist.store.store import Artifact, ArtifactStore

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


def _commit(store: ArtifactStore, writer: str) -> Artifact:
    with store.staged() as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "model.bin").write_text(writer)
        return store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={"writer": writer})


def _assert_whole(store: ArtifactStore, writer: str) -> None:
    found = store.get(CORPUS)
    assert found is not None and found.record.results == {"writer": writer} and store.damage(found) is None
    assert (store.folder(found) / "inner" / "model.bin").read_text() == writer


def test_who_copies_while_another_one_is_done_touches_nothing_of_his(objects: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write_objects, seen = object_storage.write_objects, []

    def writing(*arguments: Any) -> None:
        if not seen:  # the second has looked, and found nothing
            seen.append(True)
            _commit(objects, "first")
        write_objects(*arguments)

    monkeypatch.setattr(object_storage, "write_objects", writing)
    objects.files.write_text(f"{CORPUS.place}/data-0123456789ab/model.bin", "of a killed writer")
    assert _commit(objects, "second").record.results == {"writer": "first"}
    _assert_whole(objects, "first")
    assert orphans(objects) == []
    assert collect_garbage(objects, older_than_s=-1) == [f"{CORPUS.place}/data-0123456789ab"]
    _assert_whole(objects, "first")


def test_what_is_built_again_while_it_is_dropped_or_moved_aside_stays(objects: ArtifactStore) -> None:
    objects.filesystem.between = lambda: _commit(objects, "new")
    objects.drop(_commit(objects, "old"))
    assert objects.filesystem.between is None
    _assert_whole(objects, "new")
    place = CORPUS.place

    def another_process() -> None:
        shutil.rmtree(Path(str(objects.filesystem.base_path)) / "bucket" / place)
        _commit(objects, "newest")

    objects.filesystem.between = another_process
    assert "moved to" in objects.set_aside(place, "damaged")
    _assert_whole(objects, "newest")
