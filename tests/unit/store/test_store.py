"""The artifact store: one behaviour on a file system and on an S3-compatible server, also with two writers at once."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from sentdist.corpora.rows import RowsCorpus
from sentdist.objectives.info_nce import InfoNCE
from sentdist.recipe.specs import EncoderSpec, Training
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Train
from sentdist.store import object_storage
from sentdist.store import store as store_module
from sentdist.store.garbage import collect_garbage, orphans
from sentdist.store.record import Record, explained
from sentdist.store.store import STAGING, Artifact, ArtifactStore

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")


def _train(**changes: object) -> Train:
    values = {
        "encoder": EncoderSpec(checkpoint="minilm-l6", revision="r"),
        "corpus": CORPUS,
        "objective": InfoNCE(),
        "training": Training(),
        "seed": 0,
    }
    return Train.model_validate(values | changes)


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    """An S3-compatible server in this process, on a free port."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )
    client.create_bucket(Bucket="artifacts")
    yield f"{host}:{port}"
    client.close()
    server.stop()


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    if request.param == "local":
        return ArtifactStore(tmp_path / "store")
    address = request.getfixturevalue("s3_address")
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    return ArtifactStore(f"s3://artifacts/{uuid.uuid4().hex}?scheme=http&region=us-east-1&endpoint_override={address}")


def _put(store: ArtifactStore, stage: Stage, text: str = "data", **results: str) -> Artifact:
    with store.staged() as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "data.txt").write_text(text)
        return _commit(store, stage, folder, **results)


def _commit(store: ArtifactStore, stage: Stage, folder: Path, **results: str) -> Artifact:
    return store.commit(stage, folder, seconds=1.0, runtime={"workers": 1}, environment={"python": "3"}, results=dict(results))


def test_garbage_collection_takes_orphans_and_nothing_else(store: ArtifactStore) -> None:
    kept = _put(store, CORPUS)
    orphan = _train()
    store.files.write_text(f"{orphan.place}/model.bin", "half")
    store.files.write_text(f"{STAGING}/abandoned/model.bin", "half")
    store.files.write_text("sweeps/demo.json", "{}")
    store.files.write_text("somebody/elses/file.txt", "not ours")
    assert collect_garbage(store, older_than_s=3600) == []  # may still be being written
    removed = collect_garbage(store, older_than_s=-1)  # also what was written in this very moment
    assert removed == [f"{STAGING}/abandoned", orphan.place]
    assert orphans(store, older_than_s=-1) == []
    assert store.get(CORPUS) == kept
    assert store.files.read_text("sweeps/demo.json") == "{}"
    assert store.files.read_text("somebody/elses/file.txt") == "not ours"


def test_a_record_has_the_inputs_in_their_order_and_seconds_to_the_thousandth() -> None:
    for start in (_train(seed=seed) for seed in range(8)):  # keys before that of the corpus, and behind it
        record = Record.of(_train(start=start), {}, seconds=1.23456, runtime={}, environment={}, results={})
        assert record.inputs == (start.key, CORPUS.key) and record.seconds == 1.235


def test_explain_names_the_fields_in_which_two_stages_differ(store: ArtifactStore) -> None:
    limited = RowsCorpus(source="nli/triplets", source_revision="r", limit=100)
    for stage in (CORPUS, limited):
        _put(store, stage)
    first = _put(store, _train())
    second = _put(store, _train(seed=1, objective=InfoNCE(temperature=0.05), corpus=limited))
    found = {field: (one, other) for field, one, other in explained(first, second, store.artifacts())}
    assert found == {"seed": (0, 1), "objective.temperature": (1.0, 0.05), "corpus.limit": (None, 100)}
    assert explained(first, first, store.artifacts()) == []


def test_texts_that_are_no_artifacts(store: ArtifactStore) -> None:
    assert store.files.read_text("sweeps/demo.json") is None
    assert store.files.write_text("sweeps/demo.json", "{}").endswith("sweeps/demo.json")
    assert store.files.write_text("sweeps/demo.json", "[φ]")
    assert store.files.read_text("sweeps/demo.json") == "[φ]"


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


def _commit_of_two_writers(store: ArtifactStore, writer: str) -> Artifact:
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
            _commit_of_two_writers(objects, "first")
        write_objects(*arguments)

    monkeypatch.setattr(object_storage, "write_objects", writing)
    objects.files.write_text(f"{CORPUS.place}/data-0123456789ab/model.bin", "of a killed writer")
    assert _commit_of_two_writers(objects, "second").record.results == {"writer": "first"}
    _assert_whole(objects, "first")
    assert orphans(objects) == []
    assert collect_garbage(objects, older_than_s=-1) == [f"{CORPUS.place}/data-0123456789ab"]
    _assert_whole(objects, "first")


def test_what_is_built_again_while_it_is_dropped_or_moved_aside_stays(objects: ArtifactStore) -> None:
    objects.filesystem.between = lambda: _commit_of_two_writers(objects, "new")
    objects.drop(_commit_of_two_writers(objects, "old"))
    assert objects.filesystem.between is None
    _assert_whole(objects, "new")
    place = CORPUS.place

    def another_process() -> None:
        shutil.rmtree(Path(str(objects.filesystem.base_path)) / "bucket" / place)
        _commit_of_two_writers(objects, "newest")

    objects.filesystem.between = another_process
    assert "moved to" in objects.set_aside(place, "damaged")
    _assert_whole(objects, "newest")
