"""What a store that is full, read-only, unreachable, misnamed or taken away says."""

from __future__ import annotations

import errno
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import StoreError
from sentdist.store import storage as access
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
TROUBLE = {
    errno.ENOSPC: "no space left",
    errno.EROFS: "a read-only file system",
    errno.EACCES: "no permission to write",
    errno.EDQUOT: "quota",
    errno.ESTALE: "stale handle",
    errno.EIO: "a disk error",
    errno.ETIMEDOUT: "does not answer",
    errno.ENOTCONN: "whose server has ended",
}


def _commit(store: ArtifactStore) -> None:
    with store.staged() as folder:
        (folder / "data.txt").write_text("data")
        store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={})


@pytest.mark.parametrize("step", ["mkdir", "rename"])
def test_trouble_while_staging_or_publishing_is_reported_and_nothing_counts(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, message in TROUBLE.items():

        def refuse(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr(Path, step, refuse)
            with pytest.raises(StoreError, match=message):
                _commit(ArtifactStore(tmp_path / str(number)))
        assert ArtifactStore(tmp_path / str(number)).get(CORPUS) is None


def test_a_disk_that_fills_while_an_artifact_is_written_is_reported(tmp_path: Path) -> None:
    """safetensors raises no OSError: its message alone has the number."""
    store = ArtifactStore(tmp_path / "store")
    with pytest.raises(StoreError, match="no space left"), store.staged():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(StoreError, match="no space left"), store.staged():
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(RuntimeError, match="something else"), store.staged():
        raise RuntimeError("something else (os error)")


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


def test_a_place_where_nothing_can_be_written_is_reported(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's own, into which nobody but its owner may look
        Path(folder).chmod(0o555)
        with _without_roots_rights(), pytest.raises(StoreError, match="no permission to write"):
            ArtifactStore(folder).check_writable()
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StoreError, match="expected a store that can be written"):
        ArtifactStore(tmp_path / "file").check_writable()
    with pytest.raises(StoreError, match="a file where a folder should be"):
        _commit(ArtifactStore(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"B free; expected about 1 EB"):
        ArtifactStore(tmp_path).check_writable(needed_bytes=10**18)
    with pytest.raises(StoreError, match="sweep demo"):
        load_sweep(ArtifactStore(tmp_path), "demo")


def test_an_address_is_refused_or_opened_as_its_library_should_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ["ftp://host/path", "s3://"]:
        with pytest.raises(StoreError, match="Correct the address"):
            ArtifactStore(address)
    opened: list[str] = []
    monkeypatch.setattr(access.fs, "FileSystem", SimpleNamespace(from_uri=lambda address: (opened.append(address), (None, "b"))[1]))
    for address in ["gs://b/store", "gcs://b?scheme=http", "gs://b?retry_limit_seconds=900", "s3://b", "s3://b?allow_delayed_open=false"]:
        access.open_root(address)
    assert opened == [
        "gs://b/store?retry_limit_seconds=60",
        "gcs://b?scheme=http&retry_limit_seconds=60",
        "gs://b?retry_limit_seconds=900",
        "s3://b?allow_delayed_open=true",
        "s3://b?allow_delayed_open=false",
    ]


def _staged(store: ArtifactStore) -> None:
    with store.staged():
        pass


WRITES: list[Callable[[ArtifactStore], object]] = [
    _staged,
    lambda store: store.files.write_text("sweeps/one.json", "{}"),
    lambda store: store.files.append_line("searches/one/log.jsonl", "{}"),
    lambda store: store.files.write_folder(Path(__file__).parent, "reports/one"),
    lambda store: store.check_writable(),
    lambda store: store.set_aside("train/one", "damaged"),
]


@pytest.mark.parametrize("leaves", ["an empty folder", "nothing"])
def test_a_store_that_was_taken_away_takes_nothing_and_goes_on_when_it_is_back(tmp_path: Path, leaves: str) -> None:
    root = tmp_path / "volume" / "store"
    store = ArtifactStore(root)
    _commit(store)
    away = root if leaves == "an empty folder" else root.parent
    away.rename(tmp_path / "away")
    root.parent.mkdir(exist_ok=True)
    if leaves == "an empty folder":
        root.mkdir()
    for one in (store, pickle.loads(pickle.dumps(store))):  # here, and sent to another process
        for write in [*WRITES, lambda store: load_sweep(store, "one")]:
            with pytest.raises(StoreError, match="Was its file system unmounted"):
                write(one)
    assert not list(root.rglob("*")) and root.exists() == (leaves == "an empty folder")
    for path in (root, root.parent):
        if path.exists() and path.stem == away.stem:
            path.rmdir()
    (tmp_path / "away").rename(away)
    store.files.write_text("sweeps/one.json", "{}")
    assert (root / "sweeps" / "one.json").read_text() == "{}" and store.has(CORPUS)
