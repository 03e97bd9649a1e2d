"""A store on a server that fails: a short trouble is waited out;
a long one is reported in one sentence, and costs nothing that was finished."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sentdist.errors import ArtifactLost, StoreError
from sentdist.execution.training.checkpoints import RunningFolder
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stages import Train
from sentdist.stages.train_setup import ALONE
from sentdist.store import copies as verified
from sentdist.store.garbage import orphans
from sentdist.store.object_storage import write_object
from sentdist.store.store import ASIDE, Artifact, ArtifactStore
from tests.support.faulty_s3 import FaultyS3, faulty_s3
from tests.support.planning import plan_of, small_recipe

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
TRAIN = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
SENTENCES = {
    "internal error": "an error of the server",
    "throttled": "too busy",
    "expired credentials": "expired",
    "no such key": "wrong credentials",
    "no right": "no right",
    "cut": "a connection that fails",
}
PASSING = ("internal error", "throttled", "cut")  # worth another attempt
MOST_ATTEMPTS, MOST_OF_WHAT_STAYS = 40, 4  # requests of one commit until it is given up: 32 and 2 with PyArrow 25


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


@pytest.fixture
def store(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArtifactStore]:
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    verified.forget()
    yield ArtifactStore(s3.root(tmp_path.name))
    s3.be(None)


def _commit(store: ArtifactStore) -> Artifact:
    with store.staged() as folder:
        (folder / "data.bin").write_bytes(b"0123456789" * 100_000)
        return store.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={})


def test_a_small_object_is_written_in_one_request(s3: FaultyS3, store: ArtifactStore) -> None:
    before = s3.num_requests
    write_object(store.filesystem, f"{store.base}/small", b"0123456789")
    assert s3.num_requests == before + 1
    with store.filesystem.open_input_stream(f"{store.base}/small") as stream:
        assert stream.read() == b"0123456789"


@pytest.mark.parametrize("mood", ["internal error", "throttled", "cut", "slow"])
def test_a_short_trouble_is_waited_out(s3: FaultyS3, store: ArtifactStore, mood: str) -> None:
    s3.be(mood, for_requests=3)
    artifact = _commit(store)
    s3.be(mood, for_requests=2)
    assert (store.folder(artifact) / "data.bin").read_bytes() == b"0123456789" * 100_000


def _meets_a_long_trouble(mood: str, name: str) -> None:
    with faulty_s3() as s3:
        store = ArtifactStore(s3.root(name))
        s3.be(mood, only=("PUT", "POST"))
        before = s3.num_requests
        with pytest.raises(StoreError, match=SENTENCES[mood]) as caught:
            _commit(store)
        assert s3.num_requests - before <= (
            MOST_ATTEMPTS if mood in PASSING else MOST_OF_WHAT_STAYS
        )  # an end that does not depend on the clock
        assert len(str(caught.value)) < 700 and "\n" not in str(caught.value)
        assert "What is finished is kept" in caught.value.remedy
        s3.be(None)
        assert store.get(CORPUS) is None
        assert store.folder(_commit(store))


@pytest.mark.usefixtures("store")
def test_a_long_trouble_is_one_sentence_and_nothing_half_written_counts(tmp_path: Path) -> None:
    """Each on a server of its own, all at once: most of the time goes in waiting for the next attempt."""
    with ThreadPoolExecutor(len(SENTENCES)) as threads:
        running = {mood: threads.submit(_meets_a_long_trouble, mood, f"{tmp_path.name}-{number}") for number, mood in enumerate(SENTENCES)}
    for mood, future in running.items():
        assert future.exception() is None, mood


def test_one_file_that_is_refused_leaves_no_record(s3: FaultyS3, store: ArtifactStore) -> None:
    s3.be("no right", for_requests=1, only=("PUT",))
    with pytest.raises(StoreError, match="no right"):
        _commit(store)
    assert s3.for_requests == 0 and store.get(CORPUS) is None


@pytest.mark.parametrize("mood", ["internal error", "expired credentials"])
def test_what_cannot_be_read_for_now_is_not_taken_for_damaged(s3: FaultyS3, store: ArtifactStore, mood: str) -> None:
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


def test_a_copy_that_changes_while_it_is_read_is_made_again_and_the_artifact_stays(store: ArtifactStore) -> None:
    artifact = _commit(store)
    folder = store.folder(artifact)
    os.utime(folder, (0, 0))
    use = verified.VerifiedFiles(folder, artifact.record.files)
    store.check_unchanged(artifact, use)
    assert folder.stat().st_mtime > 0, "a copy in use is not taken for an old one"
    with (folder / "data.bin").open("r+b") as file:
        file.write(b"y")
    with pytest.raises(ArtifactLost, match=r"data\.bin: changed while it was read \(of its copy"):
        store.check_unchanged(artifact, use)
    assert store.at(artifact.record.place) == artifact and store.files.names(ASIDE) == []
    assert (store.folder(artifact) / "data.bin").read_bytes()[:1] != b"y"


def test_two_processes_that_share_a_copy_begin_anew_once_each_when_it_goes(store: ArtifactStore) -> None:
    artifact = _commit(store)
    folder = store.folder(artifact)
    files, uses, mapped = artifact.record.files, [], []
    for _ in range(2):
        uses.append(verified.VerifiedFiles(folder, files))
        mapped.append((folder / "data.bin").open("rb"))  # as a mapping holds it, so that no other file has its inode
    shutil.rmtree(folder)
    for number in range(2):
        with pytest.raises(ArtifactLost, match=r"of its copy .*starts over"):
            store.check_unchanged(artifact, uses[number])
        uses[number] = verified.VerifiedFiles(store.folder(artifact), files)
        mapped.append((folder / "data.bin").open("rb"))
    for use in uses:
        store.check_unchanged(artifact, use)
    for file in mapped:
        file.close()


def test_an_artifact_that_another_process_moves_away_while_it_is_copied_is_lost(store: ArtifactStore) -> None:
    artifact = _commit(store)
    store.set_aside(artifact.record.place, "damaged")
    with pytest.raises(ArtifactLost, match="moved away while it was copied"):
        store.folder(artifact)


def test_damage_on_the_server_is_moved_aside_and_damage_of_a_copy_is_copied_again(s3: FaultyS3, store: ArtifactStore) -> None:
    artifact = _commit(store)
    (store.folder(artifact) / "data.bin").write_bytes(b"x")
    verified.forget()
    assert (store.folder(artifact) / "data.bin").stat().st_size == 1_000_000
    store.files.write_text(f"{artifact.record.files_place}/data.bin", "y" * 1_000_000)
    assert "data.bin" in (store.damage(artifact) or "")
    with pytest.raises(StoreError, match="moved to"):
        store.open_file(f"{artifact.record.place}/data.bin")
    assert store.get(CORPUS) is None
    assert store.folder(_commit(store))


def test_a_training_keeps_its_last_checkpoint_through_a_trouble(s3: FaultyS3, store: ArtifactStore) -> None:
    def write(folder: Path) -> None:
        (folder / "weights").write_bytes(b"w" * 1000)

    running = RunningFolder(store, TRAIN, ALONE)
    assert running.save(write, step=5) is None
    s3.be("expired credentials")
    assert "expired" in (running.save(write, step=10) or "")
    with pytest.raises(StoreError, match="expired"):
        running.resume(lambda found: None)
    s3.be(None)
    assert running.resume(lambda found: None)[0] == 5


def test_a_signal_while_a_file_is_written_leaves_the_file_whole(s3: FaultyS3, store: ArtifactStore) -> None:
    """As SIGTERM, while a search notes what happened: opening a file is a request, in which the signal arrives."""
    for number in range(3):
        store.files.append_line("searches/small.jsonl", f"line {number}")

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, end)
    s3.be("slow", only=("POST", "PUT"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            store.files.append_line("searches/small.jsonl", "line 3")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        s3.be(None)
    gc.collect()
    store.files.append_line("searches/small.jsonl", "line 4")
    assert (store.files.read_text("searches/small.jsonl") or "").split() == " ".join(f"line {number}" for number in range(5)).split()


def test_copies_from_two_buckets_lie_side_by_side(s3: FaultyS3, store: ArtifactStore, tmp_path: Path) -> None:
    other = ArtifactStore(s3.root(f"{tmp_path.name}-other"))
    first = _commit(store)
    with other.staged() as folder:
        (folder / "data.bin").write_bytes(b"another build, with other times in it")
        second = other.commit(CORPUS, folder, seconds=0.0, runtime={}, environment={}, results={})
    here = store.folder(first)
    use = verified.VerifiedFiles(here, first.record.files)
    assert other.folder(second) != here
    store.check_unchanged(first, use)


def test_a_writer_that_has_just_begun_in_a_bucket_is_no_garbage(store: ArtifactStore) -> None:
    _commit(store)
    store.filesystem.create_dir(f"{store.base}/corpus/begun-0123456789ab/data-0123456789ab", recursive=True)
    assert orphans(store) == []
