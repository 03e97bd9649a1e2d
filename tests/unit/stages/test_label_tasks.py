"""Labelled tasks from file to score: columns, splits, empty texts, and each sentence encoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import EMPTY, read_labelled
from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder import encode as embedding
from sentdist.plan.task_kinds import ClassificationTask, ClusteringTask
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.stages.context import Context
from sentdist.stages.scores.embed_sentences import kept_or_encoded
from sentdist.stages.scores.scorer import COSINE
from sentdist.stages.tasks.classification import load_classification, load_clustering
from sentdist.store.store import ArtifactStore
from tests.support.tasks_data import evaluated, stage_of, write_table

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
    texts = [str(row["text"]) for row in rows]
    pairs = [
        {
            "split": "test" if number % 5 == 0 else "train",
            "text": text,
            "text2": text if number % 2 else texts[number - 30],
            "label": number % 2,
        }
        for number, text in enumerate(texts)
    ]
    write_table(root, "transfer/mrpc", pairs)
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


def test_pairs_are_classified_by_difference_and_product(data: Path) -> None:
    loaded = load_classification(
        ClassificationTask(name="mrpc", source="transfer/mrpc", revision="x", columns=("text", "text2"), split="test", num_folds=5), data
    )
    words = sorted({word for text in loaded.sentences for word in text.split()})
    bags = np.asarray([[1.0, *(word in text.split() for word in words)] for text in loaded.sentences], dtype=np.float32)
    score = loaded.score(bags, COSINE)
    assert score.main is not None and score.main > 90.0 and float(str(score.measures["f1"])) > 90.0


def test_every_unique_sentence_is_encoded_once_over_all_tasks(
    planted_encoder_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    encode = embedding.encode
    monkeypatch.setattr(
        embedding, "encode", lambda encoder, sentences, **options: (seen.extend(sentences), encode(encoder, sentences, **options))[1]
    )
    evaluated(planted_encoder_dir, ("cr", "sst2", "mrpc"), data=data, store=tmp_path / "store")
    assert len(seen) == len(set(seen)) == 73


def test_other_tasks_of_an_encoder_encode_only_what_is_new(
    planted_encoder_dir: Path, tiny_encoder_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    encode = embedding.encode
    monkeypatch.setattr(
        embedding, "encode", lambda encoder, sentences, **options: (counts.append(len(sentences)), encode(encoder, sentences, **options))[1]
    )
    write_table(
        data, "my/new", [{"text": "the man eats", "label": "x"}, {"text": "a new text", "label": "y"}, {"text": "a man eats", "label": "y"}]
    )

    def scores(encoder: Path, *tasks: str, keeps: bool = True) -> dict[str, object]:
        return dict(evaluated(encoder, tasks, data=data, store=tmp_path / "store", keeps_embeddings=keeps)[0].record.results)

    first = scores(planted_encoder_dir, "classification=transfer/sst2@test")
    again = scores(planted_encoder_dir, "classification=transfer/sst2@test", "clustering=my/new")
    assert counts == [72, 2], "of three texts one was known"
    assert again["classification-transfer-sst2-test"] == first["classification-transfer-sst2-test"]
    assert again == scores(planted_encoder_dir, "clustering=my/new", "classification=transfer/sst2@test") and counts == [72, 2]
    scores(tiny_encoder_dir, "clustering=my/new")
    scores(planted_encoder_dir, "clustering=my/new", keeps=False)
    assert counts == [72, 2, 3, 3], "another encoder knows nothing of it, and a sweep keeps nothing"


@pytest.mark.parametrize("other", [{"max_length": 3}, {"precision": "bf16"}])
def test_embeddings_of_another_length_or_precision_are_not_taken(
    other: dict[str, Any], planted_encoder_dir: Path, data: Path, tmp_path: Path
) -> None:
    stage, resolver = stage_of(planted_encoder_dir, ("clustering=transfer/sst2",), data)
    made = []
    for asked in (stage, stage.model_copy(update=other)):

        def embed(sentences: list[str], *, number: int = len(made)) -> np.ndarray:
            return np.full((len(sentences), 2), float(number))

        context = Context(
            store=ArtifactStore(str(tmp_path / "store")),
            data_root=str(data),
            folders=resolver.folders,
            keeps_embeddings=True,
        )
        made.append(kept_or_encoded(asked, asked.encoder, ["a man eats", "a dog eats"], context, embed))
    assert [embeddings.tolist() for embeddings in made] == [[[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2]


def test_empty_texts_become_what_senteval_encodes(data: Path) -> None:
    rows = read_labelled("transfer/cr", data_root=data)
    assert rows.num_empty == 2 and rows.texts[0][-2:] == (EMPTY, EMPTY) and rows.labels[-2:] == ("1", "0")


def test_texts_of_each_column_may_be_empty(tmp_path: Path) -> None:
    write_table(tmp_path, "made", [{"first": "a", "second": "", "label": 1}, {"first": "", "second": None, "label": 0}])
    found = read_labelled("made", columns=("first", "second"), data_root=tmp_path)
    assert (found.texts, found.num_empty) == ((("a", EMPTY), (EMPTY, EMPTY)), 3)


def test_spaces_within_texts_are_made_one(tmp_path: Path) -> None:
    write_table(tmp_path, "made", [{"text": " a\tman  eats ", "label": "x"}, {"text": "b", "label": "y"}])
    assert read_labelled("made", data_root=tmp_path).texts == (("a man eats", "b"),)


def test_a_row_without_a_split_is_in_none(tmp_path: Path) -> None:
    splits = {"a": "train", "b": "", "c": "test", "d": "train"}
    write_table(tmp_path, "made", [{"text": text, "label": text.upper(), "split": split} for text, split in splits.items()])
    found = read_labelled("made", splits=("test", "train"), data_root=tmp_path)
    assert (found.texts, found.labels, found.splits) == ((("a", "c", "d"),), ("A", "C", "D"), ("train", "test", "train"))
    assert found.rows_of("train") == [0, 2]
    assert read_labelled("made", data_root=tmp_path).texts == (("a", "b", "c", "d"),)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a", "label": 1}, {"text": "b", "label": None}], "no label in row 2"),
        ([{"text": 3, "label": 1}], "text 3 in row 1"),
        ([{"sentence": "a", "label": 1}], "text missing"),
    ],
)
def test_bad_rows_are_named(rows: list[dict[str, object]], message: str, tmp_path: Path) -> None:
    write_table(tmp_path, "made", rows)
    with pytest.raises(DataError, match=message):
        read_labelled("made", data_root=tmp_path)


def test_an_absent_split_is_reported_while_planning(tiny_encoder_dir: Path, data: Path) -> None:
    write_table(data, "transfer/sst2", [{**row, "split": "train"} for row in _rows()])
    with pytest.raises(DataError, match=r'task sst2: transfer/sst2: found split "test"'):
        stage_of(tiny_encoder_dir, ("sst2",), data)


def test_items_of_clusters_stand_in_the_order_of_their_texts(tmp_path: Path) -> None:
    labels = list("abbaababba")
    write_table(tmp_path, "made", [{"text": f"{label} {number}", "label": label} for number, label in enumerate(labels)])
    loaded = load_clustering(ClusteringTask(name="made", source="made", revision="x"), tmp_path)
    embeddings = np.eye(2)[[int(text.startswith("b")) for text in loaded.sentences]]
    found = loaded.score(embeddings + 0.01 * np.random.default_rng(0).normal(size=embeddings.shape), COSINE)
    assert found.main == pytest.approx(100.0) and found.items["label"].to_pylist() == labels
    assert len(set(zip(labels, found.items["cluster"].to_pylist(), strict=True))) == 2, "each label is a cluster"


def test_words_alone_have_no_score(data: Path) -> None:
    loaded = load_classification(ClassificationTask(name="cr", source="transfer/cr", revision="x"), data)
    with pytest.raises(RecipeError, match="expected an encoder"):
        loaded.score_words("bm25")


def test_the_transfer_group_is_sentevals() -> None:
    assert TASK_GROUPS["transfer"] == ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
    assert {(TASKS[name].kind, TASKS[name].classifier) for name in TASK_GROUPS["transfer"]} == {("classification", "senteval")}
    assert [TASKS[name].split for name in TASK_GROUPS["transfer"]] == [None] * 4 + ["test"] * 3


def test_every_task_says_whose_data_it_is() -> None:
    assert all(card.licence for card in TASKS.values())


@pytest.mark.parametrize(("role", "dev", "texts_of"), [("test", "dev", "test"), ("dev", "dev", "dev"), ("dev", None, "train")])
def test_the_texts_of_a_task_are_those_that_its_accuracy_is_of(
    role: Literal["test", "dev"], dev: str | None, texts_of: str, data: Path
) -> None:
    """As a dev set it must not share texts with training where the penalty is chosen, not where it is tested."""
    task = ClassificationTask(name="sst2", source="transfer/sst2", revision="x", split="test", dev=dev, role=role)
    loaded = load_classification(task, data)
    expected = [str(row["text"]) for row in pq.read_table(data / "transfer/sst2.parquet").to_pylist() if row["split"] == texts_of]
    assert expected and [text for (text,) in loaded.texts().sentences] == expected
