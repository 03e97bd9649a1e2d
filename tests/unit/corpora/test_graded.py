"""Graded pairs and corpora: what labels become, which pairs are left out, and which row is named when one is wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.corpora.graded import GradedCorpus, GradedPart, labels_of
from sentdist.corpora.kind import CorpusTable, Reading
from sentdist.data.checked_rows import read_pairs
from sentdist.data.sources import inspect_source
from sentdist.errors import DataError
from sentdist.tasks.sts import StsTask


def test_words_and_numbers_become_labels() -> None:
    found = labels_of(["neutral", "entailment", "-", "contradiction", None, "", "-1"], scale="nli", where="nli")
    assert [None if label != label else label for label in found.tolist()] == [1.0, 2.0, None, 0.0, None, None, None]
    for scale, cells, said in (
        ("nli", ["neutral", "maybe"], 'label "maybe" in row 2; expected one of contradiction'),
        ("one_to_five", [1.0, 0.5], 'label "0.5" in row 2; expected a number from 1 to 5'),
        ("one_to_five", [float("nan")], 'label "nan" in row 1'),
        ("zero_to_five", ["high"], 'label "high" in row 1; expected a number from 0 to 5'),
    ):
        with pytest.raises(DataError, match=said):
            labels_of(cells, scale=scale, where="sts")  # type: ignore[arg-type]


def test_rounding_of_halves_and_to_another_spacing() -> None:
    """1.25 (y − 1) of SICK's labels; 1.4 comes out as 0.49999999999999994 in float64 and counts as a half."""
    for rounding, labels in {
        "half_even": [0, 0, 2, 2, 4, 4, 5],
        "half_up": [0, 1, 2, 3, 4, 5, 5],
        "truncate": [0, 0, 1, 2, 3, 4, 5],
        "none": [0, 0.5, 1.5, 2.5, 3.75, 4.5, 5],
    }.items():
        cells = [1, 1.4, 2.2, 3.0, 4.0, 4.6, 5.0]
        assert labels_of(cells, scale="one_to_five", rounding=rounding, where="sick").tolist() == labels  # type: ignore[arg-type]
    assert labels_of([0, 0.2, 0.3, 1.26], scale="zero_to_five", spacing=0.5, where="sts").tolist() == [0, 0, 0.5, 1.5]
    tenths = [0.3, 0.6, 0.7]  # 0.3 / 0.1 is 2.9999999999999996, and is not cut to 2
    found = labels_of(tenths, scale="zero_to_five", rounding="truncate", spacing=0.1, where="sts")
    assert found.tolist() == pytest.approx(tenths, rel=1e-6)


def test_pairs_of_test_sets_are_removed(tmp_path: Path) -> None:
    def write(name: str, first: int, scores: list[object]) -> None:
        texts = [f"sentence {first + number}" for number in range(len(scores))]
        rows = {"sentence1": texts, "sentence2": [f"{text} again" for text in texts], "score": scores}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")

    def read(*names: str, without: tuple[str, ...] = ()) -> CorpusTable:
        parts = tuple(GradedPart(source=name, source_revision="any", split=None, scale="zero_to_five") for name in names)
        tasks = tuple(StsTask(name=name, source=name, revision=inspect_source(name, data_root=tmp_path).digest) for name in without)
        return GradedCorpus(parts=parts, without=tasks).read(Reading(root=tmp_path))

    write("sts", 0, [1, 2, 3])
    write("more", 2, [5, 5, None])
    tested = {"one": [("SENTENCE 2, again!", "Sentence 2."), ("sentence 3 again", "sentence 3"), ("nothing", "here")]}
    tested["other"] = [("sentence 2", "sentence 2 again"), ("sentence 0", "sentence 0 again")]
    for name, pairs in tested.items():
        rows = {"sentence1": [one for one, _ in pairs], "sentence2": [other for _, other in pairs], "score": [1.0] * len(pairs)}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    found = read("sts", "more", without=("one", "other"))
    assert found.table["sentence1"].to_pylist() == ["sentence 1"] and found.facts["removed"] == {"one": 3, "other": 3}
    assert found.facts["parts"] == {
        "sts": {"rows": 3, "without_label": 0, "in_test_sets": 2, "by_label": {"2": 1}},
        "more": {"rows": 3, "without_label": 1, "in_test_sets": 2, "by_label": {}},
    }
    whole = read("sts", "more").table
    assert whole["label"].to_pylist() == [1, 2, 3, 5, 5] and whole.schema.types == [pa.large_string(), pa.large_string(), pa.float32()]
    write("none", 0, [None])
    with pytest.raises(DataError, match="none left"):
        read("none")


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
