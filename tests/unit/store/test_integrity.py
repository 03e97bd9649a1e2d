"""Damage in a store: a changed byte is reported and never used, and costs only what must be built again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import ArtifactLost, StoreError
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.store import copies as verified
from sentdist.store import record as integrity
from sentdist.store import store as store_module
from sentdist.store.garbage import collect_garbage, dependents, orphans
from sentdist.store.record import FileChecksum, Record
from sentdist.store.store import ASIDE, RECORD, Artifact, ArtifactStore
from sentdist.store.sweep import load_sweep
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget what this process has found whole, as a new one would not know it."""

    def forget() -> None:
        verified.forget()
        monkeypatch.setattr(store_module, "_stuck", {})

    forget()
    return forget


def _put(store: ArtifactStore, stage: RowsCorpus = CORPUS, text: str = "0123456789") -> Artifact:
    with store.staged() as folder:
        (folder / "data.txt").write_text(text)
        (folder / "other.txt").write_text("other")
        return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})


def _flip(path: Path, at: int = 5) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a flipped bit": _flip,
    "a shorter file": lambda path: path.write_text("0123"),
    "an empty file": lambda path: path.write_text(""),
    "a longer file": lambda path: path.write_text("0123456789!"),
    "a missing file": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("use", ["folder", "open_file"])
def test_damage_is_reported_and_the_artifact_is_moved_aside(tmp_path: Path, damage: str, use: str) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    DAMAGE[damage](tmp_path / artifact.record.place / "data.txt")
    with pytest.raises(ArtifactLost, match=r"data\.txt.*moved to .*built again"):
        store.folder(artifact) if use == "folder" else store.open_file(f"{artifact.record.place}/data.txt")
    assert store.get(CORPUS) is None
    assert list(store.artifacts()) == []
    (aside,) = (tmp_path / ASIDE).iterdir()
    assert "data.txt" in (aside / "why.txt").read_text()
    assert _put(store).record.files == artifact.record.files  # it can be built again in the same place
    assert orphans(store, older_than_s=-1) == [f"{ASIDE}/{aside.name}"]
    assert collect_garbage(store, older_than_s=-1) == [f"{ASIDE}/{aside.name}"]


