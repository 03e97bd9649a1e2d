"""Sources by their names: tables, generated ones, the hub, and a mirror of an object store."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sentdist.data import files, generated, mirror
from sentdist.data.files import GENERATED_SOURCES
from sentdist.data.mirror import address_of, data_folder
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources import inspect_source, read_source
from sentdist.data.tables import content_digest, find_table
from sentdist.errors import DataError
from sentdist.stages.resolve import FileResolver
from tests.support.faulty_s3 import BUCKET, FaultyS3, faulty_s3

TRIPLETS = {
    "split": ["train", "train", "dev"],
    "sent0": ["A man cooks.", "Two dogs run.", "It rains."],
    "sent1": ["A person cooks.", "Animals run.", "The weather is wet."],
    "hard_neg": ["Nobody cooks.", "Two dogs sleep.", "The sun shines."],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "nli").mkdir(parents=True)
    pq.write_table(pa.table(TRIPLETS), tmp_path / "data" / "nli" / "triplets.parquet")
    return tmp_path / "data"


def _made_long_ago(path: Path) -> None:
    os.utime(path, (time.time() - 3600, time.time() - 3600))


def test_facts_are_remembered_until_the_file_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "nli" / "triplets.parquet"
    digested: list[Path] = []
    monkeypatch.setattr(files, "content_digest", lambda path: digested.append(path) or content_digest(path))
    for _ in range(2):
        inspect_source("nli/triplets", data_root=root)
    assert len(digested) == 2, "written a moment ago: it may change again within one tick of the clock"
    _made_long_ago(path)
    first = [inspect_source("nli/triplets", data_root=root) for _ in range(2)][1]
    assert len(digested) == 3
    pq.write_table(pa.table(TRIPLETS).slice(1), path)
    assert inspect_source("nli/triplets", data_root=root).digest != first.digest


def test_names_of_no_source_are_refused(root: Path) -> None:
    (root / "pairs.xlsx").write_bytes(b"PK")
    (root / "scifact.tgz").write_bytes(b"PK")
    (root / "some.csv").write_text("one,two,one\na,b,c\n")
    for name, said in (
        ("pairs.xlsx", "as CSV"), ("scifact.tgz", "suffix .tgz"), ("some", "several columns one"), ("nli/triplet", r'Did you mean "triplets\.'),
        ("../data/nli/triplets", "below the data root"), ("/etc/passwd", "below the data root"), ("", "below the data root"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=said) as caught:
            inspect_source(name, data_root=root)
        assert pickle.loads(pickle.dumps(caught.value)).remedy == caught.value.remedy
    (root / "nli" / "triplets.csv").write_text("sent0\nA.\n")
    with pytest.raises(DataError, match="2 files"):
        read_source("nli/triplets", data_root=root)
    assert inspect_source("nli/triplets.csv", data_root=root).num_rows == 1
    for place, said in ((None, "SENTDIST_DATA"), (root / "absent", "no folder")):
        with pytest.raises(DataError, match=said):
            inspect_source("nli/triplets", data_root=place)


# Whoever changes what is generated raises corpora.REVISION and writes the new digests here, in one commit.
DIGESTS = {"generated/nli": "d90de154b9cadb8f", "generated/sts": "36eff3d87df0ee6c", "generated/faq": "33d5aaaa749e71ad"}


def _digest(name: str) -> str:
    rows = "\n".join("\t".join(str(cell) for cell in row.values()) for row in generated.read(name).to_pylist())
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def test_a_revision_stands_for_one_content() -> None:
    assert (generated.REVISION, {name: _digest(name) for name in DIGESTS}) == ("helpdesk-1", DIGESTS)
    assert tuple(generated.GENERATED) == GENERATED_SOURCES


def test_unknown_names_splits_and_columns() -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match='Did you mean "generated/nli"'):
            look("generated/nly")
        with pytest.raises(DataError, match="expected one of train, dev, test"):
            look("generated/nli", split="valid")
        with pytest.raises(DataError, match="sentence1 missing"):
            look("generated/nli", columns=("sentence1",))
    with pytest.raises(DataError, match="no split"):
        read_retrieval("generated/faq", split="train")


CSV = "sent0,sent1,hard_neg\n" + "".join(f"a {n},b {n},c {n}\n" for n in range(100))


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


@pytest.fixture
def address(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
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


def test_only_what_is_named_comes_and_only_once(address: str, s3: FaultyS3) -> None:
    folder = data_folder(address)
    assert folder is not None and address_of(folder) == address
    assert inspect_source("nli/mine", data_root=folder).num_rows == 100
    assert read_source("nli/mine", data_root=folder).num_rows == 100
    assert sorted(path.name for path in folder.rglob("*.csv")) == ["mine.csv"]
    before = s3.num_requests
    read_source("nli/mine", data_root=data_folder(address))
    assert s3.num_requests == before


def test_a_file_is_named_by_its_address(address: str) -> None:
    assert find_table(f"{address}/own.csv").read().num_rows == 100
    assert FileResolver(data_root=None)._own_file(f"{address}/own.csv")[0] == "own.csv"


def test_what_was_renamed_or_removed_behind_the_address_goes_away(address: str) -> None:
    folder = data_folder(address)
    assert folder is not None
    for name in ("nli/mine", "nli/minerals", "own.csv"):
        read_source(name, data_root=folder)
    (folder / "nli/mine.csv.0123.part").write_text("another process writes here")
    (folder / "nli/mine.tsv").write_text("of an earlier day")
    filesystem, _ = fs.FileSystem.from_uri(address)
    filesystem.move(f"{BUCKET}/data/nli/mine.csv", f"{BUCKET}/data/nli/mine.jsonl")
    filesystem.delete_file(f"{BUCKET}/data/own.csv")
    with filesystem.open_output_stream(f"{BUCKET}/data/nli/mine.jsonl") as stream:
        stream.write(b'{"sent0": "a", "sent1": "b"}\n')
    mirror._listing.cache_clear()
    assert read_source("nli/mine", data_root=folder).num_rows == 1
    assert sorted(path.name for path in (folder / "nli").iterdir()) == ["mine.csv.0123.part", "mine.jsonl", "minerals.csv"]
    with pytest.raises(DataError, match="no such file"):
        inspect_source("own", data_root=folder)
    filesystem.delete_file(f"{BUCKET}/data/nli/mine.jsonl")  # the fixture's own file is what the other tests begin with


def test_what_cannot_be_reached_is_reported_in_a_sentence(address: str, s3: FaultyS3) -> None:
    folder = data_folder(address)
    s3.be("no right")
    try:
        with pytest.raises(DataError, match=r"found .*expected data that can be read"):
            inspect_source("nli/mine", data_root=folder)
    finally:
        s3.be(None)
    with pytest.raises(DataError, match="a folder, or an s3://"):
        data_folder("ftq://place/data")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_name_of_another_form_and_one_without_revision_are_refused() -> None:
    for name in ("hub:stsb", "hub:", "hub:a/b/c", "hub:/b"):
        with pytest.raises(DataError, match="hub:OWNER/NAME"):
            inspect_source(name, hub_revision=COMMIT)
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match="no revision; expected the commit"):
            look("hub:owner/name")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None, str]]:
    """A Hub with one data set of two splits, and what it was asked for."""
    import datasets
    import huggingface_hub

    asked: list[tuple[str, str | None, str]] = []
    parts = {
        "train": datasets.Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"]}),
        "test": datasets.Dataset.from_dict({"sentence1": ["e"], "sentence2": ["f"]}),
    }

    def dataset_info(self: object, path: str, *, revision: str, **settings: Any) -> SimpleNamespace:
        if path != "owner/name":
            raise ConnectionError("no such host")
        return SimpleNamespace(sha="1" * 40 if revision == "v1" else COMMIT)

    def builder(path: str, config: str | None, *, revision: str) -> SimpleNamespace:
        asked.append((path, config, revision))
        if config not in (None, "default"):
            raise ValueError(f"BuilderConfig '{config}' not found. Available: ['default']")
        sizes = {name: SimpleNamespace(num_examples=len(part)) for name, part in parts.items()}
        return SimpleNamespace(info=SimpleNamespace(splits=sizes, features=parts["train"].features))

    def loaded(path: str, config: str | None, *, revision: str) -> datasets.DatasetDict:
        asked.append((path, config, revision))
        return datasets.DatasetDict(parts)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets, "load_dataset", loaded)
    return asked


def test_the_hub_is_asked_for_the_configuration_and_revision_that_are_named(hub: list[tuple[str, str | None, str]]) -> None:
    table = read_source("hub:owner/name:default", split="train", hub_revision=COMMIT)
    assert table.to_pylist() == [{"sentence1": "a", "sentence2": "c"}, {"sentence1": "b", "sentence2": "d"}]
    assert {str(kind) for kind in table.schema.types} == {"large_string"}
    assert read_source("hub:owner/name", hub_revision=COMMIT, columns=("split",))["split"].to_pylist() == ["train", "train", "test"]
    facts = inspect_source("hub:owner/name", hub_revision="v1")
    assert (facts.digest, facts.num_rows, facts.columns, tuple(dict(facts.splits))) == (
        "1" * 40,
        3,
        ("sentence1", "sentence2"),
        ("train", "test"),
    )
    assert set(hub) == {("owner/name", "default", COMMIT), ("owner/name", None, COMMIT), ("owner/name", None, "1" * 40)}


@pytest.mark.usefixtures("hub")
def test_unknown_splits_columns_and_configurations() -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match="expected one of train, test"):
            look("hub:owner/name", split="dev", hub_revision=COMMIT)
        with pytest.raises(DataError, match="score missing"):
            look("hub:owner/name", hub_revision=COMMIT, columns=("score",))
    with pytest.raises(DataError, match=r"'strange' not found.*Name one of the configurations"):
        inspect_source("hub:owner/name:strange", hub_revision=COMMIT)
    with pytest.raises(DataError, match="no answer from the hub"):
        inspect_source("hub:owner/other", hub_revision=COMMIT)
