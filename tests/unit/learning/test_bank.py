"""Banks: rows by sentence id over shards of files or on a GPU, which is pretended here; damaged ones are refused."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError
from sentdist.learning import device_bank
from sentdist.learning.bank import FileBank
from sentdist.learning.device_bank import DeviceBank, bank_stays, on_device
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.gather import local_rows
from sentdist.recipe.sections import Runtime
from sentdist.stages import train_setup
from sentdist.stages.context import Context
from sentdist.stages.fit import EncoderSize
from sentdist.stages.sharded import BankBody
from sentdist.stages.train_setup import placed
from sentdist.store.store import ArtifactStore
from tests.support import make
from tests.support.pretend_gpu import nobody_waits, pretended_gpu

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
        with pytest.raises(DataError, match=f"{bad_id}; .* 0 to 24"):
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
    with patch("sentdist.learning.encoder.encode.encode", lambda *_, **__: embeddings), reported, (tmp_path / "shard").open("wb") as file:
        body.write(range(20, 30), file)


CPU = torch.device("cpu")


def _banks(folder: Path, *dtypes: str, seed: int = 0) -> FileBank:
    for number, dtype in enumerate(dtypes):
        write_bank(folder / str(number), seed=seed + number, dtype=dtype, per_shard=10 - number)
    return FileBank([folder / str(number) for number in range(len(dtypes))])


def _batch(*, rank: int = 0, world_size: int = 1) -> Batch:
    own = local_rows(4, rank=rank, world_size=world_size)
    ids_CM = np.random.default_rng(1).permutation(ROWS)[:12].reshape(3, 4)
    return Batch(tokens=collate([[0]] * 3 * len(own)), num_columns=3, first_row=own.start, sentence_ids=ids_CM)


@pytest.mark.parametrize("dtypes", [("float16", "float16", "float16"), ("float16", "float32")])
def test_its_rows_are_those_of_the_files(dtypes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their type, over shards and pieces of any size, and as large as it was thought to be before it was read."""
    monkeypatch.setattr(device_bank, "ROWS_AT_ONCE", 7)
    bank, ids = _banks(tmp_path, *dtypes), np.array([[24, 0, 9, 10], [10, 19, 20, 0]])
    with pretended_gpu() as gpu:
        there = on_device(bank, gpu)
        rows = there.rows(ids)
        assert rows.device == gpu and rows.dtype == bank.rows(ids).dtype and torch.equal(rows.cpu(), bank.rows(ids))
        assert bank.num_bytes == len(dtypes) * ROWS * WIDTH * rows.element_size()
        with pytest.raises(DataError, match=f"outside the bank.* {ROWS}"):
            there.rows(np.array([3, ROWS]))


@pytest.mark.parametrize("name", ["rcl", "regulators"])
def test_a_step_learns_the_same_and_nobody_waits(name: str, tmp_path: Path) -> None:
    """As from rows that came with the batch: value and gradient to the last bit."""
    bank, batch = _banks(tmp_path, "float16", "float16"), _batch()
    values: Any = {"temperature": 0.1}

    def step(loss: Any, one: Batch) -> tuple[Tensor, Tensor]:
        embeddings = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(0)).to(gpu).requires_grad_()
        with nobody_waits():
            value = loss(embeddings, one)
            (gradient,) = torch.autograd.grad(value, embeddings)
        return value.detach().cpu(), gradient.cpu()

    with pretended_gpu() as gpu:
        from_host = step(getattr(make, name)(bank=bank, **values), bank.prepared(batch).to(gpu))
        there = on_device(bank, gpu)
        from_gpu = step(getattr(make, name)(bank=there, **values), there.prepared(batch).pinned().to(gpu))
    assert torch.equal(from_host[0], from_gpu[0]) and torch.equal(from_host[1], from_gpu[1])


def _num_banks() -> int:
    return sum(type(one) is DeviceBank for one in gc.get_objects())


def test_another_bank_takes_its_place_and_nothing_stays_behind(tmp_path: Path) -> None:
    """Its memory is free before that of the other is taken; and one that was made anew in the same folder is another."""
    first, second = _banks(tmp_path / "one", "float16"), _banks(tmp_path / "other", "float16", seed=5)
    gc.collect()
    before = _num_banks()
    with pretended_gpu() as gpu:
        with bank_stays():
            on_device(first, gpu)
            taken: list[int] = []
            with patch.object(device_bank, "_copied", lambda bank, device: taken.append(_num_banks()) or _table(bank)):
                on_device(second, gpu)
            assert taken == [before] and _num_banks() == before + 1
            shutil.rmtree(tmp_path / "other")
            anew = _banks(tmp_path / "other", "float16", seed=9)
            assert torch.equal(on_device(anew, gpu).rows(np.arange(3)).cpu(), anew.rows(np.arange(3)))
        assert _num_banks() == before
        on_device(first, gpu)
        assert _num_banks() == before, "a training that is alone keeps its bank itself"


def _table(bank: Any) -> Tensor:
    table: Tensor = bank.rows(np.arange(bank.num_sentences))
    return table


TINY = EncoderSize(num_parameters=1000, num_layers=1, width=WIDTH, num_heads=1)


STAGE: Any = SimpleNamespace(
    encoder=None, num_columns=3, training=SimpleNamespace(precision="fp32", batch_size=4, max_length=8, freeze_encoder=False)
)


@pytest.mark.parametrize(("num_bytes", "gpus", "is_there"), [(2**31, 1.0, True), (2**31, 0.5, False), (1600, 1.0, False)])
def test_it_goes_where_there_is_room(num_bytes: int, gpus: float, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half a GPU of 2 GiB a worker of a tiny encoder has nothing left beside CUDA's own; on a CPU all stays as it is."""
    bank = _banks(tmp_path, "float16")
    context: Any = SimpleNamespace(runtime=Runtime(gpus_per_worker=gpus, engine="torch"))
    monkeypatch.setattr(train_setup, "size_of", lambda *_: TINY)
    with pretended_gpu() as gpu, bank_stays():
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=num_bytes))
        found = placed(bank, STAGE, context, gpu)
        assert (found is not bank) == is_there
        assert placed(bank, STAGE, context, CPU) is bank
        other = placed(bank, STAGE, context, gpu)
        assert other is not found or not is_there, "in between another training read no bank there"
        assert placed(None, STAGE, context, gpu) is None
