"""CQADupStack as USEB scores it, rows of a table that need no training, and the example of a search."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from sentdist.data.checked_rows import read_forums
from sentdist.data.retrieval import read_retrieval
from sentdist.errors import DataError
from sentdist.evaluation.geometry import postprocess
from sentdist.evaluation.items import items_of
from sentdist.evaluation.nearest import word_scores
from sentdist.evaluation.retrieval import average_precisions
from sentdist.plan.task_kinds import ForumsTask
from sentdist.stages.context import Context
from sentdist.stages.scores.build import mean_of_parts
from sentdist.stages.scores.embed_sentences import shown_hits
from sentdist.stages.scores.scorer import COSINE
from sentdist.stages.tasks.loaded_task import TaskScore
from sentdist.stages.tasks.retrieval import load_forums
from sentdist.store.store import ArtifactStore
from tests.support.tasks_data import stage_of, write_forums
from tests.support.tiny_data import write_data

TASK = ForumsTask(name="cqadupstack", source="retrieval/cqadupstack", revision="any", split="test")


def test_a_forum_s_pool_is_without_what_is_asked(tmp_path: Path) -> None:
    write_forums(tmp_path / "retrieval/cqadupstack")
    android, gis = read_forums("retrieval/cqadupstack", split="test", data_root=tmp_path)
    assert android.queries == ("how to root a phone", "phone gets hot") and android.pool == ("rooting my phone", "battery is empty")
    assert android.duplicates == (frozenset({0}), frozenset({1})) and gis.pool == ("maps, what are they", "how far is it")
    with pytest.raises(DataError, match="one of valid, test"):
        read_forums("retrieval/cqadupstack", split="train", data_root=tmp_path)
    with pytest.raises(DataError, match="no release"):
        read_forums("retrieval/other", split="test", data_root=tmp_path)


def test_average_precision_is_that_of_useb_s_code() -> None:
    random = np.random.default_rng(0)
    documents = np.array([random.permutation(130) for _ in range(20)])  # of which the first hundred count
    relevant = [frozenset(random.choice(130, size=random.integers(1, 9), replace=False).tolist()) for _ in range(20)]
    hits = np.array([[one in known for one in row[:100]] for row, known in zip(documents, relevant, strict=True)])
    expected = [100 * average_precision_score(row, -np.arange(100)) if row.any() else 0.0 for row in hits]
    np.testing.assert_allclose(average_precisions(documents, relevant), expected)
    assert average_precisions(np.array([[0, 1]]), [frozenset({5})]).tolist() == [0.0]


def test_forums_count_alike_however_many_questions_they_have(tmp_path: Path) -> None:
    write_forums(tmp_path / "retrieval/cqadupstack")
    task = load_forums(TASK, tmp_path)
    places = {text: number for number, text in enumerate(dict.fromkeys(task.sentences))}
    vectors = np.eye(len(places))
    right = {"rooting my phone": "how to root a phone", "maps, what are they": "what is a map"}
    rows = np.array([vectors[places[right.get(text, text)]] for text in task.sentences])
    score = task.score(rows, COSINE)
    per_query = score.items["map@100"].to_numpy()
    assert score.main == pytest.approx((np.mean(per_query[:2]) + per_query[2]) / 2) and per_query[0] == per_query[2] == 100
    assert score.items["query_id"].to_pylist() == ["android:1", "android:4", "gis:1"], "forums number their questions alike"
    columns = {name: score.items[name].to_numpy() for name in score.items.column_names}
    items = items_of(columns, task="cqadupstack", where="test")
    assert items is not None and items.weights.tolist() == [0.25, 0.25, 0.5]
    assert items.contributions.sum() == pytest.approx(0) and items.contributions[2] == 0, "alone in its forum"
    assert task.score_words("bm25").main is not None
    assert (1, "phone gets hot", "battery is empty") in task.texts().pairs


def _score(main: float | None, **by: float | None) -> TaskScore:
    return TaskScore(task="t", main=main, measures={f"by.{name}": value for name, value in by.items()}, items=pa.table({"map": [0.0]}))


def test_dev_tasks_of_a_group_count_as_one_and_share_a_relation() -> None:
    assert mean_of_parts([[_score(10.0)], [_score(20.0), _score(40.0)]]) == 20.0
    group = [_score(50.0, a=50.0, b=0.0), _score(60.0, a=20.0, b=60.0)]
    assert mean_of_parts([group]) == 35.0, "a is better over both: 35 against 30"
    assert mean_of_parts([[_score(None)], [_score(1.0)]]) is None
    assert mean_of_parts([[_score(10.0), _score(None)]]) is None, "a mean over fewer tasks would be another number"
    assert mean_of_parts([[_score(50.0, a=50.0, b=0.0), _score(60.0, a=None, b=60.0)]]) == 30.0, "a is not defined over both"


def _embeddings(num: int = 200, width: int = 6) -> NDArray[np.float32]:
    draw = np.random.default_rng(3)
    return (draw.normal(size=(num, width)) @ draw.normal(size=(width, width)) + 5.0).astype(np.float32)


def test_bm25_is_lucenes_formula() -> None:
    """Σ over the words of the query, repeated ones too, of ln(1 + (N − n + ½) / (n + ½)) · f / (f + k₁ (1 − b + b · length / mean length)),
    with k₁ = 0.9 and b = 0.4."""
    documents = [["a", "bird", "sings", "a", "song"], ["a", "bird"], ["the", "old", "house"]]

    def score(query: list[str], document: list[str]) -> float:
        total = 0.0
        for word in query:
            having, times = sum(word in one for one in documents), document.count(word)
            rarity = math.log(1 + (3 - having + 0.5) / (having + 0.5))
            total += rarity * times / (times + 0.9 * (0.6 + 0.4 * len(document) / (10 / 3)))
        return total

    queries = [["a", "bird", "a"], ["song"], ["house", "the", "unknown"]]
    found = word_scores("bm25", [" ".join(query) for query in queries], [" ".join(document) for document in documents])
    np.testing.assert_allclose(found, [[score(query, document) for document in documents] for query in queries], rtol=1e-5)
    assert word_scores("word_overlap", ["A dog runs."], ["a dog sleeps", "birds"]).tolist() == [[0.5, 0.0]]


def test_whitened_embeddings_have_no_correlation() -> None:
    found = postprocess(_embeddings(), "whiten")
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(6), atol=1e-5)  # float32 results of float64 sums
    for way in (found, postprocess(_embeddings(), "center")):
        np.testing.assert_allclose(way.mean(axis=0), 0.0, atol=1e-5)
    assert postprocess(_embeddings(num=4), "whiten").shape == (4, 3), "what varies of fewer sentences than channels"


def test_the_nearest_documents_of_one_query_are_marked_where_they_are_relevant(
    tiny_encoder_dir: Path, planted_encoder_dir: Path, tmp_path: Path
) -> None:
    data = write_data(tmp_path)
    stages, folders = {}, dict[str, str]()
    for label, folder in (("before", tiny_encoder_dir), ("after", planted_encoder_dir)):
        stages[label], resolver = stage_of(folder, ("stsb", "scenes-faq"), data)
        folders |= resolver.folders
    context = Context(store=ArtifactStore(tmp_path / "store"), data_root=str(data), folders=folders)
    hits = shown_hits(stages, context, num_hits=3, most_documents=1000)
    assert hits is not None and list(hits.found) == ["before", "after"]
    collection = read_retrieval("generated/faq")
    ids = dict(zip(collection.documents, collection.document_ids, strict=True))
    relevant = collection.qrels[collection.query_ids[collection.queries.index(hits.query)]]
    for found in hits.found.values():
        assert [is_relevant for _, is_relevant in found] == [ids[text] in relevant for text, _ in found] and len(found) == 3
    assert shown_hits(stages, context, num_hits=3, most_documents=10) is None, "a large collection takes too long"
    of_pairs, _ = stage_of(tiny_encoder_dir, ("stsb",), data)
    assert shown_hits({"only": of_pairs}, context, num_hits=3, most_documents=1000) is None
