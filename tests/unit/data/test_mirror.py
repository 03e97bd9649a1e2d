"""A data root behind an address: what a recipe names comes to this machine, once, and again when it has changed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs
from typer.testing import CliRunner

from sentdist import text as addresses
from sentdist.cli import app
from sentdist.data.sources import mirror
from sentdist.data.sources.files import known_names
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.data.sources.mirror import ORIGIN, address_of, data_folder
from sentdist.errors import DataError
from sentdist.plan.recipe import load_recipe
from sentdist.services.processes import free_port
from sentdist.stages.planning.planned import planned_recipe
from sentdist.stages.tasks.load import load_task
from tests.support.faulty_s3 import BUCKET, FaultyS3, faulty_s3
from tests.support.planning import RECIPES

CSV = "sent0,sent1,hard_neg\n" + "".join(f"a {n},b {n},c {n}\n" for n in range(100))


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


@pytest.fixture
def root(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a data root with a few files."""
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mirror._listing.cache_clear()
    filesystem, _ = fs.FileSystem.from_uri(s3.root("data"))
    for name in ("nli/mine.csv", "nli/minerals.csv", "own.csv"):
        with filesystem.open_output_stream(f"{BUCKET}/data/{name}") as stream:
            stream.write(CSV.encode())
    return s3.root("data")


def test_only_what_is_named_comes_and_only_once(root: str, s3: FaultyS3) -> None:
    folder = data_folder(root)
    assert folder is not None and address_of(folder) == root
    assert inspect_source("nli/mine", data_root=folder).num_rows == 100
    assert read_source("nli/mine", data_root=folder).num_rows == 100
    assert sorted(path.name for path in folder.rglob("*.csv")) == ["mine.csv"]
    assert known_names(folder) == ["nli/mine", "nli/minerals", "own"]
    before = s3.num_requests
    read_source("nli/mine", data_root=data_folder(root))
    assert s3.num_requests == before


def test_a_file_that_changes_comes_again(root: str) -> None:
    folder = data_folder(root)
    read_source("nli/mine", data_root=folder)
    filesystem, _ = fs.FileSystem.from_uri(root)
    with filesystem.open_output_stream(f"{BUCKET}/data/nli/mine.csv") as stream:
        stream.write(CSV.replace("a 1,", "z 1,").encode() + b"x,y,z\n")
    mirror._listing.cache_clear()
    assert read_source("nli/mine", data_root=folder).num_rows == 101


@pytest.mark.parametrize("other", [{"size": -1}, {"time": -5.0}])
def test_a_file_of_another_size_or_time_is_not_taken_for_the_one_behind_the_address(root: str, other: dict[str, float]) -> None:
    folder = data_folder(root)
    assert folder is not None
    read_source("own", data_root=folder)
    local = folder / "own.csv"
    at = local.stat().st_mtime + other.get("time", 0.0)
    local.write_text("X" * (len(CSV) + int(other.get("size", 0))))
    os.utime(local, (at, at))
    mirror.copy_into_mirror("own", folder)
    assert local.read_text() == CSV


def test_what_was_renamed_or_removed_behind_the_address_goes_away(root: str, tmp_path: Path) -> None:
    folder = data_folder(root)
    assert folder is not None
    for name in ("nli/mine", "nli/minerals", "own.csv"):
        read_source(name, data_root=folder)
    (folder / "nli/mine.csv.0123.part").write_text("another process writes here")
    (folder / "nli/mine.tsv").write_text("of an earlier day")
    outside = tmp_path / "own.csv"
    outside.write_text(CSV)
    filesystem, _ = fs.FileSystem.from_uri(root)
    filesystem.move(f"{BUCKET}/data/nli/mine.csv", f"{BUCKET}/data/nli/mine.jsonl")
    filesystem.delete_file(f"{BUCKET}/data/own.csv")
    with filesystem.open_output_stream(f"{BUCKET}/data/nli/mine.jsonl") as stream:
        stream.write(b'{"sent0": "a", "sent1": "b"}\n')
    mirror._listing.cache_clear()
    assert read_source("nli/mine", data_root=folder).num_rows == 1
    assert sorted(path.name for path in (folder / "nli").iterdir()) == ["mine.csv.0123.part", "mine.jsonl", "minerals.csv"]
    with pytest.raises(DataError, match="no such file"):
        inspect_source("own", data_root=folder)
    mirror.copy_into_mirror(str(outside), folder)
    assert outside.exists() and address_of(folder) == root
    filesystem.delete_file(f"{BUCKET}/data/nli/mine.jsonl")  # the fixture's own file is what the other tests begin with


