"""A bank that lies on a GPU, which is pretended here: the same rows to the last bit, one operation a step, and for how long it stays."""

from __future__ import annotations

import gc
import shutil
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError
from sentdist.learning import device_bank
from sentdist.learning.bank import FileBank
from sentdist.learning.device_bank import bank_stays, bytes_of_banks, let_bank_go, on_device
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.gather import local_rows
from sentdist.plan.sections import Runtime
from sentdist.stages import banks as bank_place
from sentdist.stages.banks import placed
from sentdist.stages.planning.worker_memory import EncoderSize
from tests.parity.processes import run_in_processes
from tests.support import make
from tests.support.pretend_gpu import nobody_waits, pretended_gpu
from tests.unit.learning.test_bank import ROWS, WIDTH, write_bank
from tests.unit.learning.test_step_operations import Counting

CPU = torch.device("cpu")


def _banks(folder: Path, *dtypes: str, seed: int = 0) -> FileBank:
    for number, dtype in enumerate(dtypes):
        write_bank(folder / str(number), seed=seed + number, dtype=dtype, per_shard=10 - number)
    return FileBank([folder / str(number) for number in range(len(dtypes))])


def _batch(*, rank: int = 0, world_size: int = 1) -> Batch:
    own = local_rows(4, rank=rank, world_size=world_size)
    ids_CM = np.random.default_rng(1).permutation(ROWS)[:12].reshape(3, 4)
    return Batch(tokens=collate([[0]] * 3 * len(own)), num_columns=3, first_row=own.start, sentence_ids=ids_CM)


@pytest.mark.parametrize("dtypes", [("float16",), ("float16", "float16", "float16"), ("float32",), ("float16", "float32")])
def test_its_rows_are_those_of_the_files(dtypes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their type, over shards and pieces of any size, and as large as it was thought to be before it was read."""
    monkeypatch.setattr(device_bank, "ROWS_AT_ONCE", 7)
    bank, ids = _banks(tmp_path, *dtypes), np.array([[24, 0, 9, 10], [10, 19, 20, 0]])
    with pretended_gpu() as gpu:
        there = on_device(bank, gpu)
        rows = there.rows(ids)
        assert rows.device == gpu and rows.dtype == bank.rows(ids).dtype and torch.equal(rows.cpu(), bank.rows(ids))
        assert there.num_bytes == bank.num_bytes == len(dtypes) * ROWS * WIDTH * rows.element_size()
        with pytest.raises(DataError, match=f"{tmp_path}.*found 1 ids outside the bank, such as {ROWS}; expected ids from 0 to {ROWS - 1}"):
            there.rows(np.array([3, ROWS]))


@pytest.mark.parametrize("name", ["rcl", "regulators"])
def test_a_step_learns_the_same_with_one_operation_and_nobody_waits(name: str, tmp_path: Path) -> None:
    """As from rows that came with the batch: value and gradient to the last bit."""
    bank, batch = _banks(tmp_path, "float16", "float16"), _batch()
    values: Any = {"temperature": 0.1}

    def step(loss: Any, one: Batch) -> tuple[Tensor, Tensor, Counter[str]]:
        embeddings = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(0)).to(gpu).requires_grad_()
        with nobody_waits(), Counting() as counting:
            value = loss(embeddings, one)
            (gradient,) = torch.autograd.grad(value, embeddings)
        return value.detach().cpu(), gradient.cpu(), counting.found

    with pretended_gpu() as gpu:
        from_host = step(getattr(make, name)(bank=bank, **values), bank.prepared(batch).to(gpu))
        there = on_device(bank, gpu)
        from_gpu = step(getattr(make, name)(bank=there, **values), there.prepared(batch).pinned().to(gpu))
    assert torch.equal(from_host[0], from_gpu[0]) and torch.equal(from_host[1], from_gpu[1])
    assert from_gpu[2] - from_host[2] == Counter(index_select=1) and not from_host[2] - from_gpu[2]


def _losses(rank: int, world_size: int, folder: Path) -> list[float]:
    """Of a rank whose bank lies where it lies: on the GPU of the first, with the host of the second."""
    torch.set_num_threads(1)
    bank, batch = FileBank([folder / "0", folder / "1"]), _batch(rank=rank, world_size=world_size)
    with warnings.catch_warnings(action="ignore"), pretended_gpu() as gpu:
        embeddings = torch.randn(3, 4, WIDTH, generator=torch.Generator().manual_seed(0))
        own = embeddings[:, batch.first_row : batch.first_row + batch.num_rows].flatten(0, 1).to(gpu).requires_grad_()
        if rank == 0:
            there = on_device(bank, gpu)
            loss = make.rcl(bank=there, temperature=0.1)(own, there.prepared(batch).to(gpu))
        else:
            loss = make.rcl(bank=bank, temperature=0.1)(own, batch)
        return [float(loss.detach().cpu())]


def test_ranks_need_not_have_it_in_the_same_place(tmp_path: Path) -> None:
    """GPUs of a cluster need not be equally large."""
    bank, batch = _banks(tmp_path, "float16", "float16"), _batch()
    embeddings = torch.randn(3, 4, WIDTH, generator=torch.Generator().manual_seed(0)).flatten(0, 1)
    whole = make.rcl(bank=bank, temperature=0.1)(embeddings, batch)
    parts = [_only(found) for found in run_in_processes(_losses, 2, tmp_path)]
    assert sum(parts) / 2 == pytest.approx(float(whole), rel=1e-5)  # sums in another order


def _only(found: Any) -> float:
    (value,) = found
    return float(value)


def test_the_next_training_of_the_same_bank_finds_it_there(tmp_path: Path) -> None:
    bank = _banks(tmp_path / "one", "float16")
    with pretended_gpu() as gpu, bank_stays():
        one = on_device(bank, gpu)
        assert on_device(FileBank(bank.folders), gpu) is one
        with bank_stays():
            assert on_device(bank, gpu) is one, "who builds one stage of several lets nothing go"
        assert on_device(bank, gpu) is one
        let_bank_go()
        assert on_device(bank, gpu) is not one


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


def test_its_memory_goes_back_to_the_gpu_when_nothing_more_is_to_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would keep it for a process that goes on, as a notebook does."""
    bank, left = _banks(tmp_path, "float16"), list[int]()
    before = bytes_of_banks()
    monkeypatch.setattr(device_bank, "give_back_gpu_memory", lambda: left.append(bytes_of_banks()))
    with pretended_gpu() as gpu, bank_stays():
        with bank_stays():
            on_device(bank, gpu)
        assert left == []
    assert left == [before]


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


def test_rows_on_their_way_are_not_overwritten_by_later_ones() -> None:
    """Of ids, too, the copying stream must know who reads them."""
    from sentdist.learning.prefetch import Sender, SentBatch

    ids = Mock(spec=Tensor)
    sender, stream = Sender(CPU), Mock()
    with patch.object(torch.cuda, "current_stream", lambda device: stream):
        sender.receive(SentBatch(batch=replace(_batch(), bank_ids=ids), arrival=Mock()))
    ids.record_stream.assert_called_once_with(stream)
