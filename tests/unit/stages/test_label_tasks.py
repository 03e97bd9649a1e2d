"""Labelled tasks and triplets from file to score: columns, splits, empty texts, and each sentence encoded once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import EMPTY, read_labelled
from sentdist.data.leaks import LeakFinder
from sentdist.data.sources import inspect_source
from sentdist.errors import DataError
from sentdist.tasks.clustering import ClusteringTask
from sentdist.tasks.pairs import LoadedPairs, ParaphraseTask
from sentdist.tasks.scorer import COSINE
from sentdist.tasks.task import load_task
from sentdist.tasks.triplets import LoadedTriplets, TripletTask
from tests.support.tasks_data import evaluated, write_table

SUBJECTS = ("a man", "a woman", "the old man", "the young woman", "a child", "the small child")
VERBS = ("eats", "drinks", "plays", "sings", "reads", "walks")
ANIMALS = ("a dog", "a cat", "the red bird", "the big dog", "the small cat", "a bird")


def _rows() -> list[dict[str, object]]:
    """Who does it, people or animals: a planted encoder's bags of words distinguish them."""
    people = [{"text": f"{who} {verb}", "label": 1} for who in SUBJECTS for verb in VERBS]
    return people + [{"text": f"{who} {verb}", "label": 0} for who in ANIMALS for verb in VERBS]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    rows = _rows()
    write_table(root, "transfer/cr", [*rows, {"text": "  ", "label": 1}, {"text": "", "label": 0}])
    split = ["test" if number % 3 == 0 else "dev" if number % 3 == 1 else "train" for number in range(len(rows))]
    write_table(root, "transfer/sst2", [{**row, "split": part} for row, part in zip(rows, split, strict=True)])
    return root


