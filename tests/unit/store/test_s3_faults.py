"""A store on a server that fails: a short trouble is waited out;
a long one is reported in one sentence, and costs nothing that was finished."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import StoreError
from sentdist.store import record
from sentdist.store.store import ASIDE, Artifact, ArtifactStore
from tests.support.faulty_s3 import FaultyS3, faulty_s3

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
SENTENCES = {
    "internal error": "HTTP status 500|INTERNAL_FAILURE",
    "expired credentials": "400|Expired|EXPIRED",
    "no right": "ACCESS_DENIED|403",
}
MOST_ATTEMPTS = 4  # requests of one commit until it is given up, where another attempt is not worth it: 2 with PyArrow 25


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


@pytest.fixture
def store(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArtifactStore]:
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    record.forget()
    yield ArtifactStore(s3.root(tmp_path.name))
    s3.be(None)


def _commit(store: ArtifactStore) -> Artifact:
    with store.staged() as folder:
        (folder / "data.bin").write_bytes(b"0123456789" * 100_000)
        return store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={})


def test_a_long_trouble_is_one_sentence_and_nothing_half_written_counts(s3: FaultyS3, store: ArtifactStore) -> None:
    for mood in ("expired credentials", "no right"):
        s3.be(mood, only=("PUT", "POST"))
        before = s3.num_requests
        with pytest.raises(StoreError, match=SENTENCES[mood]) as caught:
            _commit(store)
        assert s3.num_requests - before <= MOST_ATTEMPTS and "\n" not in str(caught.value)
        assert "Finished work is kept" in caught.value.remedy
        s3.be(None)
        assert store.get(CORPUS) is None
    assert store.folder(_commit(store))


def test_what_cannot_be_read_for_now_is_not_taken_for_damaged(s3: FaultyS3, store: ArtifactStore) -> None:
    for mood in ["internal error"]:
        artifact = _commit(store)
        s3.be(mood)
        with ThreadPoolExecutor(2) as threads:  # at once: both wait
            reading = threads.submit(store.folder, artifact), threads.submit(store.get, CORPUS)
        for asked in reading:
            with pytest.raises(StoreError, match=SENTENCES[mood]):
                asked.result()
        s3.be(None)
        assert store.folder(artifact)
        assert store.files.names(ASIDE) == []


def test_damage_on_the_server_is_moved_aside_and_damage_of_a_copy_is_copied_again(s3: FaultyS3, store: ArtifactStore) -> None:
    artifact = _commit(store)
    (store.folder(artifact) / "data.bin").write_bytes(b"x")
    record.forget()
    assert (store.folder(artifact) / "data.bin").stat().st_size == 1_000_000
    store.files.write_text(f"{artifact.record.files_place}/data.bin", "y" * 1_000_000)
    assert "data.bin" in (store.damage(artifact) or "")
    with pytest.raises(StoreError, match="moved to"):
        store.open_file(f"{artifact.record.place}/data.bin")
    assert store.get(CORPUS) is None
    assert store.folder(_commit(store))
