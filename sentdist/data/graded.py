"""Build graded pairs for training: map labels to numbers, remove pairs of test sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentdist.data.cells import row_name
from sentdist.data.leaks import pairs_seen
from sentdist.data.tables import check_columns
from sentdist.errors import DataError

NLI_LABELS: Mapping[str, float] = {"contradiction": 0.0, "neutral": 1.0, "entailment": 2.0}
NO_GOLD = ("", "-", "-1")  # NLI label of a pair on which annotators disagree
ROUNDINGS = ("half_even", "half_up", "truncate", "none")
DECIMALS = 9  # 1.25 · (1.4 − 1) is 0.49999999999999994 in float64: rounded to these decimals before halves are decided


@dataclass(frozen=True, kw_only=True)
class LabelMap:
    """Maps the labels of one source to numbers in [low, high].

    Args:
        words: number of each label word, never rounded; None: labels are numbers.
        source_range: range of numeric labels, mapped linearly onto [low, high] (SICK: 1 to 5 onto 0 to 5, y' = 1.25 (y − 1)); None: the
            range is [low, high].
        rounding: to multiples of `spacing` above low: "half_even" (as Python and NumPy), "half_up", "truncate", or "none".

    Raises:
        DataError: inconsistent values.
    """

    low: float
    high: float
    words: Mapping[str, float] | None = None
    source_range: tuple[float, float] | None = None
    rounding: str = "half_even"
    spacing: float = 1.0

    def __post_init__(self) -> None:
        _require(self.low < self.high, "label_range", f"{self.low:g} to {self.high:g}", "two numbers, the lower first")
        _require(self.rounding in ROUNDINGS, "rounding", f'"{self.rounding}"', f"one of {', '.join(ROUNDINGS)}")
        _require(0 < self.spacing < math.inf, "spacing", f"{self.spacing:g}", "a finite number above 0")
        _require(self.words is None or self.source_range is None, "source_range", "label words too", "words or a range of numbers")
        if self.source_range is not None:
            low, high = self.source_range
            _require(low < high, "source_range", f"{low:g} to {high:g}", "two numbers, the lower first")
        is_grid = self.rounding != "none"
        expected = f"a number from {self.low:g} to {self.high:g}" + (f" in steps of {self.spacing:g}" if is_grid else "")
        _require(not is_grid or self._is_on_grid(self.high), "label_range", f"an end {self.high:g}", expected)
        for word, value in (self.words or {}).items():
            fits = self.low <= value <= self.high and (not is_grid or self._is_on_grid(value))
            _require(fits, f"words.{word}", f"{value:g}", expected)

    def numbers(self, cells: Sequence[object], *, where: str) -> np.ndarray:
        """Return (R,) float64 labels of R cells, NaN without a label; raise DataError, naming row and label, for an invalid one."""
        if self.words is not None:
            return self._of_words(cells, where)
        values = self._of_numbers(cells, where)
        if self.rounding == "none":
            return values
        return _rounded((values - self.low) / self.spacing, self.rounding) * self.spacing + self.low

    def _is_on_grid(self, value: float) -> bool:
        return round((value - self.low) / self.spacing, DECIMALS) % 1 == 0

    def _of_words(self, cells: Sequence[object], where: str) -> np.ndarray:
        assert self.words is not None
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            word = "" if cell is None else str(cell)
            if word in self.words:
                values[row] = self.words[word]
            elif word not in NO_GOLD:
                raise _wrong_label(where, f'"{word}"', row, f"one of {', '.join(self.words)}")
        return values

    def _of_numbers(self, cells: Sequence[object], where: str) -> np.ndarray:
        low, high = self.source_range or (self.low, self.high)
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if cell is None or cell == "":
                continue
            try:
                values[row] = float(str(cell))
            except ValueError:
                raise _wrong_label(where, f'"{cell}"', row, f"a number from {low:g} to {high:g}") from None
            if not low <= values[row] <= high:  # also for NaN: a broken label, not a missing one
                raise _wrong_label(where, f"{values[row]:g}", row, f"a number from {low:g} to {high:g}")
        mapped = self.low + (values - low) * ((self.high - self.low) / (high - low))
        return np.round(mapped, DECIMALS)


@dataclass(frozen=True, kw_only=True)
class GradedSource:
    """One source of graded pairs: its rows, the names of its columns, and the mapping of its labels. name: for counts and errors."""

    name: str
    rows: pa.Table
    labels: LabelMap
    sentence1: str = "sentence1"
    sentence2: str = "sentence2"
    label: str = "score"


@dataclass(frozen=True, kw_only=True)
class PartCounts:
    """Counts of one part: rows, rows without a label, pairs in a test set, and remaining pairs of each label."""

    rows: int
    without_label: int
    in_test_sets: int
    by_label: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GradedPairs:
    """All parts, concatenated.

    Args:
        table: columns sentence1, sentence2 (large_string) and label (float32).
        counts: of each part.
        removed: number of removed pairs by test set; a pair in two sets counts in both.
    """

    table: pa.Table
    counts: dict[str, PartCounts]
    removed: dict[str, int]


def join_graded(parts: Sequence[GradedSource], *, without: Mapping[str, Iterable[tuple[str, str]]] | None = None) -> GradedPairs:
    """Concatenate graded sources without the pairs of test sets.

    Args:
        without: pairs of each test set by its name, compared in either order after `fold_text`.

    Raises:
        DataError: absent columns, invalid labels, two parts of one name, or no remaining pair.
    """
    names = [part.name for part in parts]
    _require(len(parts) > 0, "parts", "none", "at least one source of graded pairs")
    _require(len(set(names)) == len(names), "parts", ", ".join(names), "each source once, or with a separate name")
    test_sets = {name: list(pairs) for name, pairs in (without or {}).items()}
    tables, counts, removed = [], {}, dict.fromkeys(test_sets, 0)
    for part in parts:
        table, unlabelled = _labelled(part)
        keep = np.ones(table.num_rows, dtype=bool)
        pairs = list(zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True)) if test_sets else []
        for name, tested in test_sets.items():
            seen = pairs_seen(pairs, tested)
            removed[name] += int(seen.sum())
            keep &= ~seen
        table = table.filter(pa.array(keep))
        tables.append(table)
        counts[part.name] = PartCounts(
            rows=part.rows.num_rows, without_label=unlabelled, in_test_sets=int((~keep).sum()), by_label=_by_label(table["label"])
        )
    joined = pa.concat_tables(tables).combine_chunks()
    _require(joined.num_rows > 0, "graded pairs", "none left", "at least one with a label that is in no test set")
    return GradedPairs(table=joined, counts=counts, removed=removed)


def _labelled(part: GradedSource) -> tuple[pa.Table, int]:
    """The part's pairs under the names of a graded corpus, and the number of rows without a label."""
    check_columns(part.name, part.rows.column_names, (part.sentence1, part.sentence2, part.label))
    labels = part.labels.numbers(part.rows[part.label].to_pylist(), where=part.name)
    table = pa.table(
        {
            "sentence1": part.rows[part.sentence1].cast(pa.large_string()),
            "sentence2": part.rows[part.sentence2].cast(pa.large_string()),
            "label": pa.array(labels, pa.float32()),
        }
    )
    return table.filter(pa.array(~np.isnan(labels))), int(np.isnan(labels).sum())


def _rounded(places: np.ndarray, rounding: str) -> np.ndarray:
    """Integers from places on the grid, which are ≥ 0."""
    places = np.round(places, DECIMALS)
    if rounding == "half_even":
        return np.rint(places)
    return np.floor(places + 0.5) if rounding == "half_up" else np.floor(places)


def _by_label(labels: pa.ChunkedArray) -> dict[str, int]:
    counted = {float(entry["values"].as_py()): int(entry["counts"].as_py()) for entry in pc.value_counts(labels)}
    return {f"{label:g}": counted[label] for label in sorted(counted)}


def _wrong_label(where: str, found: str, row: int, expected: str) -> DataError:
    remedy = "Correct the row, or the words or range of the labels in the recipe."
    return DataError(where=where, found=f"label {found} in {row_name(row)}", expected=expected, remedy=remedy)


def _require(holds: bool, name: str, found: str, expected: str) -> None:
    if not holds:
        raise DataError(where=name, found=found, expected=expected, remedy="Correct the graded corpus of the recipe.")
