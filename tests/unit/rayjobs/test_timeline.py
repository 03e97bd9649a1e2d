"""The picture of where a sweep's seconds went, from made-up records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from rayjobs.benchmarks.timeline import Bar, bars, drawn, table
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from tests.support.mlflow_fixtures import make_up, small_sweep

BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def _records(store: ArtifactStore) -> list[Record]:
    """Those of a small sweep whose stages all took 10 s, two at a time."""
    plan = small_sweep("small")
    sweep = sweep_record(plan)
    save_sweep(store, sweep)
    for stage in plan.stages:
        make_up(stage, store)
    records = list(sweep.records(store).values())
    ends = [BEGAN + timedelta(seconds=10 * (1 + place // 2)) for place in range(len(records))]
    return [record.model_copy(update={"created_at": end.isoformat(), "seconds": 10.0}) for record, end in zip(records, ends, strict=True)]


def test_stages_of_one_slot_follow_one_another(tmp_path: Path) -> None:
    found = bars(_records(ArtifactStore(tmp_path)))
    assert {bar.slot for bar in found} == {0, 1}
    assert [bar.start_s for bar in found] == [10.0 * (place // 2) for place in range(len(found))]
    for slot in (0, 1):
        mine = [bar for bar in found if bar.slot == slot]
        assert all(earlier.end_s <= later.start_s for earlier, later in pairwise(mine))


def test_an_end_that_is_known_to_the_second_makes_no_third_slot() -> None:
    end = BEGAN + timedelta(seconds=3)
    times = [(BEGAN + timedelta(seconds=2), 2.4), (end, 1.4)]  # the second one seems to begin 0.4 s before the first one's end
    records = [Record.model_construct(kind="train", label="", created_at=at.isoformat(), seconds=seconds) for at, seconds in times]
    assert [bar.slot for bar in bars(records)] == [0, 0]


def test_the_table_counts_what_is_drawn() -> None:
    found = [
        Bar(kind="train", label="one", start_s=0.0, end_s=6.0, slot=0),
        Bar(kind="scores", label="two", start_s=6.0, end_s=10.0, slot=0),
        Bar(kind="train", label="three", start_s=0.0, end_s=5.0, slot=1),
    ]
    assert table(found).splitlines()[2:] == ["| train | 2 | 11.0 | 55% |", "| scores | 1 | 4.0 | 20% |", "| all | 3 | 15.0 | 75% |"]
    assert drawn(found, name="small").table.splitlines()[1:] == ["one,train,0.0,6.0,0", "two,scores,6.0,10.0,0", "three,train,0.0,5.0,1"]