def test_a_planted_encoder_finds_the_labels_and_items_say_which(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    own = "classification=transfer/sst2@test"
    artifact, context = evaluated(planted_encoder_dir, ("cr", "sst2", own), data=data, store=tmp_path / "store")
    results, items = artifact.record.results, context.store.folder(artifact) / "items"
    assert results["classification-transfer-sst2-test"] == 100.0 == results["classification-transfer-sst2-test.f1"]
    assert float(str(results["sst2"])) > 70.0, "SentEval's classifier stops early, the more so on few rows"
    found = pq.read_table(items / "cr.parquet")
    assert found.num_rows == 74 and np.mean(found["accuracy"]) == pytest.approx(results["cr"])
    assert pq.read_table(items / "sst2.parquet")["row"].to_pylist() == list(range(0, 72, 3)), "rows are those of the file"


def test_items_of_clusters_stand_in_the_order_of_their_texts(tmp_path: Path) -> None:
    labels = list("abbaababba")
    write_table(tmp_path, "made", [{"text": f"{label} {number}", "label": label} for number, label in enumerate(labels)])
    loaded = ClusteringTask(name="made", source="made", revision="x").load(tmp_path, {})
    embeddings = np.eye(2)[[int(text.startswith("b")) for text in loaded.sentences]]
    found = loaded.score(embeddings + 0.01 * np.random.default_rng(0).normal(size=embeddings.shape), COSINE)
    assert found.main == pytest.approx(100.0) and found.items["label"] == labels
    assert len(set(zip(labels, found.items["cluster"].tolist(), strict=True))) == 2, "each label is a cluster"


def test_texts_labels_and_splits_of_labelled_rows(tmp_path: Path) -> None:
    rows = [
        {"text": " a\tman  eats ", "text2": "", "label": 1, "split": "train"},
        {"text": "b", "text2": None, "label": 0, "split": ""},
        {"text": "", "text2": "d", "label": 1, "split": "test"},
    ]
    write_table(tmp_path, "made", rows)  # type: ignore[arg-type]
    found = read_labelled("made", columns=("text", "text2"), splits=("test", "train"), data_root=tmp_path)
    assert (found.texts, found.num_empty) == ((("a man eats", EMPTY), (EMPTY, "d")), 2)
    assert (found.labels, found.splits, found.rows_of("train")) == (("1", "1"), ("train", "test"), [0])
    assert read_labelled("made", data_root=tmp_path).texts == (("a man eats", "b", EMPTY),)
    bad = (([{"text": "a", "label": 1}, {"text": "b", "label": None}], "no label in row 2"), ([{"text": 3, "label": 1}], "text 3 in row 1"))
    for wrong, said in (*bad, ([{"sentence": "a", "label": 1}], "text missing")):
        write_table(tmp_path, "made", wrong)
        with pytest.raises(DataError, match=said):
            read_labelled("made", data_root=tmp_path)


@pytest.mark.parametrize("labels", [[1, 0, 1], [True, False, True], ["1", "0", "1"], ["True", "false", "TRUE"]])
def test_labels_of_pairs_may_be_numbers_or_words(labels: list[object], tmp_path: Path) -> None:
    def loaded(labels: list[object]) -> LoadedPairs:
        write_table(tmp_path, "p", [{"sentence1": f"a {n}", "sentence2": f"b {n}", "label": label} for n, label in enumerate(labels)])
        return ParaphraseTask(name="p", source="p", revision="1").load(tmp_path, {})

    assert loaded(labels).labels == (1, 0, 1)
    with pytest.raises(DataError, match="label 'yes' in row 3"):
        loaded(["1", "0", "yes"])


ROWS = [
    ("a dog runs", "the dog is running", "a dog sleeps"),
    ("a cat sits on a mat", "on a mat sits a cat", "nobody is here"),
    ("two men play chess", "people play a game", "two men play cards"),
    ("a child sings", "a child sings", "a child sings"),  # a tie
]


def triplets(*rows: tuple[str, str, str]) -> LoadedTriplets:
    anchors, positives, negatives = zip(*rows, strict=True)
    return LoadedTriplets(task=TripletTask(name="t", source="s", revision="r"), anchors=anchors, positives=positives, negatives=negatives)


def test_accuracy_is_that_of_loops_and_ties_are_wrong() -> None:
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((12, 5))
    embeddings[11] = embeddings[7]  # the fourth triplet: positive and negative are one
    found = triplets(*ROWS).score(embeddings, COSINE)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    right = [float(unit[row] @ unit[4 + row] > unit[row] @ unit[8 + row]) for row in range(3)] + [0.0]
    assert found.items["accuracy"].tolist() == [100.0 * one for one in right]
    assert found.main == found.measures["accuracy"] == pytest.approx(100 * sum(right) / 4)
    assert triplets(*ROWS).score(np.ones((12, 5)), COSINE).main is None, "an encoder that distinguishes nothing"
    wide = rng.standard_normal((3 * 4000, 8))
    many = triplets(*(("a", "b", "c") for _ in range(4000)))
    assert many.score(wide, COSINE).main == pytest.approx(50, abs=3)  # chance; a standard deviation is 0.8


def test_word_overlap_is_a_floor_and_leaked_pairs_are_found(tmp_path: Path) -> None:
    rows = [dict(zip(("sent0", "sent1", "hard_neg"), row, strict=True)) | {"split": "test"} for row in ROWS]
    write_table(tmp_path, "my/triplets", [*rows, {"sent0": "not", "sent1": "of the", "hard_neg": "test", "split": "train"}])
    revision = inspect_source("my/triplets", data_root=tmp_path).digest
    task = TripletTask(name="mine", source="my/triplets", revision=revision, split="test")
    assert task.load(tmp_path, {}).score_words("word_overlap").main == 25.0  # only the cat shares more words with its positive
    near = triplets(("red dog", "red dog runs", "red dog runs too far"), ("a cat", "a dog", "a cat sits"))
    assert near.score_words("word_overlap").items["accuracy"].tolist() == [100.0, 0.0], "both are compared with the anchor"
    texts = load_task(task, tmp_path).texts()
    assert texts.num_items == 4 and texts.pairs[2] == (2, "two men play chess", "people play a game")
    (found,) = LeakFinder([texts]).find([["people play a game", "two men play chess", "?"]], np.array([[0], [1]]))
    assert {item.item: item.level for item in found.items} == {2: "normalised"}
