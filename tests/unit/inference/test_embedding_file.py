"""Embeddings in files: what is written is read, and what is not whole is not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.errors import DataError
from sentdist.inference.embedding_file import SUFFIXES, check_made_by, embedding_writer, open_embeddings
from sentdist.inference.export import check_output
from sentdist.recipe.stage import Json

FACTS: dict[str, Json] = {"encoder": "sha256:1", "pooling": "mean", "max_length": 40}


def _write(path: Path, embeddings_SD: np.ndarray, *, dtype: str = "float32", ids: list[str] | None = None) -> None:
    with embedding_writer(path, width=embeddings_SD.shape[1], dtype=dtype, facts=FACTS, with_ids=ids is not None) as writer:
        for first in range(0, len(embeddings_SD), 3):
            writer.write(embeddings_SD[first : first + 3], None if ids is None else ids[first : first + 3])


def test_a_table_holds_ids_embeddings_and_facts(tmp_path: Path) -> None:
    for dtype in ["float32", "float16"]:
        embeddings = np.random.default_rng(0).normal(size=(7, 4)).astype(dtype)
        _write(tmp_path / "a.parquet", embeddings, dtype=dtype, ids=[f"d{number}" for number in range(7)])
        table = pq.read_table(tmp_path / "a.parquet")
        assert table["id"].to_pylist() == [f"d{number}" for number in range(7)]
        np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), dtype=dtype), embeddings)
        assert json.loads((table.schema.metadata or {})[b"sentdist"]) == FACTS


def test_what_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="embedding 4: found numbers above 65504"):
        _write(tmp_path / "a.npy", np.array([[1.0]] * 4 + [[1e6]]), dtype="float16")
    assert not list(tmp_path.iterdir())


def test_embeddings_of_another_encoder_are_refused(tmp_path: Path) -> None:
    _write(tmp_path / "a.npy", np.ones((2, 3), dtype=np.float32))
    found = open_embeddings(tmp_path / "a.npy")
    check_made_by(tmp_path / "a.npy", found, width=3, facts=FACTS | {"precision": "bf16"})
    with pytest.raises(DataError, match="embeddings of width 3; expected width 4"):
        check_made_by(tmp_path / "a.npy", found, width=4, facts=FACTS)
    with pytest.raises(DataError, match="embeddings made with pooling mean; expected pooling cls"):
        check_made_by(tmp_path / "a.npy", found, width=3, facts=FACTS | {"pooling": "cls"})
    with pytest.raises(DataError, match="embeddings made with max_length 40; expected max_length 5"):
        check_made_by(tmp_path / "a.npy", found, width=3, facts=FACTS | {"max_length": 5})
    with pytest.raises(DataError, match="made with prompt ''; expected prompt 'query: ' before documents"):
        check_made_by(tmp_path / "a.npy", found, width=3, facts=FACTS | {"prompt": "query: "})
    (tmp_path / "a.npy.json").unlink()  # somebody else's embeddings: nothing is known but their width
    check_made_by(tmp_path / "a.npy", found, width=3, facts=FACTS | {"pooling": "cls"})


def test_files_that_hold_no_embeddings_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        open_embeddings(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_text("no array")
    with pytest.raises(DataError, match="array of floats"):
        open_embeddings(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.arange(6).reshape(2, 3))
    with pytest.raises(DataError, match="int64 of shape"):
        open_embeddings(tmp_path / "b.npy")


def test_where_nothing_can_be_written_is_reported_before(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    for path, words in (
        (tmp_path / "a.npy", "an existing file"),
        (tmp_path / "a.csv", "suffix"),
        (tmp_path / "b" / "a.npy", "no such folder"),
    ):
        with pytest.raises(DataError, match=words):
            check_output(path, suffixes=SUFFIXES, overwrite=False)
    check_output(tmp_path / "a.npy", suffixes=SUFFIXES, overwrite=True)
