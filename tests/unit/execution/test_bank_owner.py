"""Who holds banks in the object store, and who reads them: how it is started, what it tells, when it ends. Ray is stood in for."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from ray.exceptions import ObjectLostError

from sentdist.errors import StoreError
from sentdist.execution.banks import owner, reader
from sentdist.execution.banks.owner import BankOrder, BankPlacement, EmbeddingBanks, HeldBank
from sentdist.execution.banks.reader import ObjectStoreBank, open_orders, order_of
from sentdist.execution.cluster.address import HEAD
from sentdist.learning.bank_shape import BankShape
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import bank_stage

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
        self.now, self.unread, self.shown = 0.0, 0, Mock()
        self.kill = Mock()
        monkeypatch.setattr(owner.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(owner.time, "sleep", lambda _: None)
        nodes = [{"Alive": True, "NodeID": "n", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 1.0, "object_store_memory": 400.0}}]
        monkeypatch.setattr(owner.ray, "nodes", lambda: nodes)
        monkeypatch.setattr(owner.ray, "get_runtime_context", lambda: SimpleNamespace(current_actor="me", get_node_id=lambda: ""))
        monkeypatch.setattr(owner.ray, "wait", lambda refs, **_: (refs[self.unread :], refs[: self.unread]))
        monkeypatch.setattr(owner.ray, "kill", self.kill)
        places = {
            0: {"node_ids": ["n"], "did_spill": False},
            1: {"node_ids": ["n"], "did_spill": True},
            2: {"node_ids": ["n"], "did_spill": False},
        }
        monkeypatch.setattr(owner.ray.experimental, "get_object_locations", lambda refs: places)
        monkeypatch.setattr(owner, "_look_now_and_then", lambda *_: None)
        monkeypatch.setattr(owner, "_spill_folder", lambda *_: "/")
        monkeypatch.setattr(owner.shutil, "disk_usage", lambda _: SimpleNamespace(total=1000 * MIB, free=500 * MIB))
        monkeypatch.setattr(owner, "_start", lambda order: ("a shard", "another"))
        monkeypatch.setattr(owner, "show", lambda _, value: self.shown(value))
        self.banks = EmbeddingBanks(900.0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_an_owner_ends_when_nobody_has_asked_or_read_or_waited_for_so_long(scene: Scene) -> None:
    scene.banks.shards([_order(1)], ())
    for does in (lambda: scene.banks.read(("1",)), lambda: scene.banks.shards([_order(1)], ()), lambda: scene.banks.placement(1)):
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


def test_a_bank_that_is_asked_for_again_stays_when_others_make_room(scene: Scene) -> None:
    before, _ = scene.banks.shards([_order(1)], ())
    scene.now = 1_000.0
    after, placement = scene.banks.shards([_order(1), _order(2)], ())
    assert after[0].generation == before[0].generation
    assert placement is not None and (placement.wanted_bytes, placement.held_bytes) == (48, 48)


def test_another_artifact_and_a_lost_generation_are_read_anew(scene: Scene) -> None:
    (first,), _ = scene.banks.shards([_order(1)], ())
    (again,), placement = scene.banks.shards([_order(1)], ())
    assert again == first and placement is None
    (remade,), _ = scene.banks.shards([_order(1, made_at="later")], ())
    assert remade.generation != first.generation
    (found,), _ = scene.banks.shards([_order(1, made_at="later")], (remade.generation,))
    assert found.generation != remade.generation


def test_banks_are_reported_with_age_idleness_and_shards_on_disk_and_prometheus_with_what_is_left(scene: Scene) -> None:
    scene.banks.shards([_order(1), _order(2)], ())
    scene.now = 60.0
    scene.banks.read(("1",))
    scene.now = 100.0
    one, other = scene.banks.facts()
    assert (one.age_s, one.idle_s, other.idle_s) == (100.0, 40.0, 100.0)
    assert one.num_spilled == 1 and one.nodes == ("10.0.0.1",) and one.num_bytes == 48
    assert scene.banks.drop("1") == 1
    assert [call.args[0] for call in scene.shown.call_args_list] == [96, 48]


def test_an_owner_lives_on_the_head_outlives_its_job_and_takes_no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Mock()
    monkeypatch.setattr(owner.ray, "remote", lambda _: remote)
    owner.bank_owner("/store")
    options = remote.options.call_args.kwargs
    assert options["resources"] == HEAD and options["lifetime"] == "detached" and options["num_cpus"] == 0 and options["get_if_exists"]


def test_shards_are_read_by_tasks_that_wait_for_no_training_and_can_always_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that holds all CPUs waits for them; a node that is lost takes them with it."""
    tasks = Mock()
    monkeypatch.setattr(owner, "_read_shards", tasks)
    shape = BankShape(num_sentences=5 * MIB, width=16, dtype="float32", rows_per_shard=MIB)  # five shards of 64 MiB
    order = BankOrder(store="/store", place="bank/1", key="1", made_at="", label="phi", encoder="", shape=shape)
    tasks.options.side_effect = lambda **given: SimpleNamespace(
        remote=lambda order, first, last: [f"{n}" for n in range(first, last)] if last - first > 1 else str(first)
    )
    assert owner._start(order) == ("0", "1", "2", "3", "4")
    for call in tasks.options.call_args_list:
        assert (call.kwargs["num_cpus"], call.kwargs["max_retries"], call.kwargs["scheduling_strategy"]) == (0, -1, "SPREAD")


