"""Triplets as a task: accuracy equals loops and sentence-transformers' evaluator; own data, generated ones, a floor, leaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import TripletEvaluator

from sentdist.data.generated import read
from sentdist.data.leaks import LeakFinder
from sentdist.data.sources.hub import inspect_source
from sentdist.errors import DataError
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.plan.task_kinds import TripletTask
from sentdist.stages.scores.scorer import COSINE
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.sts import LoadedTriplets, load_triplets
from tests.support.tasks_data import evaluated, write_table

OWN, GENERATED = "triplets=my/triplets@test", "triplets=generated/nli@test"
ROWS = [
    ("a dog runs", "the dog is running", "a dog sleeps"),
    ("a cat sits on a mat", "on a mat sits a cat", "nobody is here"),
    ("two men play chess", "people play a game", "two men play cards"),
    ("a child sings", "a child sings", "a child sings"),  # a tie
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [dict(zip(("sent0", "sent1", "hard_neg"), row, strict=True)) | {"split": "test"} for row in ROWS]
    write_table(tmp_path / "data", "my/triplets", [*rows, {"sent0": "not", "sent1": "of the", "hard_neg": "test", "split": "train"}])
    return tmp_path / "data"


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
    assert found.items["accuracy"].to_pylist() == [100.0 * one for one in right]
    assert found.main == found.measures["accuracy"] == pytest.approx(100 * sum(right) / 4)
    assert triplets(*ROWS).score(np.ones((12, 5)), COSINE).main is None, "an encoder that distinguishes nothing"
    wide = rng.standard_normal((3 * 4000, 8))
    many = triplets(*(("a", "b", "c") for _ in range(4000)))
    assert many.score(wide, COSINE).main == pytest.approx(50, abs=3)  # chance; a standard deviation is 0.8


def test_accuracy_is_that_of_sentence_transformers(minilm: Path) -> None:
    rows = read("generated/nli", split="test", columns=("sent0", "sent1", "hard_neg")).slice(0, 60)
    texts = [rows[name].to_pylist() for name in rows.column_names]
    task = triplets(*zip(*texts, strict=True))
    found = task.score(encode(SentenceEncoder.load(minilm), list(task.sentences)), COSINE)
    peer = TripletEvaluator(*texts, main_similarity_function="cosine", write_csv=False)(SentenceTransformer(str(minilm), device="cpu"))
    assert found.main == pytest.approx(100 * peer["cosine_accuracy"])


def test_own_data_and_generated_ones_are_scored_and_resampled(tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    artifact, context = evaluated(tiny_encoder_dir, (OWN, GENERATED), data=data, store=tmp_path / "store")
    results = artifact.record.results
    own, generated = results["triplets-my-triplets-test"], results["triplets-generated-nli-test"]
    assert own in (0.0, 25.0, 50.0, 75.0) and isinstance(generated, float) and 0 < generated < 100
    assert results["triplets-my-triplets-test.accuracy"] == own
    assert (context.store.folder(artifact) / "items/triplets-my-triplets-test.parquet").exists()


def test_word_overlap_is_a_floor_and_leaked_pairs_are_found(data: Path) -> None:
    revision = inspect_source("my/triplets", data_root=data).revision
    task = TripletTask(name="mine", source="my/triplets", revision=revision, split="test")
    assert load_triplets(task, data).score_words("word_overlap").main == 25.0  # only the cat shares more words with its positive
    near = triplets(("red dog", "red dog runs", "red dog runs too far"), ("a cat", "a dog", "a cat sits"))
    assert near.score_words("word_overlap").items["accuracy"].to_pylist() == [100.0, 0.0], "both are compared with the anchor"
    texts = load_task(task, data).texts()
    assert texts.num_items == 4 and texts.pairs[2] == (2, "two men play chess", "people play a game")
    (found,) = LeakFinder([texts]).find([["people play a game", "two men play chess", "?"]], np.array([[0], [1]]))
    assert {item.item: item.level for item in found.items} == {2: "normalised"}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([{"sent0": "a", "sent1": "b", "negative": "c"}], "hard_neg missing"),
        ([{"sent0": "a", "sent1": "b", "hard_neg": " "}], "found an empty hard_neg in row 1"),
        ([{"sent0": "a", "sent1": "b", "hard_neg": 3.0}], r"found hard_neg 3\.0 in row 1"),
    ],
)
def test_mistakes_in_the_data_are_named(rows: list[dict[str, object]], sentence: str, tmp_path: Path) -> None:
    write_table(tmp_path, "my/triplets", rows)
    with pytest.raises(DataError, match=sentence):
        load_triplets(TripletTask(name="mine", source="my/triplets", revision="r"), tmp_path)
