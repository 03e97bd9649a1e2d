"""Whether an encoder is better than the untouched one: by its own scores, on a measure that can tell them apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.evaluation.items import Scored
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.evaluated import verdict

TASKS = {"retrieval-mine-test": TASK_KINDS["retrieval"].main, "triplets-mine-test": TASK_KINDS["triplets"].main}


def made(folder: Path, found: np.ndarray, right: np.ndarray) -> Scored:
    folder.mkdir()
    for task, values in zip(TASKS, (found, right), strict=True):
        pq.write_table(pa.table({"value": 100 * values}), folder / f"{task}.parquet")
    return Scored(
        scores={task: 100 * float(values.mean()) for task, values in zip(TASKS, (found, right), strict=True)},
        items={task: (folder / f"{task}.parquet",) for task in TASKS},
    )


@pytest.mark.parametrize(("shift", "outcome"), [(0.2, "better"), (0.0, "not shown to be better"), (-0.2, "worse")])
def test_an_encoder_is_judged_by_its_own_items(shift: float, outcome: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    before = draw.uniform(0.3, 0.7, 200)
    after = np.clip(before + shift + draw.normal(0, 0.1, 200), 0, 1)
    found = verdict(made(tmp_path / "a", after, after), made(tmp_path / "b", before, before), TASKS)
    assert found.outcome == outcome and found.task == "retrieval-mine-test" and found.num_items == 200
    assert found.line.startswith(outcome.capitalize()) and "held-out items" in found.line
    assert ("would be found" in found.line) == (outcome == "not shown to be better")


def test_a_saturated_measure_gives_way_to_another(tmp_path: Path) -> None:
    full, draw = np.ones(40), np.random.default_rng(0)
    some = (draw.uniform(size=40) < 0.8).astype(float)
    found = verdict(made(tmp_path / "a", full, some), made(tmp_path / "b", full, some[::-1].copy()), TASKS)
    assert found.task == "triplets-mine-test" and found.saturated and found.saturated[0] in found.line
