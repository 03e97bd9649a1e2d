"""What programs and commands hand over: sentences, vectors, names of encoders, paths of files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

from sentdist.api.encoders import embeddings_of, sentences_of
from sentdist.errors import DataError, RecipeError, StoreError
from sentdist.inference.export import average_encoders
from sentdist.inference.opening import encoder_folder
from sentdist.inference.planned_scores import own_files
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store


def test_a_column_of_another_library_is_a_list_of_sentences() -> None:
    for column in [
        pa.array(["a dog", "a cat"]),
        pa.chunked_array([["a dog"], ["a cat"]]),
        pd.Series(["a dog", "a cat"]),
        np.array(["a dog", "a cat"]),
    ]:
        assert sentences_of("here", column) == ["a dog", "a cat"]


def test_what_is_no_list_of_sentences() -> None:
    for given, words in [
        (None, "found a NoneType"),
        ([], "found no sentences"),
        (["a", None], r"w\[1\]: found None"),
        (b"a dog", "found a bytes; expected a list of sentences"),
        (np.array([["a", "b"]]), r"w\[0\]: found"),
        (["fine", "bad \ud83d"], r"w\[1\]: found"),
        (["fine", " "], r"w\[1\]: found ' '"),
    ]:
        with pytest.raises(DataError, match=words):
            sentences_of("w", given)


def test_vectors_of_any_kind() -> None:
    for made in [np.asarray, torch.tensor, list]:
        assert embeddings_of("w", made([[1.0, 2.0], [3.0, 4.0]]), num_rows=2).tolist() == [[1.0, 2.0], [3.0, 4.0]]
        with pytest.raises(DataError, match=r"shape \(2, 2\); expected \(3, width\)"):
            embeddings_of("w", made([[1.0, 2.0], [3.0, 4.0]]), num_rows=3)


def test_what_is_no_table_of_numbers() -> None:
    for made in [[1.0, 2.0], np.ones((2, 2), dtype=complex), [["a", "b"], ["c", "d"]]]:
        with pytest.raises(DataError, match=r"w: found .*; expected \(2, width\)"):
            embeddings_of("w", made, num_rows=2)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("here/pairs.tsv", "here/below/more.csv", "there/test.tsv", "data/pairs.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_without_a_root_paths_are_what_a_shell_means(here: Path) -> None:
    assert own_files(["sts=pairs.tsv"], None) == (("sts=pairs.tsv",), here / "here")
    assert own_files(["sts=./pairs.tsv", "faq=below/more"], None) == (("sts=pairs.tsv", "faq=below/more"), here / "here")
    assert own_files([f"sts={here}/here/pairs.tsv@test"], None) == (("sts=pairs.tsv@test",), here / "here")
    assert own_files([f"pairs={here}/there/test.tsv"], None) == (("pairs=test.tsv",), here / "there")
    assert own_files(["sts=../there/test.tsv", "sts=pairs.tsv"], None) == (("sts=there/test.tsv", "sts=here/pairs.tsv"), here)


def test_queries_and_documents_that_the_root_lacks_are_found_here_too(here: Path) -> None:
    """In a folder of BEIR's shape, or as three files of one name; and a table without its suffix."""
    for name in ("beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "faq_docs.csv", "faq_queries.csv", "faq_qrels.txt"):
        (here / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "here" / name).touch()
    for task in ("retrieval=beir", "retrieval=beir@test", "retrieval=faq", "sts=below/more"):
        assert own_files([task], here / "data") == ((task,), here / "here")
    assert own_files(["retrieval=beir/"], here / "data") == (("retrieval=beir",), here / "here")
    (here / "here/beir/queries.jsonl").unlink()
    assert own_files(["retrieval=beir"], here / "data")[1] == here / "here", "what is missing there is reported by who reads it"


def test_a_path_beside_tasks_below_the_root_is_refused(here: Path) -> None:
    for other in ["stsb", "sts", "sts=pairs.tsv"]:
        with pytest.raises(RecipeError, match=rf"not below the data root .*, beside {other}, which is.*a separate command"):
            own_files([other, "sts=below/more.csv"], here / "data")


def test_what_is_no_file_needs_no_folder(here: Path) -> None:
    for task in ["sts", "stsb", "sts=hub:owner/name@test", "sts=generated/sts", "nonsense=pairs.tsv", "sts="]:
        assert own_files([task], None) == ((task,), None)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    plan = plan_of(small_recipe(methods={"one": {"objective": {"name": "info_nce"}}}, seeds=[0, 1], evaluation={"tasks": ["stsb"]}))
    made = ArtifactStore(tmp_path / "store")
    fill_store(made, plan, noise=lambda trial: 1.0, num_items={"stsb": 20})
    return made


def test_a_training_is_known_by_key_and_label_though_its_scores_bear_the_label_too(store: ArtifactStore) -> None:
    train = min(store.artifacts("train"), key=lambda artifact: artifact.record.label)
    assert sum(train.record.label == other.record.label for other in store.artifacts()) > 1
    folder = str(store.folder(train))
    for name in (train.key, train.key[:8], train.key[:5], train.record.place, train.record.place.partition("/")[2], train.record.label):
        assert encoder_folder(name, store) == folder


def test_all_else_is_a_checkpoint_as_it_stands(store: ArtifactStore, tmp_path: Path) -> None:
    for name in ("minilm-l6", "owner/name", str(tmp_path)):
        assert encoder_folder(name, store) == name
    with pytest.raises(StoreError, match="expected one artifact"):
        encoder_folder("0123456789", store)


def test_weights_are_means_and_the_rest_is_the_first_ones(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_encoder_dir, other)
    first = load_file(tiny_encoder_dir / "model.safetensors")
    moved = {name: weights + 2.0 if weights.is_floating_point() else weights for name, weights in first.items()}
    save_file(moved, other / "model.safetensors", metadata={"format": "pt"})
    average_encoders([tiny_encoder_dir, other], tmp_path / "mean")
    found = load_file(tmp_path / "mean/model.safetensors")
    assert found.keys() == first.keys()
    for name, weights in first.items():
        expected = weights + 1.0 if weights.is_floating_point() else weights
        torch.testing.assert_close(found[name], expected)
    assert (tmp_path / "mean/config.json").read_text() == (tiny_encoder_dir / "config.json").read_text()
