"""Tasks that are given by name: groups, a user's own files of every kind, and what the command line shows of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import Candidates, read_candidates
from sentdist.data.retrieval import Retrieval
from sentdist.errors import DataError, RecipeError
from sentdist.plan.specs import Task
from sentdist.plan.task_kinds import RerankingTask
from sentdist.plan.task_names import named_task
from sentdist.stages.scores.scorer import COSINE
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.retrieval import LoadedReranking, LoadedRetrieval
from sentdist.stages.tasks.sts import load_sts
from tests.support.tasks_data import evaluated, stage_of, write_table

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
    own = Task(name="sts-my-pairs", kind="sts", source="my/pairs", revision="any")
    loaded = load_sts(own, data)
    assert groups == loaded.texts().groups().tolist() and len(set(groups)) < len(groups) and loaded.pairs.score.max() == 90.0
    with pytest.raises(DataError, match="expected a number from 0 to 5"):
        load_sts(own.model_copy(update={"name": "stsb"}), data)


def test_a_query_that_is_a_document_does_not_find_itself() -> None:
    """As ArguAna has it, where documents have a title, too; not where another text is numbered alike by chance."""
    task, angles = Task(name="own", kind="retrieval", source="any", revision="any"), np.array([0.0, 1.0, 0.0, 0.5])
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
    task = Task(name="own", kind="retrieval", source="any", revision="any")
    fold = LoadedRetrieval(task=task, collection=collection, rows=(1, 3)).texts()
    assert (fold.sentences, fold.pairs) == ((("one",), ("three",)), ((0, "one", "doc a"), (1, "three", "doc c")))
    whole = LoadedRetrieval(task=task, collection=collection, rows=(0, 1, 2, 3)).texts().groups().tolist()
    assert len(set(whole)) == 3 and whole[0] == whole[1], "the first two share an answer"
    rows_of = dict(zip((*collection.queries, *collection.documents), np.random.default_rng(0).normal(size=(7, 2)), strict=True))

    def scored(rows: tuple[int, ...]) -> list[dict[str, object]]:
        part = LoadedRetrieval(task=task, collection=collection, rows=rows)
        found: list[dict[str, object]] = part.score(np.array([rows_of[text] for text in part.sentences]), COSINE).items.to_pylist()
        return found

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
        (["retrieval=my/banc"], "Did you mean my/bank"),
        (["retrieval=my"], "a folder without corpus.jsonl"),
        (["retrieval=my/pairs"], "found one table, my/pairs"),
        (["classification="], "expected KIND=SOURCE"),
        (["sts=my/pairs@"], "expected a split behind @"),
        (["classify=my/labels"], "is not one of"),
        (["pairs=my/labelled-pairs", "pairs=./my/labelled-pairs.parquet"], "which are one file"),
        (["retrieval=my/bank", "retrieval=my/bank/"], "which are one file"),
        (["sts=my/pairs", "sts=my/copy"], "two files with the same content"),
        (["pairs=my/labelled-pairs", "pairs=my/labelled-pairs@test"], "which are the same rows"),
        (["sts=my/pairs", "sts=my-pairs"], "two tasks called sts-my-pairs"),
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
        with pytest.raises(DataError, match="query q0 in groups topic 0 and none"):
            read_candidates("my/data", data_root=tmp_path)
