"""A bank that lies on a GPU, which is pretended here: the same rows to the last bit, one operation a step, and for how long it stays."""

from __future__ import annotations

import gc
import shutil
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
from sentdist.learning.device_bank import bank_stays, bytes_of_banks, on_device
from sentdist.learning.encoder.batch import Batch, collate
from sentdist.learning.gather import local_rows
from sentdist.plan.runtime import Runtime
from sentdist.stages import bank_place
from sentdist.stages.bank_place import placed
from sentdist.stages.planning.worker_memory import EncoderSize
from tests.support import make
from tests.support.pretend_gpu import nobody_waits, pretended_gpu
from tests.unit.learning.test_bank import ROWS, WIDTH, write_bank

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
        assert there.num_bytes == bank.num_bytes == len(dtypes) * ROWS * WIDTH * rows.element_size()
        with pytest.raises(DataError, match=f"such as {ROWS}"):
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


def test_another_bank_takes_its_place_and_nothing_stays_behind(tmp_path: Path) -> None:
    """Its memory is free before that of the other is taken; and one that was made anew in the same folder is another."""
    first, second = _banks(tmp_path / "one", "float16"), _banks(tmp_path / "other", "float16", seed=5)
    gc.collect()
    before = bytes_of_banks()
    with pretended_gpu() as gpu:
        with bank_stays():
            on_device(first, gpu)
            taken: list[int] = []
            with patch.object(device_bank, "_copied", lambda bank, device: taken.append(bytes_of_banks()) or _table(bank)):
                on_device(second, gpu)
            assert taken == [before] and bytes_of_banks() == before + second.num_bytes
            shutil.rmtree(tmp_path / "other")
            anew = _banks(tmp_path / "other", "float16", seed=9)
            assert torch.equal(on_device(anew, gpu).rows(np.arange(3)).cpu(), anew.rows(np.arange(3)))
        assert bytes_of_banks() == before
        on_device(first, gpu)
        assert bytes_of_banks() == before, "a training that is alone keeps its bank itself"


def _table(bank: Any) -> Tensor:
    table: Tensor = bank.rows(np.arange(bank.num_sentences))
    return table


TINY = EncoderSize(num_tokens=10, num_positions=10, num_layers=1, width=WIDTH, inner_width=WIDTH, num_heads=1)
STAGE: Any = SimpleNamespace(
    encoder=None, num_columns=3, training=SimpleNamespace(precision="fp32", batch_size=4, max_length=8, freeze_encoder=False)
)


@pytest.mark.parametrize(("num_bytes", "gpus", "is_there"), [(2**31, 1.0, True), (2**31, 0.5, False), (1600, 1.0, False)])
def test_it_goes_where_there_is_room(num_bytes: int, gpus: float, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half a GPU of 2 GiB a worker of a tiny encoder has nothing left beside CUDA's own; on a CPU all stays as it is."""
    bank = _banks(tmp_path, "float16")
    context: Any = SimpleNamespace(runtime=Runtime(gpus_per_worker=gpus, engine="torch"))
    monkeypatch.setattr(bank_place, "size_of", lambda *_: TINY)
    with pretended_gpu() as gpu, bank_stays():
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=num_bytes))
        found = placed(bank, STAGE, context, gpu)
        assert (found is not bank) == is_there
        assert placed(bank, STAGE, context, CPU) is bank
        other = placed(bank, STAGE, context, gpu)
        assert other is not found or not is_there, "in between another training read no bank there"
        assert placed(None, STAGE, context, gpu) is None
