"""What is tested is the score: of every kind of task the items that a report reads give the very score, and move it as they should."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, v_measure_score

from sentdist.evaluation.items import GROUP, NAMES, SHARED, STRATUM, Columns, items_of
from sentdist.tasks.kinds import OWN_KINDS, TASK_KINDS
from tests.random_recipes.own_tables import write_own
from tests.support.tasks_data import evaluated

# By libraries, from the columns of a file of items. A measure that is none of these is the mean of the column of its name.
VALUES: Mapping[str, Callable[[Columns], float]] = {
    "spearman": lambda items: float(spearmanr(items["similarity"], items["score"]).statistic) * 100,
    "ap": lambda items: average_precision_score(items["label"], items["similarity"]) * 100,
    "v_measure": lambda items: v_measure_score(items["label"], items["cluster"]) * 100,
}
ROUNDED = 0.01  # points: cosines are kept in float32
OF_ONE_RUN = {"v_measure": 2.0}  # points: the mean of several runs, of which one is kept


@pytest.fixture(scope="module")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own")
    write_own(root)
    return root


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_items_give_the_score_and_move_it_as_they_should(kind: str, own_data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    artifact, context = evaluated(tiny_encoder_dir, (f"{kind}=my/{kind}-test",), data=own_data, store=tmp_path / "store")
    (file,) = (context.store.folder(artifact) / "items").iterdir()
    table, task = pq.read_table(file), file.stem
    columns = {name: table[name].to_numpy() for name in table.column_names}
    score = artifact.record.results[task]
    measure = TASK_KINDS[kind].main.name
    value = VALUES.get(measure, lambda items: float(np.mean(items[measure])))
    assert value(columns) == pytest.approx(score, abs=OF_ONE_RUN.get(measure, ROUNDED))

    columns = _otherwise(columns)
    items = items_of(columns, task=task, where=kind)
    assert items is not None
    size = len(items.contributions)
    without = np.array([value({name: np.delete(column, left_out) for name, column in columns.items()}) for left_out in range(size)])
    moved = (size - 1) / size * (without.mean() - without)
    assert np.corrcoef(moved, items.contributions)[0, 1] > 0.97
    assert np.sum(items.contributions**2) == pytest.approx(np.sum(moved**2), rel=0.35)


def _otherwise(columns: Columns) -> Columns:
    """The same items with answers of another encoder, which is sometimes wrong: the tiny one is right on all of some kinds."""
    draw, size = np.random.default_rng(0), len(next(iter(columns.values())))
    answers = {
        "similarity": lambda: draw.normal(size=size) + columns.get("score", columns.get("label", np.zeros(size))),
        "cluster": lambda: np.where(
            draw.random(size) < 0.7, np.unique(columns["label"], return_inverse=True)[1], draw.integers(2, size=size)
        ),
        "predicted": lambda: np.where(draw.random(size) < 0.7, columns["label"], columns["label"][::-1]),
    }
    known = (*NAMES, STRATUM, GROUP, SHARED)
    return {
        name: answers[name]() if name in answers else column if name in known else 100 * draw.random(size)
        for name, column in columns.items()
    }
