"""How much room a bank takes, and what is decided about it."""

from __future__ import annotations

import json
from io import BytesIO
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.banks import owner, reader
from sentdist.execution.banks.owner import BankOrder, EmbeddingBanks, disk_to_spill_to, placement_for, smallest_object_store
from sentdist.learning.bank_shape import BankShape

MIB = 2**20


@pytest.mark.parametrize(
    ("wanted", "held", "memory", "spilled"),
    [
        (80, 0, 100, 0),  # Ray spills from 80 % of the object store
        (81, 0, 100, 1),
        (40, 41, 100, 1),  # banks that are there already count
        (500, 0, 100, 420),
    ],
)
def test_what_does_not_fit_is_spilled(wanted: int, held: int, memory: int, spilled: int) -> None:
    placement = placement_for(wanted * MIB, held_bytes=held * MIB, memory_bytes=memory * MIB, disk_bytes=1000 * MIB)
    assert placement.spilled_bytes == spilled * MIB
    assert f"bank of {wanted}.0 MiB" in placement.line
    assert ("spilled to disk" in placement.line) == bool(spilled)


def test_what_neither_memory_nor_disk_can_take_is_refused_with_the_numbers() -> None:
    with pytest.raises(ResourceError) as refusal:
        placement_for(200 * MIB, held_bytes=10 * MIB, memory_bytes=100 * MIB, disk_bytes=129 * MIB)
    assert "banks of 200.0 MiB, 10.0 MiB of other banks" in str(refusal.value)
    assert "at most 209.0 MiB" in str(refusal.value)


def test_the_smallest_object_store_of_a_living_node_that_runs_work_counts() -> None:
    rows = [
        {"Alive": True, "Resources": {"object_store_memory": 1.0}},  # a head without CPUs reads nothing
        {"Alive": True, "Resources": {"CPU": 4.0, "object_store_memory": 7.0}},
        {"Alive": True, "Resources": {"CPU": 4.0, "object_store_memory": 5.0}},
        {"Alive": False, "Resources": {"CPU": 4.0, "object_store_memory": 2.0}},
    ]
    assert smallest_object_store(rows) == 5
    assert smallest_object_store(rows[:1]) == 1


def test_a_disk_is_not_filled_to_the_brim() -> None:
    assert disk_to_spill_to(total_bytes=1000, free_bytes=60) == pytest.approx(10, abs=1)
    assert disk_to_spill_to(total_bytes=1000, free_bytes=20) == 0


def _order(number: int) -> BankOrder:
    shape = BankShape(num_sentences=MIB, width=15, dtype="float32", rows_per_shard=MIB)
    return BankOrder(store="/store", place=f"bank/{number}", key=str(number), made_at="", label=f"phi={number}", encoder="", shape=shape)


def test_a_bank_that_nobody_has_read_for_long_makes_room_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sweep over more banks than memory and disk take at once, which reads one after another."""
    now = [0.0]
    monkeypatch.setattr(owner.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(owner.ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 1.0, "object_store_memory": 100.0 * MIB}}])
    monkeypatch.setattr(owner.ray, "get_runtime_context", lambda: SimpleNamespace(current_actor=None, get_node_id=lambda: ""))
    monkeypatch.setattr(owner, "_look_now_and_then", lambda *_: None)
    monkeypatch.setattr(owner, "_spill_folder", lambda *_: "/")
    monkeypatch.setattr(owner.shutil, "disk_usage", lambda _: SimpleNamespace(total=1000 * MIB, free=51 * MIB))
    monkeypatch.setattr(owner, "_start", lambda order: ())
    monkeypatch.setattr(owner, "show", lambda *_: None)
    banks = EmbeddingBanks(900.0)
    banks.shards([_order(1)], ())
    with pytest.raises(ResourceError):
        banks.shards([_order(2)], ())  # the first may be read just now
    now[0] = 800.0
    banks.read(("1",))
    now[0] = 1_000.0
    with pytest.raises(ResourceError):
        banks.shards([_order(2)], ())  # it is read: that was reported 200 s ago
    now[0] = 1_701.0
    _, placement = banks.shards([_order(2)], ())
    assert placement is not None and placement.spilled_bytes == 0
    banks.shards([_order(2)], ())
    assert banks.drop("2") == 0, "the first one is gone"


BERT = {"config.json": {"hidden_size": 384}}
DISTILBERT = {"config.json": {"dim": 384}}
T5 = {"config.json": {"d_model": 384, "d_kv": 64}}
DENSE = {
    "config.json": {"hidden_size": 768},
    "modules.json": [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}],
    "2_Dense/config.json": {"in_features": 768, "out_features": 384},
}


@pytest.mark.parametrize(
    ("files", "pooling"),
    [(BERT, "mean"), (DISTILBERT, "mean"), (T5, "mean"), (DENSE, "mean_dense")],
    ids=["bert", "distilbert", "t5", "a dense layer behind the pooling"],
)
def test_the_width_of_a_bank_is_that_of_embeddings(files: dict[str, object], pooling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the family of its encoder calls it."""
    asked: list[int] = []

    def ask_owner(root: str, ask: Any) -> str:
        found = Mock()
        ask(found)
        asked.append(found.placement.remote.call_args.args[0])
        return "placed"

    monkeypatch.setattr(reader, "ask_owner", ask_owner)
    store = Mock(get=lambda _: SimpleNamespace(record=SimpleNamespace(results={"num_sentences": 10})))
    store.open_file = lambda place: BytesIO(json.dumps(files[place.removeprefix("train/e/")]).encode())
    stage = Mock(dtype="float32", encoder=Mock(place="train/e", encoder=Mock(pooling=pooling)))
    assert reader.placement_of(stage, Mock(store=store)) == "placed" and asked == [10 * 384 * 4]
