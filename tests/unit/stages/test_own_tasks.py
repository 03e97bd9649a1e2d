"""Tasks that are given by name: groups, a user's own files of every kind, and what the command line shows of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from sentdist.data.checked_rows import Candidates, read_candidates, read_forums
from sentdist.data.retrieval import Retrieval
from sentdist.errors import DataError, RecipeError
from sentdist.evaluation.geometry import postprocess
from sentdist.evaluation.items import items_of
from sentdist.evaluation.nearest import word_scores
from sentdist.evaluation.retrieval import average_precisions
from sentdist.stages.scores import mean_of_parts
from sentdist.tasks.forums import ForumsTask
from sentdist.tasks.names import named_task
from sentdist.tasks.reranking import LoadedReranking, RerankingTask
from sentdist.tasks.retrieval import LoadedRetrieval, RetrievalTask
from sentdist.tasks.scorer import COSINE
from sentdist.tasks.sts import StsTask
from sentdist.tasks.task import TaskScore, load_task
from tests.support.tasks_data import evaluated, stage_of, write_forums, write_table

PEOPLE, ANIMALS, DOINGS = ("man", "woman", "child"), ("dog", "cat", "bird"), ("eats", "drinks", "plays", "sings", "reads")
OWN = (
    "sts=my/pairs",
    "pairs=my/labelled-pairs@test",
    "classification=my/labels@test",
    "clustering=my/labels",
    "reranking=my/candidates",
    "retrieval=my/bank",
    "triplets=my/triplets",
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    texts = [
        (f"the {who} {what}", group) for group, names in (("people", PEOPLE), ("animals", ANIMALS)) for who in names for what in DOINGS
    ]
    write_table(
        root, "my/labels", [{"text": text, "label": label, "split": part} for text, label in texts for part in ("train", "dev", "test")]
    )
    near = [(f"a {who} {what}", f"the {who} {what}", 90.0) for who in PEOPLE for what in DOINGS]
    far = [(f"a {who} eats", f"{other} not under water", 10.0) for who in PEOPLE for other in ANIMALS]
    write_table(root, "my/pairs", [{"sentence1": one, "sentence2": other, "score": score} for one, other, score in near + far])
    labelled = [{"sentence1": one, "sentence2": other, "label": int(score > 50), "split": "test"} for one, other, score in near + far]
    write_table(root, "my/labelled-pairs", labelled)
    candidates = [
        {"query_id": str(number), "query": one, "document_id": place, "document": text, "relevance": int(place == "right")}
        for number, (one, right, _) in enumerate(near)
        for place, text in (("wrong", "a garden near the house"), ("right", right))
    ]
    write_table(root, "my/candidates", candidates)
    write_table(root, "my/triplets", [{"sent0": one, "sent1": right, "hard_neg": "a garden near the house"} for one, right, _ in near])
    documents = [{"_id": str(number), "title": "", "text": right} for number, (_, right, _) in enumerate(near)]
    bank = root / "my/bank"
    (bank / "qrels").mkdir(parents=True)
    (bank / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (bank / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": f"q{number}", "text": one}) for number, (one, _, _) in enumerate(near))
    )
    (bank / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{number}\t{number}\t1\n" for number in range(len(near)))
    )
    return root


def test_every_kind_of_own_file_is_scored(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    artifact, context = evaluated(planted_encoder_dir, OWN, data=data, store=tmp_path / "store")
    results = artifact.record.results
    names = [named_task(name).name for name in OWN]
    assert names[1:4] == ["pairs-my-labelled-pairs-test", "classification-my-labels-test", "clustering-my-labels"]
    assert [results[name] for name in names if not name.startswith(("sts", "clustering"))] == [pytest.approx(100.0)] * 5
    assert float(str(results["sts-my-pairs"])) > 80.0, "two gold scores and many similarities: ties keep a perfect encoder below 100"
    assert results["pairs-my-labelled-pairs-test.share"] == pytest.approx(100 * 15 / 24), "what random similarities reach"
    folder = context.store.folder(artifact) / "items"
    assert {path.stem for path in folder.iterdir()} == set(names)
    assert pq.read_table(folder / "retrieval-my-bank.parquet").num_rows == 15
    groups = pq.read_table(folder / "sts-my-pairs.parquet")["group"].to_pylist()
    own = StsTask(name="sts-my-pairs", source="my/pairs", revision="any")
    loaded = own.load(data, {})
    assert groups == loaded.texts().groups().tolist() and len(set(groups)) < len(groups) and loaded.pairs.score.max() == 90.0
    with pytest.raises(DataError, match="expected a number from 0 to 5"):
        own.model_copy(update={"name": "stsb"}).load(data, {})


def test_a_query_that_is_a_document_does_not_find_itself() -> None:
    """As ArguAna has it, where documents have a title, too; not where another text is numbered alike by chance."""
    task, angles = RetrievalTask(name="own", source="any", revision="any"), np.array([0.0, 1.0, 0.0, 0.5])
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    titled = ("dogs bark", "Cats. cats purr", "x")
    for ids, texts, right, place in (("abc", titled, "c", 1), ("abc", titled, "b", 1), ("adc", ("dogs bark", "cats purr", "x"), "c", 2)):
        collection = Retrieval(query_ids=("b",), queries=("cats purr",), document_ids=tuple(ids), documents=texts, qrels={"b": {right: 1}})
        found = LoadedRetrieval(task=task, collection=collection, rows=(0,)).score(embeddings, COSINE)
        assert found.main == pytest.approx(100 / place) and found.measures["acc@1"] == (100.0 if place == 1 else 0.0)


def test_the_texts_of_a_fold_are_its_queries_with_what_is_relevant_to_them_in_groups_of_all() -> None:
    collection = Retrieval(
        query_ids=("q0", "q1", "q2", "q3"),
        queries=("zero", "one", "two", "three"),
        document_ids=("a", "b", "c"),
        documents=("doc a", "doc b", "doc c"),
        qrels={"q0": {"a": 1}, "q1": {"a": 2, "b": 0}, "q2": {"b": 1, "a": 0}, "q3": {"c": 1}},
    )
    task = RetrievalTask(name="own", source="any", revision="any")
    fold = LoadedRetrieval(task=task, collection=collection, rows=(1, 3)).texts()
    assert (fold.sentences, fold.pairs) == ((("one",), ("three",)), ((0, "one", "doc a"), (1, "three", "doc c")))
    whole = LoadedRetrieval(task=task, collection=collection, rows=(0, 1, 2, 3)).texts().groups().tolist()
    assert len(set(whole)) == 3 and whole[0] == whole[1], "the first two share an answer"
    rows_of = dict(zip((*collection.queries, *collection.documents), np.random.default_rng(0).normal(size=(7, 2)), strict=True))

    def scored(rows: tuple[int, ...]) -> list[dict[str, object]]:
        part = LoadedRetrieval(task=task, collection=collection, rows=rows)
        found = part.score(np.array([rows_of[text] for text in part.sentences]), COSINE).items
        return [{name: column[row] for name, column in found.items()} for row in range(len(rows))]

    for rows in ((1, 3), (2, 3), (0, 1)):
        assert LoadedRetrieval(task=task, collection=collection, rows=rows).texts().groups().tolist() == [whole[row] for row in rows]
        assert scored(rows) == [scored((0, 1, 2, 3))[row] for row in rows]
    assert len({str(list(row.values())[1:]) for row in scored((0, 1, 2, 3))}) > 1


def test_words_put_each_query_s_own_candidates_in_order() -> None:
    """The relevant one stands last in the file, where ties would leave it; texts may stand there more than once."""
    judged = [("q0", "red dog", "a blue cat", 0), ("q0", "red dog", "the red dog", 1), ("q1", "blue cat", "the red dog", 0)]
    judged += [("q1", "blue cat", "a blue cat", 1), ("q2", "red dog", "nothing", 0), ("q2", "red dog", "a dog", 1)]
    query_ids, queries, documents, relevance = zip(*judged, strict=True)
    rows = Candidates(
        query_ids=query_ids, queries=queries, document_ids=tuple("abcdef"), documents=documents, relevance=relevance, num_unanswerable=1
    )
    loaded = LoadedReranking(task=RerankingTask(name="own", source="any", revision="any"), rows=rows)
    for kind in ("word_overlap", "bm25"):
        assert loaded.score_words(kind).main == 100.0  # type: ignore[arg-type]
    assert loaded.texts().pairs == ((0, "red dog", "the red dog"), (1, "blue cat", "a blue cat"), (2, "red dog", "a dog"))
    assert loaded.texts().left_out == "1 of 4 queries, which have no relevant candidate"


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (["sts=my/labels"], "columns sentence1, sentence2, score"),
        (["pairs=my/labelled-pairs@tset"], 'Did you mean "test"'),
        (["reranking=my/pairs"], "query_id"),
        (["retrieval=my/banc"], 'Did you mean "bank"'),
        (["retrieval=my"], "documents, queries and qrels"),
        (["retrieval=my/pairs"], "found one table, my/pairs"),
        (["classification="], "expected KIND=SOURCE"),
        (["sts=my/pairs@"], "KIND=SOURCE@SPLIT"),
        (["classify=my/labels"], "is no task"),
        (["pairs=my/labelled-pairs", "pairs=./my/labelled-pairs.parquet"], "expected each file once"),
        (["retrieval=my/bank", "retrieval=my/bank/"], "expected each file once"),
        (["sts=my/pairs", "sts=my/copy"], "expected each file once"),
        (["sts=my/pairs", "sts=my-pairs"], "under different names"),
    ],
)
def test_mistakes_surface_while_planning(tasks: list[str], said: str, tiny_encoder_dir: Path, data: Path) -> None:
    (data / "my/copy.parquet").write_bytes((data / "my/pairs.parquet").read_bytes())
    write_table(data, "my-pairs", pq.read_table(data / "my/pairs.parquet").to_pylist()[::-1])
    with pytest.raises((DataError, RecipeError)) as raised:
        stage_of(tiny_encoder_dir, tuple(tasks), data)
    assert said in str(raised.value)


NUM, PER_GROUP = 24, 3
TABLES = {
    "sts": lambda item: [{"sentence1": f"one {item}", "sentence2": f"other {item}", "score": item}],
    "classification": lambda item: [{"text": f"text {item}", "label": item % 2}],
    "clustering": lambda item: [{"text": f"text {item}", "label": item % 2}],
    "triplets": lambda item: [{"sent0": f"one {item}", "sent1": f"near {item}", "hard_neg": f"far {item}"}],
    "reranking": lambda item: [
        {"query_id": f"q{item}", "query": f"query {item}", "document_id": place, "document": f"{place} {item}", "relevance": place}
        for place in range(2)
    ],
    "retrieval": lambda item: [{"query_id": f"q{item}", "query": f"query {item}"}],
}


@pytest.mark.parametrize("kind", ["sts", "classification", "clustering", "triplets", "reranking", "retrieval"])
def test_a_column_of_groups_counts_for_every_kind(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    rows = [{**row, "group": f"topic {item // PER_GROUP}"} for item in range(NUM) for row in TABLES[kind](item)]  # type: ignore[no-untyped-call]
    write_table(tmp_path, "my/data_queries" if kind == "retrieval" else "my/data", rows)
    if kind == "retrieval":
        write_table(tmp_path, "my/data_docs", [{"doc_id": f"d{item}", "text": f"answer {item}", "title": ""} for item in range(NUM)])
        write_table(tmp_path, "my/data_qrels", [{"query_id": f"q{item}", "doc_id": f"d{item}", "relevance": 1} for item in range(NUM)])
    (task,) = stage_of(tiny_encoder_dir, (f"{kind}=my/data",), tmp_path)[0].tasks
    groups = load_task(task, str(tmp_path)).texts().groups().tolist()
    assert len(groups) == NUM and groups == [group for group in groups[::PER_GROUP] for _ in range(PER_GROUP)]
    assert len(set(groups)) == NUM // PER_GROUP
    if kind == "reranking":
        rows[1]["group"] = None
        write_table(tmp_path, "my/data", rows)
        with pytest.raises(DataError, match="query q0 with another text or group"):
            read_candidates("my/data", data_root=tmp_path)


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
    task = TASK.load(tmp_path, {})
    places = {text: number for number, text in enumerate(dict.fromkeys(task.sentences))}
    vectors = np.eye(len(places))
    right = {"rooting my phone": "how to root a phone", "maps, what are they": "what is a map"}
    rows = np.array([vectors[places[right.get(text, text)]] for text in task.sentences])
    score = task.score(rows, COSINE)
    per_query = score.items["map@100"]
    assert score.main == pytest.approx((np.mean(per_query[:2]) + per_query[2]) / 2) and per_query[0] == per_query[2] == 100
    assert score.items["query_id"] == ["android:1", "android:4", "gis:1"], "forums number their questions alike"
    columns = {name: np.asarray(column) for name, column in score.items.items()}
    items = items_of(columns, task="cqadupstack", where="test")
    assert items is not None and items.weights.tolist() == [0.25, 0.25, 0.5]
    assert items.contributions.sum() == pytest.approx(0) and items.contributions[2] == 0, "alone in its forum"
    assert task.score_words("bm25").main is not None
    assert (1, "phone gets hot", "battery is empty") in task.texts().pairs


def _score(main: float | None, **by: float | None) -> TaskScore:
    return TaskScore(task="t", main=main, measures={f"by.{name}": value for name, value in by.items()}, items={"map": [0.0]})


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