def test_a_file_that_came_after_the_listing_stays(root: str) -> None:
    folder = data_folder(root)
    assert folder is not None
    read_source("own", data_root=folder)
    filesystem, _ = fs.FileSystem.from_uri(root)
    with filesystem.open_output_stream(f"{BUCKET}/data/own_more.csv") as stream:
        stream.write(CSV.encode())
    (folder / "own_more.csv").write_text(CSV)  # brought by another process, whose listing is newer
    mirror.copy_into_mirror("own", folder)
    assert (folder / "own_more.csv").exists()
    filesystem.delete_file(f"{BUCKET}/data/own_more.csv")


def test_workers_are_given_the_address_and_not_this_machine_s_folder(root: str, tmp_path: Path) -> None:
    plan, context = planned_recipe(
        load_recipe(RECIPES / "own.yaml", ("corpus.file=own.csv",)), store=str(tmp_path / "store"), data=data_folder(root)
    )
    assert plan.notes[0] == "own.csv: triplets in sent0, sent1, hard_neg"
    sent = pickle.loads(pickle.dumps(context))
    assert sent.data_root == root and sent.data_folder == data_folder(root)
    assert not any("cache" in folder for folder in sent.folders.values())
    task = plan.trials[0].scores.tasks[0]
    shutil.rmtree(tmp_path / "cache")  # another machine
    assert len(load_task(task, sent.data_root, sent.folders).sentences) > 10


def test_the_address_in_a_mirror_is_written_once_and_stays_whole_for_its_readers(root: str) -> None:
    folder = data_folder(root)
    assert folder is not None
    origin = folder / ORIGIN
    before = origin.stat()
    assert data_folder(root) == folder
    after = origin.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with origin.open() as reader:
        origin.write_text("s3://other")
        assert data_folder(root) == folder
        assert reader.read() == "s3://other", "another file takes its place, so that nobody meets half of one"
    assert address_of(folder) == root
    assert [path.name for path in folder.iterdir()] == [ORIGIN]


def test_the_command_line_takes_an_address(root: str, tmp_path: Path) -> None:
    words = ["plan", str(RECIPES / "demo.yaml"), "--data", root, "--store", str(tmp_path / "store"), "--set", "corpus.source=nli/mine"]
    found = CliRunner().invoke(app, [*words, "--set", "corpus.limit=null"])
    assert found.exit_code == 0 and "sharing spares" in found.output, found.output
    found = CliRunner().invoke(app, [*words, "--set", "corpus.source=nli/mien"])
    assert found.exit_code == 2 and "nli/mine" in found.stderr


def test_what_cannot_be_reached_is_reported_in_a_sentence(root: str, s3: FaultyS3) -> None:
    folder = data_folder(root)
    s3.be("no right")
    try:
        with pytest.raises(DataError, match=r"found .*expected data that can be read"):
            inspect_source("nli/mine", data_root=folder)
    finally:
        s3.be(None)
    with pytest.raises(DataError, match="expected a folder, or an s3://"):
        data_folder("ftq://place/data")


@pytest.mark.usefixtures("root")  # a cache of its own
def test_a_bucket_of_google_s_that_does_not_answer_is_reported_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's library tries for a quarter of an hour, in silence."""
    monkeypatch.setattr(addresses, "GCS_GIVES_UP_S", 1.0)
    folder = data_folder(f"gs://anonymous@bucket/data?scheme=http&endpoint_override=127.0.0.1:{free_port()}")
    with pytest.raises(DataError, match=r"gs://bucket/data.*expected data that can be read"):
        inspect_source("nli/mine", data_root=folder)
