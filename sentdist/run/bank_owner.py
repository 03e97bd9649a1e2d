"""Hold the banks of a store in Ray's object store, in a named, detached actor that ends when idle; check that they fit."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.experimental
from ray.exceptions import RayActorError

from sentdist.errors import DataError, ResourceError, named
from sentdist.files import code_digest, memory_size
from sentdist.learning.bank_shape import REMEDY, BankShape
from sentdist.run.address import HEAD, NAMESPACE
from sentdist.run.events import BANK_BYTES, show
from sentdist.store.store import ArtifactStore

PREFIX = "sentdist-banks"
SPILL_FROM = 0.8  # of an object store: where Ray begins to move objects to disk (object_spilling_threshold)
# A task that reads shards reserves no CPU, or it would wait for the trainings that wait for it; so their number is bounded here. Starting
# a process costs about as much as reading 64 MiB.
TASKS_PER_BANK = 4
BYTES_PER_TASK = 64 * 2**20
IDLE_S = 900.0  # an owner without readers ends after this time; reading a bank again takes a second for each GB or two
CALLS, PAUSE_S = 10, 0.5  # an owner that ends keeps its name for a moment


@dataclass(frozen=True, kw_only=True)
class BankOrder:
    """The artifact to hold as a bank. Plain values only: it outlives the code that made it."""

    store: str
    place: str
    key: str
    made_at: str  # of the artifact: one that was rebuilt has the same key and different numbers
    label: str
    encoder: str
    shape: BankShape


@dataclass(frozen=True, kw_only=True)
class HeldBank:
    """References to the shards of one generation of a bank."""

    shards: tuple[ray.ObjectRef, ...]
    generation: str


@dataclass(frozen=True, kw_only=True)
class BankFacts:
    """A bank as `sentdist list banks` shows it."""

    label: str
    key: str
    owner: str  # name of the actor
    encoder: str
    num_sentences: int
    width: int
    dtype: str
    num_bytes: int
    num_shards: int
    nodes: tuple[str, ...]  # addresses of the nodes that hold a copy of a shard
    num_spilled: int  # shards on disk
    age_s: float
    idle_s: float  # since a worker last asked for it


@dataclass(kw_only=True)
class _Held:
    order: BankOrder
    bank: HeldBank
    made_at: float  # seconds of the monotonic clock, as below
    used_at: float


class EmbeddingBanks:
    """Actor that owns the shards of all banks of one store. They can be read again from the artifacts, so it may die any time.

    It owns results of tasks rather than objects from `ray.put`: Ray reruns the task when a shard is lost with its node. Readers keep
    what they have mapped, even after the actor has ended.
    """

    def __init__(self, idle_s: float) -> None:
        self._held: dict[str, _Held] = {}
        self._idle_s = idle_s
        self._asked_at = time.monotonic()
        self._own_handle = ray.get_runtime_context().current_actor
        threading.Thread(target=_look_now_and_then, args=(self._own_handle, idle_s / 4), daemon=True).start()

    def shards(self, orders: list[BankOrder], lost: tuple[str, ...]) -> list[HeldBank]:
        """Return the shards of banks; start reading those that are missing. lost: generations that turned out to be unreadable.

        Raises:
            ResourceError: they fit neither in memory nor on the disk to which Ray spills.
        """
        self.forget(lost)
        missing = [order for order in dict.fromkeys(orders) if order.key not in self._held or self._held[order.key].order != order]
        for order in missing:
            self._held.pop(order.key, None)  # of an artifact that was made again
        self.read(tuple(order.key for order in orders))
        if missing:
            self._make_room(sum(order.shape.num_bytes for order in missing))
        now = time.monotonic()
        for order in missing:
            bank = HeldBank(shards=_start(order), generation=uuid.uuid4().hex)
            self._held[order.key] = _Held(order=order, bank=bank, made_at=now, used_at=now)
        show(BANK_BYTES, self._num_bytes)
        return [self._held[order.key].bank for order in orders]

    def read(self, keys: tuple[str, ...]) -> None:
        """Note that a reader still uses these banks."""
        self._asked_at = time.monotonic()
        for key in keys:
            if key in self._held:
                self._held[key].used_at = time.monotonic()

    def end_if_idle(self) -> None:
        """End this actor when it has no readers. Calls are served one after another: a call is answered, or meets an ended actor."""
        shards = [shard for held in self._held.values() for shard in held.bank.shards]
        if shards and len(ray.wait(shards, num_returns=len(shards), timeout=0, fetch_local=False)[0]) < len(shards):
            self._asked_at = time.monotonic()  # a reader waits for these shards
        if time.monotonic() - self._asked_at > self._idle_s:
            ray.kill(self._own_handle)  # `exit_actor` waits forever where an actor has called itself
            time.sleep(PAUSE_S * CALLS)  # wait for the kill, so that no new call is half answered

    def forget(self, lost: tuple[str, ...]) -> None:
        """Drop generations that cannot be read."""
        self._held = {key: held for key, held in self._held.items() if held.bank.generation not in lost}

    def _make_room(self, wanted_bytes: int) -> None:
        """Drop idle banks: a sweep over many banks reads one after another. Then check that more banks of this size fit.

        Every node that reads them holds all of them, so the smallest object store counts; of disks, that of this node.
        """
        now = time.monotonic()
        self._held = {key: held for key, held in self._held.items() if now - held.used_at <= self._idle_s}
        nodes = ray.nodes()
        memory_bytes = smallest_object_store(nodes)
        disk_bytes = shutil.disk_usage(_spill_folder(nodes, ray.get_runtime_context().get_node_id())).free
        if wanted_bytes + self._num_bytes > memory_bytes * SPILL_FROM + disk_bytes:
            raise ResourceError(
                where="object store",
                found=f"banks of {memory_size(wanted_bytes)}, {memory_size(self._num_bytes)} of other banks, an object store of "
                f"{memory_size(memory_bytes)} on the smallest node, {memory_size(disk_bytes)} of disk to spill to",
                expected="banks that fit",
                remedy="Store banks as float16, start Ray with --object-store-memory, "
                "or set runtime.bank_in_object_store=false to map them from files.",
            )

    def facts(self) -> list[BankFacts]:
        """Return all banks, oldest first."""
        addresses = {row["NodeID"]: row["NodeManagerAddress"] for row in ray.nodes()}
        return [_facts(held, addresses) for held in self._held.values()]

    @property
    def _num_bytes(self) -> int:
        return sum(held.order.shape.num_bytes for held in self._held.values())


def smallest_object_store(rows: Iterable[Mapping[str, object]]) -> int:
    """Return the bytes of the smallest object store of living nodes with CPUs. rows: the answer of `ray.nodes()`."""
    resources = [row["Resources"] for row in rows if row["Alive"]]
    sizes = [(found.get("CPU", 0.0), int(found.get("object_store_memory", 0))) for found in resources if isinstance(found, Mapping)]
    return min([size for cpus, size in sizes if cpus] or [size for _, size in sizes])


def bank_owner(store: str) -> Any:
    """Return the actor that owns the banks of a store; start it if necessary. It outlives the job that started it.

    It ends after IDLE_S seconds without a reader, so calls go through `ask_owner`.
    """
    options = {"name": owner_name(store), "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    return ray.remote(EmbeddingBanks).options(**options, num_cpus=0, max_restarts=-1, max_task_retries=-1, resources=HEAD).remote(IDLE_S)


def ask_owner(store: str, question: Callable[[Any], Any]) -> Any:
    """Call the owner of a store's banks and return its answer; if it ends or dies meanwhile, start another and call that.

    Raises:
        RayActorError: no owner lived long enough to answer.
        RayTaskError: the call raised.
    """
    for _ in range(CALLS - 1):
        try:
            return ray.get(question(bank_owner(store)))
        except RayActorError:
            time.sleep(PAUSE_S)
    return ray.get(question(bank_owner(store)))


def owner_name(store: str) -> str:
    """Return the actor's name: from the store, so that jobs share banks, and from the code, so that no job calls an older owner."""
    return f"{PREFIX}-{hashlib.sha256(store.encode()).hexdigest()[:8]}-{code_digest()[:8]}"


