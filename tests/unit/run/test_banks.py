"""Who holds banks in the object store and who reads them: what is placed where, what is told, when an owner ends. Ray is stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from ray.exceptions import ObjectLostError

from sentdist.errors import ResourceError, StoreError
from sentdist.learning.bank_shape import BankShape
from sentdist.run import bank_owner as owner
from sentdist.run import bank_reader as reader
from sentdist.run.bank_owner import BankOrder, EmbeddingBanks, HeldBank, smallest_object_store
from sentdist.run.bank_reader import open_orders

MIB = 2**20
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def _order(number: int, *, made_at: str = "") -> BankOrder:
    shape = BankShape(num_sentences=4, width=3, dtype="float32", rows_per_shard=2)
    return BankOrder(
        store="/store", place=f"bank/{number}", key=str(number), made_at=made_at, label=f"phi={number}", encoder="", shape=shape
    )


class Scene:
    """A clock, what is being read, and an owner over them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.unread, self.memory, self.free = 0.0, 0, 400.0, 500 * MIB
        self.shown, self.kill = Mock(), Mock()
        monkeypatch.setattr(owner.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(owner.time, "sleep", lambda _: None)
        node = {"Alive": True, "NodeID": "n", "NodeManagerAddress": "10.0.0.1"}
        monkeypatch.setattr(owner.ray, "nodes", lambda: [node | {"Resources": {"CPU": 1.0, "object_store_memory": self.memory}}])
        monkeypatch.setattr(owner.ray, "get_runtime_context", lambda: SimpleNamespace(current_actor="me", get_node_id=lambda: ""))
        monkeypatch.setattr(owner.ray, "wait", lambda refs, **_: (refs[self.unread :], refs[: self.unread]))
        monkeypatch.setattr(owner.ray, "kill", self.kill)
        places = {number: {"node_ids": ["n"], "did_spill": number == 1} for number in range(3)}
        monkeypatch.setattr(owner.ray.experimental, "get_object_locations", lambda refs: places)
        monkeypatch.setattr(owner, "_look_now_and_then", lambda *_: None)
        monkeypatch.setattr(owner, "_spill_folder", lambda *_: "/")
        monkeypatch.setattr(owner.shutil, "disk_usage", lambda _: SimpleNamespace(total=1000 * MIB, free=self.free))
        monkeypatch.setattr(owner, "_start", lambda order: ("a shard", "another"))
        monkeypatch.setattr(owner, "show", lambda _, value: self.shown(value))
        self.banks = EmbeddingBanks(900.0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


class Owner:
    """What a reader asks of an owner; its banks are lost so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, losses: int = 0) -> None:
        self.reported_lost: list[tuple[str, ...]] = []
        self.handle, self.losses, self.number = Mock(), losses, 0

        def shards(orders: Any, lost: tuple[str, ...]) -> list[HeldBank]:
            self.reported_lost.append(lost)
            self.number += 1
            return [HeldBank(shards=(), generation=f"{order.key}-{self.number}") for order in orders]

        def get(bank: HeldBank) -> tuple[np.ndarray, ...]:
            if self.number <= losses:
                raise ObjectLostError("", None, "")
            return ROWS[:2], ROWS[2:]

        self.handle.shards.remote = shards
        monkeypatch.setattr(reader, "ask_owner", lambda store, question: question(self.handle))
        monkeypatch.setattr(reader, "_get", get)
        monkeypatch.setattr(reader, "bank_owner", lambda store: self.handle)


MIB = 2**20


def test_an_owner_ends_when_nobody_has_asked_or_read_or_waited_for_so_long(scene: Scene) -> None:
    scene.banks.shards([_order(1)], ())
    for does in (lambda: scene.banks.read(("1",)), lambda: scene.banks.shards([_order(1)], ())):
        scene.now += 800.0
        does()
        scene.now += 800.0
        scene.banks.end_if_idle()
        assert not scene.kill.called
    scene.banks.shards([_order(1)], ())
    scene.now, scene.unread = scene.now + 5_000.0, 1
    scene.banks.end_if_idle()  # a shard is still being read, which somebody waits for
    assert not scene.kill.called
    scene.now, scene.unread = scene.now + 901.0, 0
    scene.banks.end_if_idle()
    scene.kill.assert_called_once_with("me")


def test_another_artifact_and_a_lost_generation_are_read_anew(scene: Scene) -> None:
    (first,) = scene.banks.shards([_order(1)], ())
    assert scene.banks.shards([_order(1), _order(2)], ())[0] == first
    (remade,) = scene.banks.shards([_order(1, made_at="later")], ())
    assert remade.generation != first.generation
    (found,) = scene.banks.shards([_order(1, made_at="later")], (remade.generation,))
    assert found.generation != remade.generation
    rows = [{"Alive": alive, "Resources": {"object_store_memory": size} | cpu} for alive, size, cpu in (
        (True, 1.0, {}), (True, 7.0, {"CPU": 4.0}), (True, 5.0, {"CPU": 4.0}), (False, 2.0, {"CPU": 4.0}),
    )]  # fmt: skip
    assert smallest_object_store(rows) == 5 and smallest_object_store(rows[:1]) == 1, "a head without CPUs reads nothing"


def test_a_reader_asks_once_more_for_what_is_lost_and_names_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Owner(monkeypatch, losses=1)
    found = open_orders((_order(1), _order(2)))
    assert asked.reported_lost == [(), ("1-1", "2-1")]
    np.testing.assert_array_equal(found.rows(np.array([3, 0])).numpy()[1], ROWS[[3, 0]])
    hopeless = Owner(monkeypatch, losses=9)
    with pytest.raises(StoreError):
        open_orders((_order(1),))
    hopeless.handle.forget.remote.assert_called_once_with(("1-2",)), "who asks next must not find it there"


def test_what_fits_neither_in_memory_nor_on_disk_is_refused_and_idle_banks_make_room(scene: Scene) -> None:
    scene.memory, scene.free = 100.0, 0
    scene.banks.shards([_order(1)], ())  # 48 bytes of 80
    with pytest.raises(ResourceError, match="of other banks"):
        scene.banks.shards([_order(2)], ())
    scene.free = 20
    scene.banks.shards([_order(2)], ())
    scene.now, scene.free = scene.now + 901.0, 0
    scene.banks.shards([_order(3)], ())