class Owner:
    """What a reader asks of an owner; its banks are lost so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, losses: int = 0, spilled: int = 0) -> None:
        self.reported_lost: list[tuple[str, ...]] = []
        self.handle, self.losses, self.number = Mock(), losses, 0

        def ask(orders: Any, lost: tuple[str, ...]) -> tuple[list[HeldBank], BankPlacement]:
            self.reported_lost.append(lost)
            self.number += 1
            placed = BankPlacement(wanted_bytes=48, held_bytes=0, memory_bytes=100, spilled_bytes=spilled)
            return [HeldBank(shards=(), generation=f"{order.key}-{self.number}") for order in orders], placed

        def get(bank: HeldBank) -> tuple[np.ndarray, ...]:
            if self.number <= losses:
                raise ObjectLostError("", None, "")
            return ROWS[:2], ROWS[2:]

        monkeypatch.setattr(reader, "_ask", ask)
        monkeypatch.setattr(reader, "_get", get)
        monkeypatch.setattr(reader, "bank_owner", lambda store: self.handle)


def test_a_reader_asks_once_more_for_what_is_lost_and_names_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Owner(monkeypatch, losses=1)
    found = open_orders((_order(1), _order(2)))
    assert asked.reported_lost == [(), ("1-1", "2-1")]
    np.testing.assert_array_equal(found.rows(np.array([3, 0])).numpy()[1], ROWS[[3, 0]])
    hopeless = Owner(monkeypatch, losses=9)
    with pytest.raises(StoreError):
        open_orders((_order(1),))
    hopeless.handle.forget.remote.assert_called_once_with(("1-2",)), "who asks next must not find it there"


@pytest.mark.parametrize(("spilled", "level"), [(0, logging.INFO), (7, logging.WARNING)])
def test_a_bank_that_lies_on_disk_in_part_is_warned_of(
    spilled: int, level: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Owner(monkeypatch, spilled=spilled)
    with caplog.at_level(logging.INFO):
        open_orders((_order(1),))
    assert [record.levelno for record in caplog.records if "bank of" in record.message] == [level]


def test_a_reader_says_now_and_then_which_banks_it_reads_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that it leaves out makes room for others while it is being read."""
    asked, now = Owner(monkeypatch), [0.0]
    monkeypatch.setattr(reader.time, "monotonic", lambda: now[0])
    bank = ObjectStoreBank([_order(1), _order(2)], [(ROWS,), (ROWS,)])
    for now[0] in (1.0, 301.0, 302.0, 602.0):
        bank.rows(np.array([0, 1]))
    reported = asked.handle.read.options.return_value.remote
    assert [call.args for call in reported.call_args_list] == [(("1", "2"),)] * 2


def test_an_order_names_the_artifact_as_it_was_made(tmp_path: Path) -> None:
    """One that was removed and made anew has the same key and other numbers."""
    context, stage = Context(store=ArtifactStore(tmp_path)), bank_stage(0)
    with context.store.staged() as folder:
        (folder / "bank.json").write_text('{"num_sentences": 4, "width": 3, "dtype": "float32", "rows_per_shard": 2}')
        made = context.store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})
    order = order_of(stage, context)
    assert (order.made_at, order.key, order.place, order.shape.width) == (made.record.created_at, stage.key, stage.place, 3)