def list_banks() -> list[BankFacts]:
    """Return the banks of all stores in the connected cluster."""
    found: list[BankFacts] = []
    for listed in ray.util.list_named_actors(all_namespaces=True):
        if listed["name"].startswith(PREFIX):
            with suppress(ValueError, RayActorError):  # it has ended, and its banks with it
                owner: Any = ray.get_actor(listed["name"], namespace=listed["namespace"])
                found += ray.get(owner.facts.remote())
    return found


@ray.remote
def _read_shards(order: BankOrder, first: int, last: int) -> Iterator[np.ndarray]:
    """Yield shards `first` … `last` − 1 of a bank as plain arrays: a memory map would be pickled, and every reader would get a copy."""
    store, shape = ArtifactStore(order.store), order.shape
    for shard in range(first, last):
        place = f"{order.place}/shards/{shard:05d}.npy"
        rows = shape.shard_rows(shard)
        expected = f"a {shape.dtype} array of shape {(rows, shape.width)}"
        with store.open_file(place) as stream:
            try:
                array = np.load(stream, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise _damaged(place, named(error), expected) from error
        if array.shape != (rows, shape.width) or array.dtype.name != shape.dtype:
            raise _damaged(place, f"a {array.dtype.name} array of shape {array.shape}", expected)
        yield array


def _start(order: BankOrder) -> tuple[ray.ObjectRef, ...]:
    """Start tasks that read the shards, spread over the nodes; each can be rerun on any node with the same result."""
    num_tasks = min(TASKS_PER_BANK, order.shape.num_shards, -(-order.shape.num_bytes // BYTES_PER_TASK))
    bounds = np.linspace(0, order.shape.num_shards, num_tasks + 1).astype(int).tolist()
    refs: list[ray.ObjectRef] = []
    for first, last in itertools.pairwise(bounds):
        task: Any = _read_shards.options(
            name=f"bank {order.label}", num_cpus=0, num_returns=last - first, max_retries=-1, scheduling_strategy="SPREAD"
        ).remote(order, first, last)
        refs.extend([task] if last - first == 1 else task)
    return tuple(refs)


def _look_now_and_then(owner: Any, every_s: float) -> None:
    while True:
        time.sleep(every_s)
        owner.end_if_idle.options(max_task_retries=0).remote()


def _facts(held: _Held, addresses: Mapping[str, str]) -> BankFacts:
    order, now = held.order, time.monotonic()
    places = ray.experimental.get_object_locations(list(held.bank.shards)).values()
    return BankFacts(
        label=order.label,
        key=order.key,
        owner=owner_name(order.store),
        encoder=order.encoder,
        num_sentences=order.shape.num_sentences,
        width=order.shape.width,
        dtype=order.shape.dtype,
        num_bytes=order.shape.num_bytes,
        num_shards=order.shape.num_shards,
        nodes=tuple(sorted({addresses.get(node, node) for place in places for node in place["node_ids"]})),
        num_spilled=sum(bool(place["did_spill"]) for place in places),
        age_s=now - held.made_at,
        idle_s=now - held.used_at,
    )


def _spill_folder(nodes: list[dict[str, Any]], node_id: str) -> Path:
    """The session folder of this node, to which Ray spills by default."""
    (socket,) = [row["ObjectStoreSocketName"] for row in nodes if row["NodeID"] == node_id]
    return Path(socket).parents[1]


def _damaged(place: str, found: str, expected: str) -> DataError:
    return DataError(where=place, found=found, expected=expected, remedy=REMEDY)
