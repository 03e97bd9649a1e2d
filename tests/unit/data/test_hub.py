"""The Hub: names and revisions are checked here; what the Hub answers is put in by hand, for a test has no network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.errors import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("name", ["hub:stsb", "hub:", "hub:a/b/c", "hub:/b"])
def test_names(name: str) -> None:
    with pytest.raises(DataError, match="hub:OWNER/NAME"):
        inspect_source(name, hub_revision=COMMIT)


def test_a_revision_is_needed() -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match="no revision; expected the commit"):
            look("hub:owner/name")


def test_no_network_is_one_clear_sentence(tmp_path: Path) -> None:
    """In a process of its own: the libraries read the address of the Hub when they are imported. Port 9 of this host refuses at once."""
    script = (
        "from sentdist.data.sources.hub import inspect_source\n"
        "from sentdist.errors import DataError\n"
        "try:\n"
        f"    inspect_source('hub:owner/name', hub_revision={COMMIT!r})\n"
        "except DataError as error:\n"
        "    print(error)\n"
    )
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith("hub:owner/name: found no answer from the hub"), done.stderr
    assert done.stdout.endswith("Or download the data set elsewhere and put it under the data root as Parquet.\n")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub with one data set of two splits."""
    import datasets
    import huggingface_hub

    parts = {
        "train": datasets.Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"]}),
        "test": datasets.Dataset.from_dict({"sentence1": ["e"], "sentence2": ["f"]}),
    }

    def dataset_info(self: object, path: str, **settings: Any) -> SimpleNamespace:
        if path != "owner/name":
            raise ConnectionError("no such host")
        return SimpleNamespace(sha=COMMIT)

    def builder(path: str, config: str | None, *, revision: str) -> SimpleNamespace:
        if config not in (None, "default"):
            raise ValueError(f"BuilderConfig '{config}' not found. Available: ['default']")
        sizes = {name: SimpleNamespace(num_examples=len(part)) for name, part in parts.items()}
        return SimpleNamespace(info=SimpleNamespace(splits=sizes, features=parts["train"].features))

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets, "load_dataset", lambda path, config, *, revision: datasets.DatasetDict(parts))


@pytest.mark.usefixtures("hub")
def test_facts_pin_the_commit() -> None:
    facts = inspect_source("hub:owner/name", hub_revision="main")
    assert (facts.revision, facts.num_rows, facts.columns, facts.splits) == (COMMIT, 3, ("sentence1", "sentence2"), ("train", "test"))
    assert inspect_source("hub:owner/name:default", split="test", hub_revision="main").num_rows == 1


@pytest.mark.usefixtures("hub")
def test_a_commit_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    pinned = inspect_source("hub:owner/name", hub_revision=COMMIT)
    inspect_source("hub:owner/name", hub_revision="main")

    def gone(self: object, path: str, **settings: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", gone)
    assert inspect_source("hub:owner/name", hub_revision=COMMIT) == pinned
    with pytest.raises(DataError, match="no network"):
        inspect_source("hub:owner/name", hub_revision="main")


@pytest.mark.usefixtures("hub")
def test_rows() -> None:
    table = read_source("hub:owner/name", split="train", hub_revision=COMMIT)
    assert table.to_pylist() == [{"sentence1": "a", "sentence2": "c"}, {"sentence1": "b", "sentence2": "d"}]
    assert {str(kind) for kind in table.schema.types} == {"large_string"}
    assert read_source("hub:owner/name", hub_revision=COMMIT, columns=("split",))["split"].to_pylist() == ["train", "train", "test"]


@pytest.mark.usefixtures("hub")
def test_the_hub_is_asked_for_the_configuration_and_revision_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    def loaded(path: str, config: str | None, *, revision: str) -> datasets.DatasetDict:
        return datasets.DatasetDict({"all": datasets.Dataset.from_dict({"asked": [f"{path} {config} {revision}"]})})

    def commit_of(self: object, path: str, *, revision: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(sha={"v1": "1" * 40, "v2": "2" * 40}[revision])

    def builder(path: str, config: str | None, *, revision: str) -> SimpleNamespace:
        """A commit whose digits are 2 has two rows."""
        return SimpleNamespace(info=SimpleNamespace(splits={"all": SimpleNamespace(num_examples=int(revision[0]))}, features={"a": None}))

    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets, "load_dataset", loaded)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", commit_of)
    assert read_source("hub:owner/name:small", split="all", hub_revision=COMMIT)["asked"].to_pylist() == [f"owner/name small {COMMIT}"]
    assert read_source("hub:owner/name", split="all", hub_revision=COMMIT)["asked"].to_pylist() == [f"owner/name None {COMMIT}"]
    facts = [inspect_source("hub:owner/name", hub_revision=tag) for tag in ("v1", "v2")]
    assert [(one.revision, one.num_rows) for one in facts] == [("1" * 40, 1), ("2" * 40, 2)]


@pytest.mark.usefixtures("hub")
def test_a_column_of_that_name_is_the_data_set_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    parts = {part: datasets.Dataset.from_dict({"split": [f"own {part}"]}) for part in ("a", "b")}
    monkeypatch.setattr(datasets, "load_dataset", lambda path, config, *, revision: datasets.DatasetDict(parts))
    assert read_source("hub:owner/name", hub_revision=COMMIT).to_pylist() == [{"split": "own a"}, {"split": "own b"}]


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
