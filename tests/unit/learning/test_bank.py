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
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.stages import banks
from sentdist.stages.banks import BankBody
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support import make

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


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_come_in_the_order_asked_across_shards(dtype: str, tmp_path: Path) -> None:
    tables = [write_bank(tmp_path / str(n), seed=n, dtype=dtype) for n in range(3)]
    bank = FileBank([tmp_path / str(n) for n in range(3)])
    ids = np.array([[24, 0, 9, 10], [10, 19, 20, 0]])
    rows = bank.rows(ids)
    assert rows.shape == (3, 8, WIDTH)
    assert rows.dtype == getattr(torch, dtype), "a GPU is sent what is stored"
    np.testing.assert_array_equal(rows.numpy(), np.stack([table[ids.ravel()] for table in tables]))


def test_encoders_whose_shards_and_types_differ_are_one_bank(tmp_path: Path) -> None:
    """In the wider type, so that no number is rounded."""
    tables = [
        write_bank(tmp_path / "0", seed=0, dtype="float16", per_shard=7),
        write_bank(tmp_path / "1", seed=1, dtype="float32", per_shard=10),
        write_bank(tmp_path / "2", seed=2, dtype="float16", per_shard=ROWS),
    ]
    rows = FileBank([tmp_path / str(n) for n in range(3)]).rows(np.arange(ROWS)[::-1])
    assert rows.dtype == torch.float32
    np.testing.assert_array_equal(rows.numpy(), np.stack([table[::-1].astype(np.float32) for table in tables]))


def test_a_rank_looks_up_its_own_rows_column_by_column(tmp_path: Path) -> None:
    tables = [write_bank(tmp_path / str(n), seed=n) for n in range(2)]
    ids_CM = np.random.default_rng(1).permutation(ROWS)[:12].reshape(2, 6)
    batch = Batch(tokens=collate([[0]] * 6), num_columns=2, first_row=2, sentence_ids=ids_CM)
    rows_NCBD = FileBank([tmp_path / "0", tmp_path / "1"]).augmented(batch)
    np.testing.assert_array_equal(rows_NCBD.numpy(), np.stack([table[ids_CM[:, 2:5]] for table in tables]))


def test_shards_are_mapped_and_read_only(tmp_path: Path) -> None:
    write_bank(tmp_path / "0")
    shards = FileBank([tmp_path / "0"])._shards[0]
    assert all(isinstance(shard, np.memmap) and not shard.flags.writeable for shard in shards)


def damage_width(folder: Path) -> None:
    np.save(folder / "shards" / "00001.npy", np.ones((ROWS_PER_SHARD, WIDTH + 1), dtype=np.float32))


def damage_type(folder: Path) -> None:
    np.save(folder / "shards" / "00001.npy", np.ones((ROWS_PER_SHARD, WIDTH)))


def remove_shard(folder: Path) -> None:
    (folder / "shards" / "00002.npy").unlink()


def cut_shard(folder: Path) -> None:
    path = folder / "shards" / "00000.npy"
    path.write_bytes(path.read_bytes()[:-40])


def empty_facts(folder: Path) -> None:
    (folder / "bank.json").write_text("{}")


def remove_facts(folder: Path) -> None:
    (folder / "bank.json").unlink()


def senseless_facts(folder: Path) -> None:
    (folder / "bank.json").write_text(json.dumps({"num_sentences": 0, "width": 6, "dtype": "float32", "rows_per_shard": 10}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_width, r"00001\.npy.*\(10, 7\).*\(10, 6\)"),
        (damage_type, r"00001\.npy.*float64.*float32"),
        (remove_shard, r"00002\.npy.*\(5, 6\)"),
        (cut_shard, r"00000\.npy"),
        (empty_facts, r"bank\.json.*num_sentences"),
        (remove_facts, r"bank\.json.*no such file"),
        (senseless_facts, r"bank\.json.*positive num_sentences"),
    ],
)
def test_damage_is_found_when_the_bank_is_opened(damage: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    write_bank(tmp_path / "0")
    damage(tmp_path / "0")
    with pytest.raises(DataError, match=words):
        FileBank([tmp_path / "0"])


@pytest.mark.parametrize("other", [{"rows": 24}, {"width": 7}])
def test_artifacts_that_do_not_fit_together_are_refused(other: dict, tmp_path: Path) -> None:
    write_bank(tmp_path / "0")
    write_bank(tmp_path / "1", **other)
    with pytest.raises(DataError, match="25 of width 6"):
        FileBank([tmp_path / "0", tmp_path / "1"])


def test_a_bank_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="at least one phi"):
        FileBank([])


@pytest.mark.parametrize("bad_id", [-1, ROWS])
def test_missing_ids_are_named(bad_id: int, tmp_path: Path) -> None:
    write_bank(tmp_path / "0")
    with pytest.raises(DataError, match=rf"such as {bad_id}; expected ids from 0 to 24"):
        FileBank([tmp_path / "0"]).rows(np.array([3, bad_id]))


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, "float32"), (np.inf, "float32"), (0.0, "float32"), (1e5, "float16")])
def test_an_embedding_without_a_direction_becomes_no_bank(value: float, dtype: str, tmp_path: Path) -> None:
    """Looked at once, in the type that is stored: 1e5 is more than float16 holds."""
    embeddings = np.random.default_rng(0).standard_normal((10, WIDTH)).astype(np.float32)
    embeddings[4] = value
    stage: Any = SimpleNamespace(label="e", max_length=8, precision="fp32", dtype=dtype)
    body = BankBody(stage, Context(store=ArtifactStore(tmp_path)))
    body.__dict__ |= {"_corpus": SimpleNamespace(sentences=lambda ids: ["a"] * len(ids)), "_encoder": None}
    reported = pytest.raises(DataError, match="bank e: found 1 embeddings that are not finite or zero, first that of sentence 24")
    with patch.object(banks, "encode", lambda *_, **__: embeddings), reported, (tmp_path / "shard").open("wb") as file:
        body.write(range(20, 30), file)


def test_rows_that_come_with_a_batch_are_those_that_are_looked_up(tmp_path: Path) -> None:
    """In float16, and looked up by the loss itself: value and gradient to the last bit."""
    for number in range(2):
        write_bank(tmp_path / str(number), seed=number, dtype="float16")
    bank = FileBank([tmp_path / "0", tmp_path / "1"])
    ids_CM = np.random.default_rng(1).permutation(ROWS)[:12].reshape(3, 4)
    batch = Batch(tokens=collate([[0]] * 12), num_columns=3, first_row=0, sentence_ids=ids_CM)
    found = []
    for one in (batch, bank.prepared(batch)):
        embeddings = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()
        loss = make.rcl(bank=bank, temperature=0.1)(embeddings, one)
        loss.backward()
        found.append((loss.detach(), embeddings.grad))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
