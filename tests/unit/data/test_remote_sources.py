"""Sources behind an address or on the Hub: what a recipe names comes to this machine, pinned by its commit or content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from sentdist.data.sources import mirror
from sentdist.data.sources.files import known_names
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.data.sources.mirror import address_of, data_folder
from sentdist.errors import DataError
from tests.support.faulty_s3 import BUCKET, FaultyS3, faulty_s3

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


def test_what_was_renamed_or_removed_behind_the_address_goes_away(root: str) -> None:
    folder = data_folder(root)
    assert folder is not None
    for name in ("nli/mine", "nli/minerals", "own.csv"):
        read_source(name, data_root=folder)
    (folder / "nli/mine.csv.0123.part").write_text("another process writes here")
    (folder / "nli/mine.tsv").write_text("of an earlier day")
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
    filesystem.delete_file(f"{BUCKET}/data/nli/mine.jsonl")  # the fixture's own file is what the other tests begin with


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
    assert (facts.revision, facts.num_rows, facts.columns, facts.splits) == ("1" * 40, 3, ("sentence1", "sentence2"), ("train", "test"))
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