def test_only_files_that_are_asked_for_are_read_and_each_once_a_process_unless_it_changes(
    tmp_path: Path, fresh_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    read: list[str] = []
    checksum_of = integrity.checksum_of

    def noted(path: Path) -> FileChecksum:
        read.append(path.name)
        return checksum_of(path)

    monkeypatch.setattr(integrity, "checksum_of", noted)
    folder = store.folder(artifact, "data.txt")
    _flip(folder / "other.txt", at=0)
    for _ in range(3):
        assert store.folder(artifact, "data.txt") == folder
    assert read == ["data.txt"]
    os.utime(folder / "data.txt")
    assert store.folder(artifact, "data.txt") == folder
    assert read == ["data.txt", "data.txt"]
    fresh_process()
    store.folder(artifact, "data.txt")
    assert read == ["data.txt"] * 3
    _flip(folder / "data.txt")
    with pytest.raises(ArtifactLost):
        store.folder(artifact, "data.txt")


def test_every_name_that_is_given_once_is_looked_at(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x")
    facts = integrity.checksums_below(tmp_path)
    (tmp_path / "b").write_text("xx")
    assert integrity.damage_of(tmp_path, facts, iter(["a", "b"])) == "b: 2 bytes, 1 were written"


def test_an_artifact_that_was_built_again_meanwhile_is_left_alone(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    old = _put(store)
    _flip(tmp_path / old.record.place / "data.txt")
    store.drop(old)
    new = _put(store, text="another0ne")
    with pytest.raises(ArtifactLost, match="another process has noticed it"):
        store.folder(old)
    assert store.get(CORPUS) == new


def test_a_record_of_an_older_version_has_its_sizes_compared(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    record = artifact.record.model_copy(update={"digests": {}})
    (tmp_path / artifact.record.place / RECORD).write_text(record.model_dump_json())
    old = store.get(CORPUS)
    assert old is not None and store.folder(old)
    (tmp_path / artifact.record.place / "data.txt").write_text("short")
    with pytest.raises(ArtifactLost, match="5 bytes, 10 were written"):
        store.open_file(f"{artifact.record.place}/data.txt")


def test_a_record_that_lost_its_seal_is_not_that_of_an_older_version(tmp_path: Path) -> None:
    made = _put(ArtifactStore(tmp_path)).record
    values = json.loads(made.sealed)
    assert Record.read(json.dumps(values).encode()).digests
    del values["sha256"]
    with pytest.raises(ValueError, match="other content"):
        Record.read(json.dumps({**values, "seconds": 1.0}).encode())
    assert Record.read(json.dumps({**values, "digests": {}}).encode()).files == made.files, "older versions noted neither"


def test_what_was_found_whole_is_so_only_for_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789")
    right = integrity.checksums_below(tmp_path)
    assert verified.damage_unless_verified(tmp_path, right, ["a.txt"]) is None
    other = {"a.txt": FileChecksum(num_bytes=10, sha256=hashlib.sha256(b"9876543210").hexdigest())}
    assert verified.damage_unless_verified(tmp_path, other, ["a.txt"]) is not None
    assert verified.damage_unless_verified(tmp_path, right, ["a.txt"]) is None


def test_a_record_of_a_newer_version_is_read(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    path = tmp_path / _put(store).record.place / RECORD
    values = json.loads(path.read_text()) | {"noted_by_a_newer_version": [1, "é", 0.1]}
    del values["sha256"]
    values["sha256"] = hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps(values))
    assert store.has(CORPUS)


def test_no_changed_byte_of_a_record_makes_it_another_record(tmp_path: Path) -> None:
    with ArtifactStore(tmp_path).staged() as folder:
        (folder / "data.txt").write_text("0123456789")
        results: dict[str, Json] = {"stsb": 85.49, "num_steps": 120, "title": "φ = 0.01"}
        artifact = ArtifactStore(tmp_path).commit(CORPUS, folder, seconds=0.5, runtime={}, environment={}, results=results)
    content = (tmp_path / artifact.record.place / RECORD).read_bytes()
    assert Record.read(content) == artifact.record
    for at in range(len(content)):
        for bit in (1, 2, 16, 32):
            changed = bytearray(content)
            changed[at] ^= bit
            with suppress(ValueError):
                assert Record.read(bytes(changed)) == artifact.record, (at, bit, bytes(changed[max(0, at - 20) : at + 20]))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"key": "abc"}', b"null", b"\0" * 200, b"[" * 200_000])
def test_an_unreadable_record_is_not_finished_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    store = ArtifactStore(tmp_path)
    good, bad = _put(store), _put(store, RowsCorpus(source="nli/triplets", source_revision="r", limit=10))
    (tmp_path / bad.record.place / RECORD).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert [artifact.key for artifact in store.artifacts()] == [good.key]
        assert store.at(bad.record.place) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert bad.record.place in line and "record.json" in line and "moved to" in line
    assert not (tmp_path / bad.record.place).exists()
    assert store.find(good.key) == good


@pytest.mark.parametrize("content", ['{"key": ', '{"key":' * 100_000])
def test_no_command_of_the_store_ends_in_a_traceback_for_one_bad_record(tmp_path: Path, content: str) -> None:
    store = ArtifactStore(tmp_path)
    good, bad = _put(store), _put(store, RowsCorpus(source="nli/triplets", source_revision="r", limit=10))
    record = tmp_path / bad.record.place / RECORD
    for command in (["list"], ["show", good.key], ["check"], ["gc"], ["drop", "--yes", good.key]):
        record.parent.mkdir(exist_ok=True)
        record.write_text(content)
        done = CliRunner().invoke(app, ["store", *command, "--store", str(tmp_path)])
        assert done.exit_code == (command == ["check"]), (command, done.output)
        assert done.exception is None or isinstance(done.exception, SystemExit)


def test_check_names_every_damaged_artifact_and_changes_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    asked = ["store", "check", "--store", str(tmp_path)]
    whole = CliRunner().invoke(app, asked)
    assert whole.exit_code == 0 and re.search(r"1 artifact, \d+ (bytes|kB) read; 0 damaged\.", whole.output)
    _flip(tmp_path / artifact.record.place / "data.txt")
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 1
    assert f"{artifact.record.place}: data.txt: other content" in found.output
    assert store.has(CORPUS)


def test_a_damaged_sweep_file_is_one_sentence(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.files.write_text("sweeps/demo.json", '{"name": ')
    with pytest.raises(StoreError, match=r"sweeps/demo\.json.*again"):
        load_sweep(store, "demo")


def test_a_store_without_the_right_to_write_still_never_uses_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path)
    artifact = _put(store)
    _flip(tmp_path / artifact.record.place / "data.txt")

    def refuse(*_: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ArtifactLost, match="could not be moved aside"):
        store.folder(artifact)


def test_files_have_the_mode_that_the_users_umask_asks_for(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with store.staged() as folder:
        (folder / "data.txt").touch(mode=0o600)
        before = os.umask(0o022)
        try:
            artifact = store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={})
        finally:
            os.umask(before)
    assert (tmp_path / artifact.record.place / "data.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", ["corpus", "train", "bank"])
def test_a_run_with_a_damaged_input_builds_it_again_and_ends_as_an_undisturbed_one(
    tmp_path: Path, tiny_encoder_dir: Path, fresh_process: Callable[[], None], kind: str
) -> None:
    data = write_data(tmp_path / "data")
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=data, store=tmp_path / "store")
    run_local(plan, context)
    scores = {trial.key: context.store.at(trial.scores.place) for trial in plan.trials}
    last = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    wanted = {"corpus": last.corpus, "train": last.banks[0].encoder, "bank": last.banks[0]}[kind]
    folder = tmp_path / "store" / wanted.place
    victim = max((path for path in folder.rglob("*") if path.is_file() and path.name != RECORD), key=lambda path: path.stat().st_size)
    _flip(victim, at=victim.stat().st_size // 2)
    gone = [last, *(trial.scores for trial in plan.trials if trial.scores.encoder == last)]
    if kind == "train":
        gone.append(last.banks[0])
    for stage in gone:
        found = context.store.get(stage)
        assert found is not None
        context.store.drop(found)
    fresh_process()
    run_local(plan, context)
    for trial in plan.trials:
        before, after = scores[trial.key], context.store.at(trial.scores.place)
        assert before is not None and after is not None
        assert before.record.digests == after.record.digests
        assert before.record.results["stsb"] == after.record.results["stsb"]
    assert len(list((tmp_path / "store" / ASIDE).iterdir())) == 1


def test_dropping_a_bank_drops_what_was_made_from_it(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_data(tmp_path / "data")
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=data, store=tmp_path / "store")
    run_local(plan, context)
    last = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    bank = context.store.get(last.banks[0])
    assert bank is not None
    expected = {stage.key for stage in plan.stages if _needs(stage, bank.key)}
    assert {one.key for one in dependents(context.store, bank)} == expected and expected
    for root in (bank, context.store.get(last.corpus)):  # of a corpus a bank is made, the encoder of the bank, and what the bank trains
        assert root is not None
        behind = {one.key: set(one.record.inputs) for one in dependents(context.store, root)}
        assert not any(behind[one] & set(list(behind)[:place]) for place, one in enumerate(behind)), (
            "what was made of another comes before it"
        )
    done = CliRunner().invoke(app, ["store", "drop", bank.key, "--yes", "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.output
    assert {stage.key for stage in plan.stages if not context.store.has(stage)} == expected | {bank.key}


def _needs(stage: object, key: str) -> bool:
    inputs = getattr(stage, "inputs", ())
    return any(needed.key == key or _needs(needed, key) for needed in inputs)
