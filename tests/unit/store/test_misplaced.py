"""Records, folders and links in places of a store where they do not belong, and records that a newer version wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import StoreError
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stage import Json
from sentdist.store.garbage import collect_garbage
from sentdist.store.record import SCHEMA
from sentdist.store.store import ASIDE, RECORD, Artifact, ArtifactStore

FIRST = RowsCorpus(source="nli/triplets", source_revision="r")
SECOND = RowsCorpus(source="nli/triplets", source_revision="r", limit=10)


def _put(store: ArtifactStore, stage: RowsCorpus) -> Artifact:
    with store.staged() as folder:
        (folder / "data.txt").write_text(str(stage.limit))
        return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})


def _edit(record: Path, **changes: Json) -> None:
    """Change fields of a record and seal it anew, as anyone can."""
    values = json.loads(record.read_text()) | changes
    del values["sha256"]
    values["sha256"] = hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    record.write_text(json.dumps(values))


def _swap(first: Path, second: Path) -> None:
    first.rename(first.parent / "between")
    second.rename(first)
    (first.parent / "between").rename(second)


def _link(first: Path, second: Path) -> None:
    shutil.rmtree(first)
    first.symlink_to(second)


MISPLACED: dict[str, Callable[[Path, Path], object]] = {
    "record of another": lambda first, second: shutil.copy(second / RECORD, first / RECORD),
    "link to another": _link,
    "swapped": _swap,
}


@pytest.mark.parametrize("how", MISPLACED)
def test_what_lies_in_the_place_of_another_is_moved_aside_and_built_again(tmp_path: Path, how: str) -> None:
    store = ArtifactStore(tmp_path)
    first, second = tmp_path / _put(store, FIRST).record.place, tmp_path / _put(store, SECOND).record.place
    MISPLACED[how](first, second)
    assert store.get(FIRST) is None and not os.path.lexists(first)
    assert (store.get(SECOND) is None) == (how == "swapped")
    for stage in (FIRST, SECOND):
        assert (store.folder(_put(store, stage)) / "data.txt").read_text() == str(stage.limit)
    assert not (second / "why.txt").exists()
    assert len(collect_garbage(store, older_than_s=-1)) == (2 if how == "swapped" else 1)
    assert store.has(FIRST) and store.has(SECOND)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_drop_touches_nothing_outside_of_the_store(tmp_path: Path, is_absolute: bool) -> None:
    store, victim = ArtifactStore(tmp_path / "store"), tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.txt").write_text("years")
    forged = tmp_path / "store" / "scores" / "evil-deadbeefdeadbeef"
    shutil.copytree(tmp_path / "store" / _put(store, FIRST).record.place, forged)
    _edit(forged / RECORD, place=str(victim) if is_absolute else "../victim", key="deadbeefdeadbeef")
    done = CliRunner().invoke(app, ["store", "drop", "deadbeef", "--yes", "--store", str(tmp_path / "store")])
    assert done.exit_code == 2, done.output
    assert (victim / "thesis.txt").exists()


def test_a_copy_of_folders_beside_the_kinds_is_no_part_of_the_store(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    place = _put(store, FIRST).record.place
    shutil.copytree(tmp_path / place, tmp_path / "backup" / place)
    assert store.places() == [place]


def test_a_record_of_a_newer_version_is_refused_and_stays(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    place = _put(store, FIRST).record.place
    _edit(tmp_path / place / RECORD, schema_version=SCHEMA + 1, seconds="quick")
    for use in (lambda: store.get(FIRST), lambda: list(store.artifacts()), lambda: store.find(FIRST.key)):
        with pytest.raises(StoreError) as caught:
            use()
        assert place in caught.value.where and f"schema {SCHEMA + 1}" in caught.value.found
    assert collect_garbage(store, older_than_s=-1) == []
    assert (tmp_path / place / "data.txt").exists() and not (tmp_path / ASIDE).exists()


def test_a_record_without_a_schema_number_is_of_the_first(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    record = tmp_path / _put(store, FIRST).record.place / RECORD
    values = json.loads(record.read_text())
    assert values.pop("schema_version") == SCHEMA
    record.write_text(json.dumps(values))
    _edit(record)
    found = store.get(FIRST)
    assert found is not None and found.record.schema_version == 1


@pytest.mark.parametrize("make", [os.mkfifo])
def test_a_record_that_is_no_file_is_an_error_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    store = ArtifactStore(tmp_path)
    record = tmp_path / _put(store, FIRST).record.place / RECORD
    record.unlink()
    make(record)
    with pytest.raises(StoreError) as caught:
        store.get(FIRST)
    assert caught.value.where == str(record)
