"""Graded pairs and corpora: what labels become, which pairs are left out, and which row is named when one is wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import read_pairs
from sentdist.data.graded import NLI_LABELS, GradedSource, LabelMap, join_graded
from sentdist.errors import DataError

SICK = {"low": 0.0, "high": 5.0, "source_range": (1.0, 5.0)}


def part(labels: list[object], label_map: LabelMap, name: str = "sts", first: int = 0) -> GradedSource:
    sentences = [f"sentence {first + number}" for number in range(len(labels))]
    rows = pa.table({"sentence1": sentences, "sentence2": [f"{sentence} again" for sentence in sentences], "score": labels})
    return GradedSource(name=name, rows=rows, labels=label_map)


def labels_of(*parts: GradedSource) -> list[float]:
    return join_graded(parts).table["label"].to_pylist()


def test_words() -> None:
    hub = LabelMap(low=0, high=2, words={"0": 2.0, "1": 1.0, "2": 0.0})  # the Hub has no label as -1
    assert labels_of(part([0, 2, -1, 1], hub)) == [2.0, 0.0, 1.0]
    nli = LabelMap(low=0, high=2, words=NLI_LABELS)
    found = join_graded([part(["neutral", "entailment", "-", "contradiction", None, ""], nli)])
    assert found.table["label"].to_pylist() == [1.0, 2.0, 0.0]
    assert found.table["sentence2"].to_pylist() == ["sentence 0 again", "sentence 1 again", "sentence 3 again"]
    assert found.table.schema.types == [pa.large_string(), pa.large_string(), pa.float32()]
    counts = found.counts["sts"]
    assert (counts.rows, counts.without_label, counts.in_test_sets, counts.by_label) == (6, 3, 0, {"0": 1, "1": 1, "2": 1})


def test_rounding_of_halves_and_to_another_spacing() -> None:
    """1.25 (y − 1) of SICK's labels; 1.4 comes out as 0.49999999999999994 in float64 and counts as a half."""
    for rounding, labels in {
        "half_even": [0, 0, 2, 2, 4, 4, 5],
        "half_up": [0, 1, 2, 3, 4, 5, 5],
        "truncate": [0, 0, 1, 2, 3, 4, 5],
        "none": [0, 0.5, 1.5, 2.5, 3.75, 4.5, 5],
    }.items():
        assert labels_of(part([1, 1.4, 2.2, 3.0, 4.0, 4.6, 5.0], LabelMap(**SICK, rounding=rounding))) == labels
    assert labels_of(part([0, 0.2, 0.3, 1.26], LabelMap(low=0, high=2, spacing=0.5))) == [0, 0, 0.5, 1.5]
    tenths = [0.3, 0.6, 0.7]  # 0.3 / 0.1 is 2.9999999999999996, and is not cut to 2
    assert labels_of(part(tenths, LabelMap(low=0, high=1, spacing=0.1, rounding="truncate"))) == pytest.approx(tenths, rel=1e-6)


def test_pairs_of_test_sets_are_removed() -> None:
    parts = [part([1, 2, 3], LabelMap(low=0, high=5)), part([5, 5], LabelMap(low=0, high=5), "more", first=2)]
    tests = {
        "one": [("SENTENCE 2, again!", "Sentence 2."), ("sentence 3 again", "sentence 3"), ("nothing", "here")],  # the next has it not
        "other": [("sentence 2", "sentence 2 again"), ("sentence 0", "sentence 0 again")],
    }
    found = join_graded(parts, without=tests)
    assert found.table["sentence1"].to_pylist() == ["sentence 1"]
    assert found.removed == {"one": 3, "other": 3}
    whole = join_graded([part([0.4, 5, 5], LabelMap(low=0, high=5)), part([3.0, 5.0], LabelMap(**SICK), "sick", first=10)])
    assert whole.table["label"].to_pylist() == [0, 5, 5, 2, 5], "parts stand one after another"
    assert {name: one.by_label for name, one in whole.counts.items()} == {"sts": {"0": 1, "5": 2}, "sick": {"2": 1, "5": 1}}
    assert [(counts.rows, counts.in_test_sets, counts.by_label) for counts in found.counts.values()] == [(3, 2, {"2": 1}), (2, 2, {})]


