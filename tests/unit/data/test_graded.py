"""Graded corpora: what labels become, which pairs are left out, and which row is named when one is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sentdist.data.checked_rows import read_pairs
from sentdist.data.graded import NLI_LABELS, GradedSource, LabelMap, join_graded
from sentdist.data.sources.hub import read_source
from sentdist.errors import DataError

SICK = {"low": 0.0, "high": 5.0, "source_range": (1.0, 5.0)}


def part(labels: list[object], label_map: LabelMap, name: str = "sts", first: int = 0) -> GradedSource:
    sentences = [f"sentence {first + number}" for number in range(len(labels))]
    rows = pa.table({"sentence1": sentences, "sentence2": [f"{sentence} again" for sentence in sentences], "score": labels})
    return GradedSource(name=name, rows=rows, labels=label_map)


def labels_of(*parts: GradedSource) -> list[float]:
    return join_graded(parts).table["label"].to_pylist()


def test_words() -> None:
    nli = LabelMap(low=0, high=2, words=NLI_LABELS)
    found = join_graded([part(["neutral", "entailment", "-", "contradiction", None, ""], nli)])
    assert found.table["label"].to_pylist() == [1.0, 2.0, 0.0]
    assert found.table["sentence2"].to_pylist() == ["sentence 0 again", "sentence 1 again", "sentence 3 again"]
    assert found.table.schema.types == [pa.large_string(), pa.large_string(), pa.float32()]
    counts = found.counts["sts"]
    assert (counts.rows, counts.without_label, counts.in_test_sets, counts.by_label) == (6, 3, 0, {"0": 1, "1": 1, "2": 1})


def test_words_that_are_numbers() -> None:
    """The Hub writes SNLI's labels as 0 (entailment) to 2, and −1 for none."""
    hub = LabelMap(low=0, high=2, words={"0": 2.0, "1": 1.0, "2": 0.0})
    assert labels_of(part([0, 2, -1, 1], hub)) == [2.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("rounding", "labels"),
    [
        ("half_even", [0, 0, 2, 2, 4, 4, 5]),
        ("half_up", [0, 1, 2, 3, 4, 5, 5]),
        ("truncate", [0, 0, 1, 2, 3, 4, 5]),
        ("none", [0, 0.5, 1.5, 2.5, 3.75, 4.5, 5]),
    ],
)
def test_rounding_of_halves(rounding: str, labels: list[float]) -> None:
    """1.25 (y − 1) of SICK's labels; 1.4 comes out as 0.49999999999999994 in float64 and counts as a half."""
    assert labels_of(part([1, 1.4, 2.2, 3.0, 4.0, 4.6, 5.0], LabelMap(**SICK, rounding=rounding))) == labels


def test_rounding_to_another_spacing() -> None:
    assert labels_of(part([0, 0.2, 0.3, 1.26], LabelMap(low=0, high=2, spacing=0.5))) == [0, 0, 0.5, 1.5]
    assert labels_of(part([1, 1.9, 3.0], LabelMap(low=1, high=5, spacing=2))) == [1, 1, 3]
    tenths = [0.3, 0.6, 0.7]  # 0.3 / 0.1 is 2.9999999999999996, and is not cut to 2
    assert labels_of(part(tenths, LabelMap(low=0, high=1, spacing=0.1, rounding="truncate"))) == pytest.approx(tenths, rel=1e-6)


def test_parts_stand_one_after_another_and_are_counted_apart() -> None:
    sts, sick = part([0.4, 5, 5], LabelMap(low=0, high=5)), part([3.0, 5.0], LabelMap(**SICK), "sick", first=10)
    found = join_graded([sts, sick])
    assert found.table["label"].to_pylist() == [0, 5, 5, 2, 5]
    assert {name: counts.by_label for name, counts in found.counts.items()} == {"sts": {"0": 1, "5": 2}, "sick": {"2": 1, "5": 1}}


