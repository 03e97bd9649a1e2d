"""How much room a bank takes in the object store, and whether a cluster has it: pure decisions before a byte is moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sentdist.errors import ResourceError
from sentdist.sizes import memory_size

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