@pytest.mark.parametrize(
    ("labels", "values", "message"),
    [
        (
            ["neutral", "maybe"],
            {"low": 0, "high": 2, "words": NLI_LABELS},
            'sts: found label "maybe" in row 2; expected one of contradiction',
        ),
        ([1.0, 0.5], SICK, "sts: found label 0.5 in row 2; expected a number from 1 to 5"),
        ([float("nan")], SICK, "label nan in row 1"),
        (["high"], SICK, 'label "high" in row 1; expected a number from 1 to 5'),
        ([None], SICK, "graded pairs: found none left"),
        ([1.0], {"low": 5, "high": 0}, "label_range: found 5 to 0"),
        ([1.0], {"low": 0, "high": 2, "words": {"neutral": 3.0}}, "words.neutral: found 3; expected a number from 0 to 2"),
        ([1.0], {"low": 0, "high": 5, "spacing": 2}, "label_range: found an end 5; expected a number from 0 to 5 in steps of 2"),
        ([1.0], {"low": 0, "high": 2, "words": NLI_LABELS, "source_range": (1, 5)}, "source_range: found label words too"),
        ([1.0], {"low": 0, "high": 5, "source_range": (5, 1)}, "source_range: found 5 to 1"),
        ([1.0], {"low": 0, "high": 5, "rounding": "up"}, 'rounding: found "up"; expected one of half_even'),
        ([1.0], {"low": 0, "high": 5, "spacing": 0}, "spacing: found 0"),
    ],
)
def test_labels_that_do_not_fit(labels: list[object], values: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        join_graded([part(labels, LabelMap(**values))])  # type: ignore[arg-type]


def _written(folder: Path, **columns: list[object]) -> Path:
    rows: dict[str, list[object]] = {"sentence1": ["a b", "c", "d"], "sentence2": ["a", "b", "c"], "score": [0.0, 2.5, 5.0]}
    pq.write_table(pa.table(rows | columns), folder / "sts.parquet")
    return folder


def test_pairs_in_order(tmp_path: Path) -> None:
    """Some of the rows keep what is theirs; those without a gold score are left out."""
    pairs = read_pairs("sts", data_root=_written(tmp_path, subset=["x", "y", "x"], group=["g", "h", "i"]))
    assert (pairs.subset, pairs.sentence1, pairs.sentence2) == (("x", "y", "x"), ("a b", "c", "d"), ("a", "b", "c"))
    assert pairs.score.dtype == np.float64 and pairs.score.tolist() == [0.0, 2.5, 5.0] and (pairs.num_pairs, pairs.num_ungraded) == (3, 0)
    some = pairs.only(np.array([2, 0]))
    assert (some.sentence1, some.sentence2, some.group, some.score.tolist()) == (("d", "a b"), ("c", "a"), ("i", "g"), [5.0, 0.0])
    pairs = read_pairs("sts", data_root=_written(tmp_path, score=[1.0, None, 2.0]))
    assert (pairs.num_pairs, pairs.num_ungraded, pairs.sentence1, pairs.group) == (2, 1, ("a b", "d"), ())


@pytest.mark.parametrize(
    ("columns", "settings", "said"),
    [
        ({"score": [1.0, float("nan"), 2.0]}, {}, "in row 2; expected a number from 0 to 5"),
        ({"score": [1.0, 5.1, 2.0]}, {}, "in row 2; expected a number from 0 to 5"),
        ({"score": [1.0, float("inf"), 2.0]}, {"score_range": (-math.inf, math.inf)}, "in row 2; expected a finite number"),
        ({"score": ["1", "2", "high"]}, {}, "score high in row 3"),
        ({}, {"score_range": (1.0, 5.0)}, r"score 0\.0 in row 1; expected a number from 1 to 5"),
        ({"sentence2": ["a", None, "b"]}, {}, "an empty sentence2 in row 2"),
        ({"sentence2": ["a", "  ", "b"]}, {}, "an empty sentence2 in row 2"),
        ({"sentence1": [1, 2, 3]}, {}, "sentence1 1 in row 1"),
        ({"score": [None, None, None]}, {}, "no graded pair"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, columns: dict[str, list[object]], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_pairs("sts", data_root=_written(tmp_path, **columns), **settings)