def test_pairs_of_test_sets_are_removed() -> None:
    parts = [part([1, 2, 3], LabelMap(low=0, high=5)), part([5, 5], LabelMap(low=0, high=5), "more", first=2)]
    tests = {
        "one": [("SENTENCE 2, again!", "Sentence 2."), ("sentence 3 again", "sentence 3"), ("nothing", "here")],  # the next has it not
        "other": [("sentence 2", "sentence 2 again"), ("sentence 0", "sentence 0 again")],
    }
    found = join_graded(parts, without=tests)
    assert found.table["sentence1"].to_pylist() == ["sentence 1"]
    assert found.removed == {"one": 3, "other": 3}
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
        ([5.5], SICK, "label 5.5 in row 1"),
        ([float("nan")], SICK, "label nan in row 1"),
        (["high"], SICK, 'label "high" in row 1; expected a number from 1 to 5'),
        ([None], SICK, "graded pairs: found none left"),
        ([1.0], {"low": 5, "high": 0}, "label_range: found 5 to 0"),
        ([1.0], {"low": 0, "high": 2, "words": {"neutral": 3.0}}, "words.neutral: found 3; expected a number from 0 to 2"),
        ([1.0], {"low": 0, "high": 2, "words": {"neutral": 0.5}}, "words.neutral: found 0.5; expected a number from 0 to 2 in steps of 1"),
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


def test_absent_columns_and_twins() -> None:
    one = part([1.0], LabelMap(low=0, high=5))
    with pytest.raises(DataError, match=r"sts: found columns sentence1, sentence2; expected columns sentence1, sentence2, score"):
        join_graded([GradedSource(name="sts", rows=one.rows.drop_columns("score"), labels=one.labels)])
    with pytest.raises(DataError, match="parts: found sts, sts; expected each source once"):
        join_graded([one, one])
    with pytest.raises(DataError, match="parts: found none"):
        join_graded([])


@pytest.mark.data
@pytest.mark.parametrize(
    ("rounding", "counts"),
    [
        ("half_even", [303, 193, 705, 1258, 1437, 604]),
        ("half_up", [274, 222, 575, 1388, 1320, 721]),
        ("truncate", [381, 323, 943, 1496, 1222, 135]),
    ],
)
def test_class_counts_of_sick(data_root: Path, rounding: str, counts: list[int]) -> None:
    """The three readings of "round all sample labels to integers"; 480 of 4,500 labels are halves."""
    rows = read_source("sts/sick", split="train", data_root=data_root)
    exact = join_graded([GradedSource(name="sick", rows=rows, labels=LabelMap(**SICK, rounding="none"))]).table["label"].to_pylist()
    assert sum(label % 1 == 0.5 for label in exact) == 480
    found = join_graded([GradedSource(name="sick", rows=rows, labels=LabelMap(**SICK, rounding=rounding))])
    assert list(found.counts["sick"].by_label.values()) == counts


@pytest.mark.data
def test_stage_2_on_the_real_sets(data_root: Path) -> None:
    """STS-B + SICK-R train: 10,249 pairs, 168 of STS-B's labels halves; 4,797 and 131 of them stand in a test set."""
    stsb, sick = (read_source(f"sts/{name}", split="train", data_root=data_root) for name in ("stsb", "sick"))
    parts = [
        GradedSource(name="stsb", rows=stsb, labels=LabelMap(low=0, high=5)),
        GradedSource(name="sick", rows=sick, labels=LabelMap(**SICK)),
    ]
    whole = join_graded(parts)
    assert whole.table.num_rows == 5749 + 4500
    assert sum(score % 1 == 0.5 for score in stsb["score"].to_pylist()) == 168
    tests = {}
    for name, split in [*((f"sts{year}", None) for year in range(12, 17)), ("stsb", "test"), ("sick", "test")]:
        score_range = (1.0, 5.0) if name == "sick" else (0.0, 5.0)
        pairs = read_pairs(f"sts/{name}", split=split, data_root=data_root, score_range=score_range)
        tests[name] = list(zip(pairs.sentence1, pairs.sentence2, strict=True))
    found = join_graded(parts, without=tests)
    # Training pairs, so one that stands twice in STS-B train counts twice:
    # a little above the 1003, 597, 1861, 1102, 197 test pairs it has seen.
    assert found.removed == {"sts12": 1047, "sts13": 597, "sts14": 1864, "sts15": 1108, "sts16": 202, "stsb": 30, "sick": 150}
    assert {name: counts.in_test_sets for name, counts in found.counts.items()} == {"stsb": 4797, "sick": 131}
    assert found.table.num_rows == 5749 + 4500 - 4797 - 131
