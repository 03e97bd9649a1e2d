"""Damage in a store: a changed byte, a misplaced record and a half-written one are reported and never used."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import ArtifactLost, StoreError
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.store import record
from sentdist.store.garbage import collect_garbage, dependents, orphans
from sentdist.store.record import SCHEMA, Record
from sentdist.store.store import ASIDE, RECORD, Artifact, ArtifactStore
from sentdist.store.sweep import load_sweep
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
OTHER = RowsCorpus(source="nli/triplets", source_revision="r", limit=10)


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    """Forget what this process has found whole, as a new one would not know it."""
    record.forget()


def _put(store: ArtifactStore, stage: RowsCorpus = CORPUS, text: str = "0123456789", **results: Json) -> Artifact:
    with store.staged() as folder:
        (folder / "data.txt").write_text(text)
        (folder / "other.txt").write_text("other")
        return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results=results)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": _flip,
    "a shorter file": lambda path: path.write_text("0123"),
    "an empty file": lambda path: path.write_text(""),
    "a longer file": lambda path: path.write_text("0123456789!"),
    "a missing file": Path.unlink,
}


def test_damage_is_reported_and_the_artifact_is_moved_aside_and_built_again(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for damage in DAMAGE.values():
        for use in ("folder", "open_file"):
            artifact = _put(store)
            damage(tmp_path / artifact.record.place / "data.txt")
            with pytest.raises(ArtifactLost, match=r"data\.txt.*moved to .*built again"):
                store.folder(artifact) if use == "folder" else store.open_file(f"{artifact.record.place}/data.txt")
            assert store.get(CORPUS) is None and list(store.artifacts()) == []
            (aside,) = (tmp_path / ASIDE).iterdir()
            assert "data.txt" in (aside / "why.txt").read_text()
            assert _put(store).record.files == artifact.record.files
            assert orphans(store, older_than_s=-1) == collect_garbage(store, older_than_s=-1) == [f"{ASIDE}/{aside.name}"]


def test_an_artifact_that_was_built_again_meanwhile_is_left_alone(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    old = _put(store)
    _flip(tmp_path / old.record.place / "data.txt")
    store.drop(old)
    new = _put(store, text="another0ne")
    with pytest.raises(ArtifactLost, match="another process"):
        store.folder(old)
    assert store.get(CORPUS) == new


def _seal(values: dict[str, Json]) -> str:
    """A record with a seal of its own, as anyone can make it."""
    bare = {name: value for name, value in values.items() if name != "sha256"}
    return json.dumps(bare | {"sha256": hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()})


def test_records_of_older_and_newer_versions(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    record, place = tmp_path / artifact.record.place / RECORD, artifact.record.place
    values = json.loads(record.read_text())
    record.write_text(_seal(values | {"noted_by_a_newer_version": [1, "é", 0.1]}))
    assert store.has(CORPUS)
    record.write_text(_seal({name: value for name, value in values.items() if name != "schema_version"}))
    assert store.get(CORPUS).record.schema_version == 1  # type: ignore[union-attr]
    record.write_text(_seal(values | {"schema_version": SCHEMA + 1, "seconds": "quick"}))
    for use in (lambda: store.get(CORPUS), lambda: list(store.artifacts()), lambda: store.find(CORPUS.key)):
        with pytest.raises(StoreError) as caught:
            use()
        assert place in caught.value.where and f"schema {SCHEMA + 1}" in caught.value.found
    assert collect_garbage(store, older_than_s=-1) == [] and not (tmp_path / ASIDE).exists()
    record.write_text(artifact.record.model_copy(update={"digests": {}}).model_dump_json())
    old = store.get(CORPUS)
    assert old is not None and store.folder(old)
    (record.parent / "data.txt").write_text("short")
    with pytest.raises(ArtifactLost, match="5 bytes, 10 were written"):
        store.open_file(f"{place}/data.txt")


def test_no_changed_byte_of_a_record_makes_it_another_record(tmp_path: Path) -> None:
    made = _put(ArtifactStore(tmp_path), stsb=85.49, num_steps=120, title="φ = 0.01")
    content = (tmp_path / made.record.place / RECORD).read_bytes()
    assert Record.read(content) == made.record
    for at in range(len(content)):
        for bit in (1, 32):
            changed = bytearray(content)
            changed[at] ^= bit
            with suppress(ValueError):
                assert Record.read(bytes(changed)) == made.record, (at, bit)
    values = json.loads(content)
    del values["sha256"]
    with pytest.raises(ValueError, match="other content"):
        Record.read(json.dumps(values | {"seconds": 1.0}).encode())


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"null", b"[" * 200_000])
def test_an_unreadable_record_is_not_finished_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    store = ArtifactStore(tmp_path)
    good, bad = _put(store), _put(store, OTHER)
    (tmp_path / bad.record.place / RECORD).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert [artifact.key for artifact in store.artifacts()] == [good.key]
        assert store.at(bad.record.place) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert bad.record.place in line and "moved to" in line and not (tmp_path / bad.record.place).exists()
    listed = CliRunner().invoke(app, ["list", "artifacts", "--store", str(tmp_path)])
    assert listed.exit_code == 0 and store.find(good.key) == good


def test_check_names_every_damaged_artifact_and_changes_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    asked = ["store", "check", "--store", str(tmp_path)]
    whole = CliRunner().invoke(app, asked)
    assert whole.exit_code == 0 and re.search(r"1 artifact, \d+ (bytes|kB) read; 0 damaged\.", whole.output)
    _flip(tmp_path / artifact.record.place / "data.txt")
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 1 and f"{artifact.record.place}: data.txt: other content" in found.output
    assert store.has(CORPUS)
    store.files.write_text("sweeps/demo.json", '{"name": ')
    with pytest.raises(StoreError, match=r"sweeps/demo\.json.*again"):
        load_sweep(store, "demo")


@pytest.mark.parametrize("how", ["record of another", "link to another", "swapped"])
def test_what_lies_in_the_place_of_another_is_moved_aside_and_built_again(tmp_path: Path, how: str) -> None:
    store = ArtifactStore(tmp_path)
    first, second = (tmp_path / _put(store, stage, str(stage.limit)).record.place for stage in (CORPUS, OTHER))
    if how == "record of another":
        shutil.copy(second / RECORD, first / RECORD)
    elif how == "link to another":
        shutil.rmtree(first)
        first.symlink_to(second)
    else:
        first.rename(first.parent / "between")
        second.rename(first)
        (first.parent / "between").rename(second)
    assert store.get(CORPUS) is None and not os.path.lexists(first)
    assert (store.get(OTHER) is None) == (how == "swapped")
    for stage in (CORPUS, OTHER):
        assert (store.folder(_put(store, stage, str(stage.limit))) / "data.txt").read_text() == str(stage.limit)
    assert len(collect_garbage(store, older_than_s=-1)) == (2 if how == "swapped" else 1)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_drop_touches_nothing_outside_of_the_store(tmp_path: Path, is_absolute: bool) -> None:
    store, victim = ArtifactStore(tmp_path / "store"), tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.txt").write_text("years")
    forged = tmp_path / "store" / "scores" / "evil-deadbeefdeadbeef"
    shutil.copytree(tmp_path / "store" / _put(store).record.place, forged)
    values = json.loads((forged / RECORD).read_text())
    (forged / RECORD).write_text(_seal(values | {"place": str(victim) if is_absolute else "../victim", "key": "deadbeefdeadbeef"}))
    done = CliRunner().invoke(app, ["store", "drop", "deadbeef", "--yes", "--store", str(tmp_path / "store")])
    assert done.exit_code == 2 and (victim / "thesis.txt").exists(), done.output


def test_a_damaged_input_is_built_again_and_dropping_takes_what_was_made_from_it(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    store = context.store
    run_local(plan, context)
    digests = {trial.key: store.at(trial.scores.place).record.digests for trial in plan.trials}  # type: ignore[union-attr]
    last = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    bank, corpus = store.get(last.banks[0]), store.get(last.corpus)
    assert bank is not None and corpus is not None
    expected = {stage.key for stage in plan.stages if _needs(stage, bank.key)}
    assert {one.key for one in dependents(store, bank)} == expected and expected
    behind = {one.key: set(one.record.inputs) for one in dependents(store, corpus)}
    assert not any(behind[one] & set(list(behind)[:place]) for place, one in enumerate(behind)), "what is made of another comes first"
    done = CliRunner().invoke(app, ["store", "drop", bank.key, "--yes", "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.output
    assert {stage.key for stage in plan.stages if not store.has(stage)} == expected | {bank.key}
    weights = max((tmp_path / "store" / last.banks[0].encoder.place).glob("*.safetensors"), key=lambda path: path.stat().st_size)
    _flip(weights)
    record.forget()
    run_local(plan, context)
    assert {trial.key: store.at(trial.scores.place).record.digests for trial in plan.trials} == digests  # type: ignore[union-attr]
    assert len(list((tmp_path / "store" / ASIDE).iterdir())) == 1


def _needs(stage: object, key: str) -> bool:
    return any(needed.key == key or _needs(needed, key) for needed in getattr(stage, "inputs", ()))
