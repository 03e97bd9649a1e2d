"""Records as version 0.3 wrote them, a stage of every kind with all that it was made of: later versions give the same stages back.

python -m tests.golden.test_old_records     adds kinds that are new; what an older version wrote stays as it is
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import STAGES
from sentdist.store.record import Record, restored
from tests.support.every_stage import one_of_each

GOLDEN = Path(__file__).parent / "old_records.json"


def written() -> dict[str, Json]:
    """Key -> the canonical values that stand in a record."""
    found: dict[str, Json] = json.loads(GOLDEN.read_text())
    return found


def records() -> dict[str, Record]:
    found = {}
    for key, stage in written().items():
        assert isinstance(stage, dict)
        found[key] = Record(
            key=key, kind=str(stage["kind"]), label="", place=f"{stage['kind']}/{key}", stage=stage, inputs=(),
            created_at="2026-11-23T00:00:00Z", seconds=1.0, runtime={}, environment={}, results={}, files={},
        )  # fmt: skip
    return found


def test_there_is_a_record_of_every_kind() -> None:
    assert {record.kind for record in records().values()} == set(STAGES)


@pytest.mark.parametrize("key", written())
def test_what_was_written_then_is_the_same_stage_now(key: str) -> None:
    """As long as its kind has the revision that it had."""
    found = restored(key, records())
    assert found is not None
    then = written()[key]
    assert isinstance(then, dict)
    if then["revision"] == found.revision:
        anew = type(found).model_validate({name: getattr(found, name) for name in type(found).model_fields})
        assert anew == found and anew.key == key and anew.canonical() == then


def test_a_process_that_has_planned_nothing_reads_them() -> None:
    """Types that name later ones are whole only once they are used."""
    script = (
        "from sentdist.store.record import restored; from tests.golden.test_old_records import records; found = records(); "
        "print(sum(restored(key, found) is not None for key in found))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=GOLDEN.parents[2], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(len(written())), done.stderr


if __name__ == "__main__":
    there = written()
    kinds = {str(stage["kind"]) for stage in there.values() if isinstance(stage, dict)}
    new = [stage for stage in one_of_each().values() if stage.kind not in kinds]
    GOLDEN.write_text(
        json.dumps(there | {one.key: one.canonical() for one in topological(tuple(new))}, indent=1, ensure_ascii=False) + "\n"
    )
