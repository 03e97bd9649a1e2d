"""Graded sentence pairs (semantic textual similarity), checked row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sentdist.data.cells import groups_in, row_name, some_text_in
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.pinned import read_source
from sentdist.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """P sentence pairs. subset: the part of the task that each comes from; score: (P,) float64;
    num_ungraded: rows left out for want of a score. group: what each belongs to, such as a topic; () where the source does not say."""

    subset: tuple[str, ...]
    sentence1: tuple[str, ...]
    sentence2: tuple[str, ...]
    score: np.ndarray
    num_ungraded: int = 0
    group: tuple[str, ...] = ()

    @property
    def num_pairs(self) -> int:
        return len(self.sentence1)

    def only(self, rows: np.ndarray) -> Pairs:
        """The pairs of these rows, in this order."""

        def of(column: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(column[row] for row in rows)

        return replace(
            self, subset=of(self.subset), sentence1=of(self.sentence1), sentence2=of(self.sentence2), score=self.score[rows],
            group=of(self.group) if self.group else (),
        )  # fmt: skip


def read_pairs(
    name: str,
    *,
    split: str | None = None,
    data_root: Path | None = None,
    hub_revision: str | None = None,
    score_range: tuple[float, float] = (0.0, 5.0),
) -> Pairs:
    """Return the graded pairs of a source with columns sentence1, sentence2, score and, if they are there, subset and group.

    Rows without a gold score (null, or empty in a text file) are left out, as the STS16 release asks.
    Raises DataError, naming the row (counted within the split), for a score that is NaN, no number or outside the range,
    and for an empty sentence.
    """
    table = read_source(name, split=split, data_root=data_root, hub_revision=hub_revision)
    check_columns(name, table.column_names, ("sentence1", "sentence2", "score"), may_name=False)
    where = name if split is None else f"{name}, split {split}"
    subsets = table["subset"].to_pylist() if "subset" in table.column_names else [name] * table.num_rows
    groups = groups_in(table, range(table.num_rows))
    columns = zip(
        subsets,
        groups or [""] * table.num_rows,
        table["sentence1"].to_pylist(),
        table["sentence2"].to_pylist(),
        table["score"].to_pylist(),
        strict=True,
    )
    graded: list[tuple[str, str, str, str, float]] = []
    for row, (subset, group, sentence1, sentence2, score) in enumerate(columns):
        if score is None or score == "":
            continue
        value = _score(where, row, score, score_range)
        first, second = (
            some_text_in(text, where=where, row=row, column=column) for column, text in (("sentence1", sentence1), ("sentence2", sentence2))
        )
        graded.append((str(subset), group, first, second, value))
    if not graded:
        raise DataError(
            where=where, found="no graded pair", expected="at least one row with a score", remedy="Take a split whose scores are public."
        )
    subset_column, group_column, first_column, second_column, scores = zip(*graded, strict=True)
    return Pairs(
        subset=subset_column,
        sentence1=first_column,
        sentence2=second_column,
        score=np.asarray(scores, dtype=np.float64),
        num_ungraded=table.num_rows - len(graded),
        group=group_column if groups else (),
    )


def _score(where: str, row: int, score: object, score_range: tuple[float, float]) -> float:
    low, high = score_range
    try:
        value = float(str(score))
    except ValueError:
        value = float("nan")
    if not low <= value <= high or math.isinf(value):  # also for NaN
        raise DataError(
            where=where,
            found=f"score {score} in {row_name(row)}",
            expected="a finite number, with a point" if math.isinf(high) else f"a number from {low:g} to {high:g}, with a point",
            remedy="Correct the row or remove it; a row without a score is left out.",
        )
    return value
