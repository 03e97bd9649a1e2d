"""How much room a bank takes, and what is decided about it."""

from __future__ import annotations

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.banks.placement import disk_to_spill_to, placement_for, smallest_object_store

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
