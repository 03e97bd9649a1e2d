"""Labels that say yes or no, however a table writes them; another is refused with its row before anything is encoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.errors import DataError
from sentdist.plan.task_kinds import ClassificationTask, ParaphraseTask
from sentdist.stages.tasks.load import loader_of


def _written(root: Path, labels: list[object]) -> None:
    texts = [f"text {number}" for number in range(len(labels))]
    pq.write_table(pa.table({"sentence1": texts, "sentence2": texts, "text": texts, "label": labels}), root / "p.parquet")


PAIRS = ParaphraseTask(name="p", source="p", revision="1", split=None)


@pytest.mark.parametrize("labels", [[1, 0, 1], [True, False, True], [1.0, 0.0, 1.0], ["1", "0", "1"], ["True", "false", "TRUE"]])
def test_they_may_be_numbers_or_words(labels: list[object], tmp_path: Path) -> None:
    _written(tmp_path, labels)
    assert loader_of("pairs")(PAIRS, tmp_path).labels == (1, 0, 1)  # type: ignore[attr-defined]


def test_another_is_refused_with_its_row(tmp_path: Path) -> None:
    _written(tmp_path, ["1", "0", "yes"])
    with pytest.raises(DataError, match="p: found label 'yes' in row 3 of the 3 that are read; expected 1 or 0, true or false"):
        loader_of("pairs")(PAIRS, tmp_path)


def test_one_class_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    _written(tmp_path, ["same"] * 4)
    with pytest.raises(DataError, match="found one label, 'same', in all rows"):
        loader_of("classification")(ClassificationTask(name="c", source="p", revision="1", split=None), tmp_path)
