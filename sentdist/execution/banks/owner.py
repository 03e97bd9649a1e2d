"""Who holds the banks of a store in the object store: a named, detached actor whose shard tasks can be run again,
and that ends when idle."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.experimental
from ray.exceptions import RayActorError

from sentdist.errors import DataError, ResourceError, StoreError, named
from sentdist.execution.cluster.address import HEAD, NAMESPACE
from sentdist.execution.prometheus import BANK_BYTES, show
from sentdist.files import code_digest, memory_size
from sentdist.learning.bank_shape import REMEDY, BankShape
from sentdist.store.store import ArtifactStore

SPILL_FROM = 0.8  # of an object store: where Ray begins to move objects to disk (object_spilling_threshold)
DISK_UNTIL = 0.95  # of a disk: where Ray refuses to spill more (local_fs_capacity_threshold)


@dataclass(frozen=True, kw_only=True)
class BankPlacement:
    """What banks take on every node that reads them, in bytes.

    wanted_bytes: of the banks asked for. held_bytes: of those that are there already. memory_bytes: of the smallest object store.
    spilled_bytes: what will lie on disk.
    """

    wanted_bytes: int
    held_bytes: int
    memory_bytes: int
    spilled_bytes: int

    @property
    def line(self) -> str:
        """The size of the bank and where it will lie, as a phrase."""
        others = f" beside {memory_size(self.held_bytes)} of other banks" if self.held_bytes else ""
        where = (
            "in memory" if not self.spilled_bytes else f"{memory_size(self.spilled_bytes)} of it spilled to disk, where look-ups are slower"
        )
        return f"bank of {memory_size(self.wanted_bytes)}{others} for an object store of {memory_size(self.memory_bytes)} a node: {where}"


def placement_for(wanted_bytes: int, *, held_bytes: int, memory_bytes: int, disk_bytes: int) -> BankPlacement:
    """Decide where banks of `wanted_bytes` will lie. Every node that reads them holds all of them, so the smallest object store counts.

    Raises:
        ResourceError: neither memory nor disk can take them.
    """
    total = wanted_bytes + held_bytes
    spilled = max(0, total - int(memory_bytes * SPILL_FROM))
    if spilled > disk_bytes:
        raise ResourceError(
            where="object store",
            found=f"banks of {memory_size(wanted_bytes)}, {memory_size(held_bytes)} of other banks, an object store of "
            f"{memory_size(memory_bytes)} on the smallest node, {memory_size(disk_bytes)} of disk to spill to",
            expected=f"at most {memory_size(int(memory_bytes * SPILL_FROM) + disk_bytes)} in all",
            remedy="Drop other banks (`sentdist bank drop`), store banks as float16, start Ray with --object-store-memory, "
            "or set runtime.bank_in_object_store=false to map them from files.",
        )
    return BankPlacement(wanted_bytes=wanted_bytes, held_bytes=held_bytes, memory_bytes=memory_bytes, spilled_bytes=spilled)


def smallest_object_store(rows: Iterable[Mapping[str, object]]) -> int:
    """Bytes of the smallest object store among the living nodes in the answer of `ray.nodes()` that can run work."""
    resources = [row["Resources"] for row in rows if row["Alive"]]
    sizes = [(found.get("CPU", 0.0), int(found.get("object_store_memory", 0))) for found in resources if isinstance(found, Mapping)]
    return min([size for cpus, size in sizes if cpus] or [size for _, size in sizes])


def disk_to_spill_to(*, total_bytes: int, free_bytes: int) -> int:
    """Bytes that Ray will spill to a disk before it finds it too full."""
    return max(0, free_bytes - int(total_bytes * (1 - DISK_UNTIL)))


PREFIX = "sentdist-banks"
# A task that reads shards reserves no CPU, or it would wait for the trainings that wait for it; so their number is bounded here. Starting
# a process for one costs about what reading 64 MiB costs.
TASKS_PER_BANK = 4
BYTES_PER_TASK = 64 * 2**20
IDLE_S = 900.0  # without a reader for so long, an owner ends; reading a bank again takes a second for each GB or two
CALLS, PAUSE_S = 10, 0.5  # an owner that ends keeps its name for a moment


@dataclass(frozen=True, kw_only=True)
class BankOrder:
    """Which artifact is wanted as a bank. Plain values: it outlives the code that made it."""

    store: str
    place: str
    key: str
    made_at: str  # of the artifact: one that was removed and made again has the same key and other numbers
    label: str
    encoder: str
    shape: BankShape


@dataclass(frozen=True, kw_only=True)
class HeldBank:
    """References to the shards of a bank, and which generation of it they belong to."""

    shards: tuple[ray.ObjectRef, ...]
    generation: str


@dataclass(frozen=True, kw_only=True)
class BankFacts:
    """What `sentdist bank list` shows of a bank."""

    label: str
    key: str
    owner: str  # name of the actor
    encoder: str
    num_sentences: int
    width: int
    dtype: str
    num_bytes: int
    num_shards: int
    nodes: tuple[str, ...]  # addresses of those that hold a copy of a shard
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
    """The actor: owns the shards of all banks of one store. What it holds can be read again from the artifacts, so it may die any time.

    It owns results of tasks rather than objects that were put: Ray runs the task again when a node takes a shard with it. Readers keep
    what they have mapped, whatever becomes of it.
    """

    def __init__(self, idle_s: float) -> None:
        self._held: dict[str, _Held] = {}
        self._idle_s = idle_s
        self._asked_at = time.monotonic()
        self._own_handle = ray.get_runtime_context().current_actor
        threading.Thread(target=_look_now_and_then, args=(self._own_handle, idle_s / 4), daemon=True).start()

    def shards(self, orders: list[BankOrder], lost: tuple[str, ...]) -> tuple[list[HeldBank], BankPlacement | None]:
        """The shards of banks, begun now where there are none; `lost` names generations that turned out to be unreadable.

        The placement is that of the banks begun now, None if all were there.
        """
        self._asked_at = time.monotonic()
        self.forget(lost)
        missing = [order for order in dict.fromkeys(orders) if order.key not in self._held or self._held[order.key].order != order]
        for order in missing:
            self._held.pop(order.key, None)
        self.read(tuple(order.key for order in orders))
        placement = self.placement(sum(order.shape.num_bytes for order in missing)) if missing else None
        now = time.monotonic()
        for order in missing:
            bank = HeldBank(shards=_start(order), generation=uuid.uuid4().hex)
            self._held[order.key] = _Held(order=order, bank=bank, made_at=now, used_at=now)
        show(BANK_BYTES, self._num_bytes)
        return [self._held[order.key].bank for order in orders], placement

    def read(self, keys: tuple[str, ...]) -> None:
        """A reader says now and then that it still uses these banks."""
        self._asked_at = time.monotonic()
        for key in keys:
            if key in self._held:
                self._held[key].used_at = time.monotonic()

    def end_if_idle(self) -> None:
        """End this actor when nobody reads. Calls are done one after another: a call is answered, or meets an actor that has ended."""
        shards = [shard for held in self._held.values() for shard in held.bank.shards]
        if shards and len(ray.wait(shards, num_returns=len(shards), timeout=0, fetch_local=False)[0]) < len(shards):
            self._asked_at = time.monotonic()  # somebody waits for what is being read
        if time.monotonic() - self._asked_at > self._idle_s:
            ray.kill(self._own_handle)  # `exit_actor` waits forever where an actor has called itself
            time.sleep(PAUSE_S * CALLS)  # wait for the kill, so that no new call is half answered

    def forget(self, lost: tuple[str, ...]) -> None:
        """Let go of generations that cannot be read."""
        self._held = {key: held for key, held in self._held.items() if held.bank.generation not in lost}

    def placement(self, wanted_bytes: int) -> BankPlacement:
        """Where more banks of this size would lie; ResourceError if nowhere. The disk is that of this node.

        Banks that nobody has read for long make room: a sweep over many reads one after another.
        """
        self._asked_at = now = time.monotonic()
        self._held = {key: held for key, held in self._held.items() if now - held.used_at <= self._idle_s}
        nodes = ray.nodes()
        disk = shutil.disk_usage(_spill_folder(nodes, ray.get_runtime_context().get_node_id()))
        return placement_for(
            wanted_bytes,
            held_bytes=self._num_bytes,
            memory_bytes=smallest_object_store(nodes),
            disk_bytes=disk_to_spill_to(total_bytes=disk.total, free_bytes=disk.free),
        )

    def facts(self) -> list[BankFacts]:
        """All banks, oldest first."""
        addresses = {row["NodeID"]: row["NodeManagerAddress"] for row in ray.nodes()}
        return [_facts(held, addresses) for held in self._held.values()]

    def drop(self, key: str) -> int:
        """Let go of a bank; its memory is free when its last reader ends. Returns how many are left."""
        self._held.pop(key, None)
        show(BANK_BYTES, self._num_bytes)
        return len(self._held)

    @property
    def _num_bytes(self) -> int:
        return sum(held.order.shape.num_bytes for held in self._held.values())


def bank_owner(store: str) -> Any:
    """The actor that owns the banks of a store, started if it is not there. It outlives the job that first asks for it.

    It ends after IDLE_S seconds without a reader, so calls go through `ask_owner`.
    """
    options = {"name": owner_name(store), "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    return ray.remote(EmbeddingBanks).options(**options, num_cpus=0, max_restarts=-1, max_task_retries=-1, resources=HEAD).remote(IDLE_S)


def ask_owner(store: str, question: Callable[[Any], Any]) -> Any:
    """The answer of a store's owner to a call; when that one ends or dies meanwhile, another is started and asked.

    Raises:
        RayActorError: no owner stays long enough to answer.
        RayTaskError: what the call raises.
    """
    for _ in range(CALLS - 1):
        try:
            return ray.get(question(bank_owner(store)))
        except RayActorError:
            time.sleep(PAUSE_S)
    return ray.get(question(bank_owner(store)))


def owner_name(store: str) -> str:
    """Named after the store, so that jobs share banks, and after the code, so that a job never talks to an older owner."""
    return f"{PREFIX}-{hashlib.sha256(store.encode()).hexdigest()[:8]}-{code_digest()[:8]}"


def list_banks() -> list[BankFacts]:
    """All banks that the cluster holds, of all stores. Needs a connection to Ray."""
    return [facts for _, owned in _owners() for facts in owned]


def drop_bank(name: str) -> BankFacts:
    """Drop the one bank whose label is `name` or whose key begins with it; the artifact stays.

    Raises:
        StoreError: none or several.
    """
    owners = _owners()
    found = [(owner, facts) for owner, owned in owners for facts in owned if facts.label == name or facts.key.startswith(name)]
    if len(found) != 1:
        known = ", ".join(f"{facts.label} ({facts.key})" for _, facts in found or [(None, facts) for _, owned in owners for facts in owned])
        raise StoreError(
            where=f"bank {name}",
            found=known or "no bank in this cluster",
            expected="one bank of that label or key",
            remedy="`sentdist bank list` shows all.",
        )
    owner, facts = found[0]
    if not ray.get(owner.drop.remote(facts.key)):
        ray.kill(owner)  # it owns nothing any more; the next reader starts another
    return facts


@ray.remote
def _read_shards(order: BankOrder, first: int, last: int) -> Iterator[np.ndarray]:
    """Shards `first` … `last` − 1 of a bank as plain arrays: a memory map would be pickled,
    and every reader would get a copy of its own."""
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
    """Have the shards read, spread over the nodes; any of these tasks can be run again, on any node, with the same result."""
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


def _owners() -> list[tuple[Any, list[BankFacts]]]:
    owners: list[tuple[Any, list[BankFacts]]] = []
    for listed in ray.util.list_named_actors(all_namespaces=True):
        if listed["name"].startswith(PREFIX):
            try:
                owner = ray.get_actor(listed["name"], namespace=listed["namespace"])
                owners.append((owner, ray.get(owner.facts.remote())))
            except (ValueError, RayActorError):  # it ended since: so did its banks
                continue
    return owners


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
    """The session folder of this node, which is where Ray spills unless set otherwise."""
    (socket,) = [row["ObjectStoreSocketName"] for row in nodes if row["NodeID"] == node_id]
    return Path(socket).parents[1]


def _damaged(place: str, found: str, expected: str) -> DataError:
    return DataError(where=place, found=found, expected=expected, remedy=REMEDY)
