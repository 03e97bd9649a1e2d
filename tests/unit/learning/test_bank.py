"""The file bank: rows by sentence id over shards, and clear words about damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from sentdist.errors import DataError
from sentdist.learning.bank import FileBank
from sentdist.learning.encoder.batch import Batch, collate
from sentdist.stages import banks
from sentdist.stages.banks import BankBody
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore

ROWS, WIDTH, ROWS_PER_SHARD = 25, 6, 10


def write_bank(
    folder: Path, *, seed: int = 0, dtype: str = "float32", rows: int = ROWS, width: int = WIDTH, per_shard: int = ROWS_PER_SHARD
) -> np.ndarray:
    table = np.random.default_rng(seed).normal(size=(rows, width)).astype(dtype)
    (folder / "shards").mkdir(parents=True)
    for shard, first in enumerate(range(0, rows, per_shard)):
        np.save(folder / "shards" / f"{shard:05d}.npy", table[first : first + per_shard])
    facts = {"num_sentences": rows, "width": width, "dtype": dtype, "rows_per_shard": per_shard}
    (folder / "bank.json").write_text(json.dumps(facts))
    return table


@pytest.mark.parametrize("dtype", ["float16"])
def test_rows_come_in_the_order_asked_across_shards(dtype: str, tmp_path: Path) -> None:
    tables = [write_bank(tmp_path / str(n), seed=n, dtype=dtype) for n in range(3)]
    bank = FileBank([tmp_path / str(n) for n in range(3)])
    ids = np.array([[24, 0, 9, 10], [10, 19, 20, 0]])
    rows = bank.rows(ids)
    assert rows.shape == (3, 8, WIDTH)
    assert rows.dtype == getattr(torch, dtype), "a GPU is sent what is stored"
    np.testing.assert_array_equal(rows.numpy(), np.stack([table[ids.ravel()] for table in tables]))


def test_a_rank_looks_up_its_own_rows_column_by_column(tmp_path: Path) -> None:
    tables = [write_bank(tmp_path / str(n), seed=n) for n in range(2)]
    ids_CM = np.random.default_rng(1).permutation(ROWS)[:12].reshape(2, 6)
    batch = Batch(tokens=collate([[0]] * 6), num_columns=2, first_row=2, sentence_ids=ids_CM)
    rows_NCBD = FileBank([tmp_path / "0", tmp_path / "1"]).augmented(batch)
    np.testing.assert_array_equal(rows_NCBD.numpy(), np.stack([table[ids_CM[:, 2:5]] for table in tables]))


def test_damage_is_found_when_the_bank_is_opened(tmp_path: Path) -> None:
    facts = {"num_sentences": 0, "width": 6, "dtype": "float32", "rows_per_shard": 10}
    damages: list[tuple[str, Callable[[Path], object]]] = [
        ("shards/00001.npy", lambda file: np.save(file, np.ones((ROWS_PER_SHARD, WIDTH + 1), dtype=np.float32))),
        ("shards/00001.npy", lambda file: np.save(file, np.ones((ROWS_PER_SHARD, WIDTH)))),
        ("shards/00002.npy", Path.unlink),
        ("shards/00000.npy", lambda file: file.write_bytes(file.read_bytes()[:-40])),
        ("bank.json", Path.unlink),
        ("bank.json", lambda file: file.write_text("{}")),
        ("bank.json", lambda file: file.write_text(json.dumps(facts))),
    ]
    for number, (place, damage) in enumerate(damages):
        folder = tmp_path / str(number)
        write_bank(folder)
        damage(folder / place)
        with pytest.raises(DataError, match=Path(place).name):
            FileBank([folder])


def test_artifacts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    whole, shorter, wider = (tmp_path / name for name in ("whole", "shorter", "wider"))
    write_bank(whole)
    write_bank(shorter, rows=24)
    write_bank(wider, width=7)
    for folders in ([whole, shorter], [whole, wider], []):
        with pytest.raises(DataError, match="bank"):
            FileBank(folders)


def test_missing_ids_are_named(tmp_path: Path) -> None:
    write_bank(tmp_path / "0")
    for bad_id in (-1, ROWS):
        with pytest.raises(DataError, match=rf"such as {bad_id}; .* 0 to 24"):
            FileBank([tmp_path / "0"]).rows(np.array([3, bad_id]))


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, "float32"), (0.0, "float32"), (1e5, "float16")])
def test_an_embedding_without_a_direction_becomes_no_bank(value: float, dtype: str, tmp_path: Path) -> None:
    """Looked at once, in the type that is stored: 1e5 is more than float16 holds."""
    embeddings = np.random.default_rng(0).standard_normal((10, WIDTH)).astype(np.float32)
    embeddings[4] = value
    stage: Any = SimpleNamespace(label="e", max_length=8, precision="fp32", dtype=dtype)
    body = BankBody(stage, Context(store=ArtifactStore(tmp_path)))
    body.__dict__ |= {"_corpus": SimpleNamespace(sentences=lambda ids: ["a"] * len(ids)), "_encoder": None}
    reported = pytest.raises(DataError, match="sentence 24")
    with patch.object(banks, "encode", lambda *_, **__: embeddings), reported, (tmp_path / "shard").open("wb") as file:
        body.write(range(20, 30), file)
