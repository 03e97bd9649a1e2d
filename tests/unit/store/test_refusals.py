"""What a store that is full, read-only, unreachable or misnamed says."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from sentdist import text as addresses
from sentdist.errors import StoreError
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.services.processes import free_port
from sentdist.store import access
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep, save_sweep, sweep_record
from tests.support.planning import plan_of, small_recipe

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")

TROUBLE = [
    (errno.ENOSPC, "no space left"),
    (errno.EROFS, "a read-only file system"),
    (errno.EACCES, "no right to write"),
    (errno.EDQUOT, "a quota that is used up"),
]


def _commit(store: ArtifactStore) -> None:
    with store.staged() as folder:
        (folder / "data.txt").write_text("data")
        store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={})


@pytest.mark.parametrize(("number", "message"), TROUBLE)
def test_trouble_while_staging_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=message):
        _commit(ArtifactStore(tmp_path))


@pytest.mark.parametrize(("number", "message"), TROUBLE)
def test_trouble_while_publishing_is_reported_and_nothing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def refuse(*_: object) -> Path:
        raise OSError(number, os.strerror(number))

    store = ArtifactStore(tmp_path)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match=message):
        _commit(store)
    assert store.get(CORPUS) is None


def test_a_disk_that_fills_while_an_artifact_is_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no space left"), ArtifactStore(tmp_path).staged():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_other_errors_of_the_writer_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), ArtifactStore(tmp_path).staged() as folder:
        (folder / "missing").read_text()


@contextmanager
def _without_roots_rights() -> Iterator[None]:
    """Root may write anywhere, so for once it is nobody."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_folder_without_the_right_to_write_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's own, into which nobody but its owner may look
        Path(folder).chmod(0o555)
        with _without_roots_rights(), pytest.raises(StoreError, match="no right to write"):
            ArtifactStore(folder).check_writable()


def test_a_file_in_the_place_of_the_store_is_reported(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError, match="expected a store that can be written"):
        ArtifactStore(tmp_path / "store").check_writable()
    with pytest.raises(StoreError, match="a file where a folder should be"):
        _commit(ArtifactStore(tmp_path / "store"))


def test_too_little_room_is_reported_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"B free; expected about 1 EB"):
        ArtifactStore(tmp_path).check_writable(needed_bytes=10**18)


@pytest.mark.parametrize("address", ["ftp://host/path", "s3://", "nonsense://x"])
def test_an_address_of_an_unknown_kind_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="Correct the address"):
        ArtifactStore(address)


@pytest.mark.filterwarnings("ignore:unclosed")
def test_a_store_that_cannot_be_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = ArtifactStore("s3://key:secret@artifacts/store?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:9")
    with pytest.raises(StoreError, match="expected a store that can be read") as caught:
        store.get(CORPUS)
    assert "secret" not in str(caught.value)


def test_a_sweep_is_read_back_and_counts_mentions(tmp_path: Path) -> None:
    store, plan = ArtifactStore(tmp_path), plan_of(small_recipe(sweep={"methods.rcl.phis": [[0.01], [0.01, 0.02]]}))
    sweep = sweep_record(plan)
    save_sweep(store, sweep)
    again = load_sweep(store, "small")
    assert again == sweep
    assert again.mentions == dict(plan.mentions)
    assert again.records(store) == {}


def test_a_sweep_that_was_never_started_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="sweep demo"):
        load_sweep(ArtifactStore(tmp_path), "demo")


def test_a_bucket_of_google_s_that_does_not_answer_is_reported_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's library tries for a quarter of an hour, in silence."""
    monkeypatch.setattr(addresses, "GCS_GIVES_UP_S", 1.0)
    address = f"gs://anonymous@bucket/store?scheme=http&endpoint_override=127.0.0.1:{free_port()}"
    with pytest.raises(StoreError, match="gs://bucket/store: found a connection that fails, also after several tries; expected"):
        ArtifactStore(address).check_writable()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("gs://b/store", "gs://b/store?retry_limit_seconds=60"),
        ("gcs://b?scheme=http", "gcs://b?scheme=http&retry_limit_seconds=60"),
        ("gs://b?retry_limit_seconds=900", "gs://b?retry_limit_seconds=900"),
        ("s3://b/store", "s3://b/store?allow_delayed_open=true"),
        ("s3://b?allow_delayed_open=false", "s3://b?allow_delayed_open=false"),
    ],
)
def test_an_address_is_opened_with_what_its_library_should_do_unless_it_says_that_itself(
    given: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(access.fs, "FileSystem", SimpleNamespace(from_uri=lambda address: (opened.append(address), (None, "b"))[1]))
    access.open_root(given)
    assert opened == [asked]
