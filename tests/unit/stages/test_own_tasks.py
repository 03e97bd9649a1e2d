"""Tasks that are given by name: groups, a user's own files of every kind, and what the command line shows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.data.checked_rows import Candidates, Pairs
from sentdist.data.leaks import LeakFinder
from sentdist.data.retrieval import Retrieval, fold_of_retrieval
from sentdist.data.sources.hub import inspect_source
from sentdist.errors import DataError, RecipeError
from sentdist.plan.specs import Fold, Task
from sentdist.plan.task_kinds import TASK_KINDS, ClassificationTask, GeometryTask, RerankingTask
from sentdist.plan.task_names import OWN_KINDS, named_task, task_names
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.stages.scores.scorer import COSINE, CosineScorer
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.retrieval import LoadedReranking, LoadedRetrieval, load_retrieval
from sentdist.stages.tasks.sts import geometry_of, load_sts
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
    assert names == [
        "sts-my-pairs",
        "pairs-my-labelled-pairs-test",
        "classification-my-labels-test",
        "clustering-my-labels",
        "reranking-my-candidates",
        "retrieval-my-bank",
        "triplets-my-triplets",
    ]
    assert [results[name] for name in names if not name.startswith(("sts", "clustering"))] == [pytest.approx(100.0)] * 5
    assert float(str(results["sts-my-pairs"])) > 80.0, "two gold scores and many similarities: ties keep a perfect encoder below 100"
    assert results["pairs-my-labelled-pairs-test.share"] == pytest.approx(100 * 15 / 24), "what random similarities reach"
    folder = context.store.folder(artifact) / "items"
    assert {path.stem for path in folder.iterdir()} == set(names)
    assert pq.read_table(folder / "retrieval-my-bank.parquet").num_rows == 15


def test_geometry_is_a_task_without_a_main_score(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    rows = [
        {"subset": "x", "split": "test", "sentence1": f"a {one}", "sentence2": f"the {one}", "score": 4.5} for one in (*PEOPLE, *ANIMALS)
    ]
    write_table(data, "sts/stsb", rows)
    artifact, context = evaluated(planted_encoder_dir, ("geometry", "stsb"), data=data, store=tmp_path / "store")
    results = artifact.record.results
    assert "geometry-stsb" not in results
    for measure in ("alignment", "uniformity", "mean_cosine", "effective_rank"):
        assert results[f"geometry-stsb.{measure}"] == pytest.approx(results[f"geometry.{measure}"]), "as the fact beside STS scores"
    values = pq.read_table(context.store.folder(artifact) / "items/geometry-stsb.parquet")["singular_value"].to_numpy()
    assert (values**2).sum() == pytest.approx(1.0)


def test_items_are_kept_with_what_belongs_together(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    artifact, context = evaluated(planted_encoder_dir, ("sts=my/pairs",), data=data, store=tmp_path / "store")
    groups = pq.read_table(context.store.folder(artifact) / "items/sts-my-pairs.parquet")["group"].to_pylist()
    task = Task(name="sts-my-pairs", kind="sts", source="my/pairs", revision="any")
    assert groups == load_sts(task, data).texts().groups().tolist() and len(set(groups)) < len(groups)


def test_the_geometry_is_of_each_sentence_once_and_its_positives_are_pairs_above_a_score() -> None:
    """Of a, b and c, the pairs (b, c) and (a, c) are 45° apart; (a, b) has the very score that positives are above."""
    pairs = Pairs(subset=("x",) * 3, sentence1=("a", "b", "a"), sentence2=("b", "c", "c"), score=np.array([4.0, 4.5, 5.0]))
    at = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [1.0, 1.0]}
    found = geometry_of(pairs, np.array([at[one] for one in (*pairs.sentence1, *pairs.sentence2)]), positive_above=4.0)
    assert found.alignment == pytest.approx(2 - 2 * np.cos(np.pi / 4))
    assert found.mean_cosine == pytest.approx((0 + 2 * np.cos(np.pi / 4)) / 3)


def test_scores_of_a_shipped_task_are_from_0_to_5_and_ones_own_on_any_scale(data: Path) -> None:
    own = Task(name="sts-my-pairs", kind="sts", source="my/pairs", revision="any")
    assert load_sts(own, data).pairs.score.max() == 90.0
    with pytest.raises(DataError, match="expected a number from 0 to 5"):
        load_sts(own.model_copy(update={"name": "stsb"}), data)


@pytest.mark.parametrize(
    ("ids", "texts", "relevant", "place"),
    [
        (("a", "b", "c"), ("dogs bark", "Cats. cats purr", "x"), {"c": 1}, 1),  # as ArguAna has it, where documents have a title, too
        (("a", "b", "c"), ("dogs bark", "Cats. cats purr", "x"), {"b": 1}, 1),  # its own document answers it
        (("a", "b", "c"), ("dogs bark", "birds sing", "x"), {"c": 1}, 2),  # numbered alike by chance
        (("a", "d", "c"), ("dogs bark", "cats purr", "x"), {"c": 1}, 2),
    ],
)
def test_a_query_that_is_a_document_does_not_find_itself(
    ids: tuple[str, ...], texts: tuple[str, ...], relevant: dict[str, int], place: int
) -> None:
    """BEIR leaves such a document out of the ranking: with it each query of ArguAna had a wrong first hit."""
    collection = Retrieval(query_ids=("b",), queries=("cats purr",), document_ids=ids, documents=texts, qrels={"b": relevant})
    task = Task(name="own", kind="retrieval", source="any", revision="any")
    angles = np.array([0.0, 1.0, 0.0, 0.5])
    found = LoadedRetrieval(task=task, collection=collection, rows=(0,)).score(np.stack([np.cos(angles), np.sin(angles)], axis=1), COSINE)
    assert found.main == pytest.approx(100 / place) and found.measures["acc@1"] == (100.0 if place == 1 else 0.0)


def test_a_document_counts_however_far_behind_others_it_stands() -> None:
    names = tuple(f"d{number}" for number in range(200))
    collection = Retrieval(query_ids=("q",), queries=("which",), document_ids=names, documents=names, qrels={"q": {"d159": 1}})
    task = Task(name="own", kind="retrieval", source="any", revision="any")
    angles = np.linspace(0, 1, 201)
    found = LoadedRetrieval(task=task, collection=collection, rows=(0,)).score(np.stack([np.cos(angles), np.sin(angles)], axis=1), COSINE)
    assert found.main == pytest.approx(100 / 160)


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


@pytest.mark.parametrize("by", ["query", "answer"])
def test_a_fold_s_queries_are_dealt_out_as_those_that_train(by: Literal["query", "answer"], data: Path) -> None:
    write_table(data, "my/faq_docs", [{"doc_id": f"d{n}", "text": f"answer {n}"} for n in range(6)])
    write_table(data, "my/faq_queries", [{"query_id": f"q{n}", "query": f"question {n}"} for n in range(18)])
    write_table(data, "my/faq_qrels", [{"query_id": f"q{n}", "doc_id": f"d{n % 6}", "relevance": 1} for n in range(18)])
    fold = Fold(number=1, num_folds=3, by=by)
    loaded = load_retrieval(Task(name="f", kind="retrieval", source="my/faq", revision="r", fold=fold, fold_role="test"), data)
    expected = fold_of_retrieval(loaded.collection, fold=1, num_folds=3, seed=fold.seed, role="test", by=by)
    assert loaded.sentences[: len(loaded.rows)] == expected.queries and len(loaded.rows) == 6


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


def test_a_limit_takes_queries_from_all_over_the_collection(data: Path) -> None:
    few = Task(name="retrieval-my-bank", kind="retrieval", source="my/bank", revision="any", limit=10)
    rows = load_retrieval(few, data).rows
    assert len({*rows}) == 10 and list(rows) == sorted(rows) != list(range(10)) and load_retrieval(few, data).rows == rows
    assert load_retrieval(few.model_copy(update={"name": "another"}), data).rows != rows, "each task draws for itself"
    whole = Task(name="w", kind="retrieval", source="my/bank", revision="any", fold=Fold(number=1, num_folds=3), fold_role="test")
    rows = load_retrieval(whole, data).rows
    some = load_retrieval(whole.model_copy(update={"limit": 3}), data).rows
    assert len(some) == 3 < len(rows) and {*some} < {*rows}, "queries of the fold alone"


def test_the_documents_of_a_bank_are_what_its_task_says(data: Path) -> None:
    faq = [{"doc_id": f"d{number}", "question": f"what is {number}", "answer": f"it is {number}"} for number in range(2)]
    write_table(data, "my/faq_docs", faq)
    write_table(data, "my/faq_queries", [{"query_id": "q", "query": "what"}])
    write_table(data, "my/faq_qrels", [{"query_id": "q", "doc_id": "d1", "relevance": 1}])
    by_answer = Task(name="faq", kind="retrieval", source="my/faq", revision="any")
    for field, documents in {
        "answer": ("it is 0", "it is 1"),
        "question": ("what is 0", "what is 1"),
        "question_answer": ("what is 0 it is 0", "what is 1 it is 1"),
    }.items():
        assert load_retrieval(by_answer.model_copy(update={"document_field": field}), data).collection.documents == documents


def test_own_labels_use_dev_where_there_is_one(planted_encoder_dir: Path, data: Path) -> None:
    stage, _ = stage_of(planted_encoder_dir, ("classification=my/labels@test", "classification=my/labels"), data)
    fixed, folds = stage.tasks
    assert isinstance(fixed, ClassificationTask) and (fixed.split, fixed.dev) == ("test", "dev")
    assert isinstance(folds, ClassificationTask) and (folds.split, folds.dev) == (None, None)


def test_names_say_kind_source_and_split_and_two_of_a_name_are_refused(tiny_encoder_dir: Path, data: Path) -> None:
    assert named_task("sts=my/pairs@dev").name == "sts-my-pairs-dev"
    write_table(data, "my-pairs", pq.read_table(data / "my/pairs.parquet").to_pylist()[::-1])
    with pytest.raises(RecipeError, match="two tasks called sts-my-pairs"):
        stage_of(tiny_encoder_dir, ("sts=my/pairs", "sts=my-pairs"), data)
    assert named_task("pairs=hub:owner/name:config#abc@test").revision == "abc"


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        ("sts=my/labels", DataError, "columns sentence1, sentence2, score"),
        ("pairs=my/labelled-pairs@tset", DataError, 'Did you mean "test"'),
        ("reranking=my/pairs", DataError, "query_id"),
        ("retrieval=my/banc", DataError, "my/banc"),
        ("retrieval=my/pairs", DataError, "found one table, my/pairs; expected documents, queries and judgements"),
        ("classification=", RecipeError, "expected KIND=SOURCE"),
        ("sts=my/pairs@", RecipeError, "sts=my/pairs@, without a split; expected a split behind @. Leave @ out to take all rows."),
        ("classify=my/labels", RecipeError, "is not one of"),
    ],
)
def test_mistakes_surface_while_planning(task: str, kind: type[Exception], message: str, tiny_encoder_dir: Path, data: Path) -> None:
    with pytest.raises(kind, match=message):
        stage_of(tiny_encoder_dir, (task,), data)


@pytest.mark.parametrize("spoil", ["0\tq0\t1\n", "q0\t99\t1\n"])
def test_qrels_that_name_unknown_things_are_refused(spoil: str, planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    with (data / "my/bank/qrels/test.tsv").open("a") as file:
        file.write(spoil)
    with pytest.raises(DataError, match="row 16 of the judgements"):
        evaluated(planted_encoder_dir, ("retrieval=my/bank",), data=data, store=tmp_path / "store")


def test_a_query_without_a_relevant_document_is_refused_before_anything_is_encoded(tiny_encoder_dir: Path, data: Path) -> None:
    path = data / "my/bank/qrels/test.tsv"
    path.write_text(path.read_text().replace("q3\t3\t1", "q3\t3\t0"))
    (task,) = stage_of(tiny_encoder_dir, ("retrieval=my/bank",), data)[0].tasks
    with pytest.raises(DataError, match="1 of 15 queries without a relevant document, first 'q3'"):
        load_task(task, str(data))


def test_a_relevant_document_without_text_counts_as_not_found(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    documents = [json.loads(line) for line in (data / "my/bank/corpus.jsonl").read_text().splitlines()]
    (data / "my/bank/corpus.jsonl").write_text("\n".join(map(json.dumps, [documents[0] | {"text": " "}, *documents[1:]])))
    artifact, _ = evaluated(planted_encoder_dir, ("retrieval=my/bank",), data=data, store=tmp_path / "store")
    assert artifact.record.results["retrieval-my-bank"] == pytest.approx(100 * 14 / 15), "the other queries have theirs"


def test_an_encoder_that_cannot_tell_documents_apart_has_no_score(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    documents = [json.loads(line) | {"text": "a house"} for line in (data / "my/bank/corpus.jsonl").read_text().splitlines()]
    (data / "my/bank/corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    artifact, _ = evaluated(planted_encoder_dir, ("retrieval=my/bank",), data=data, store=tmp_path / "store")
    assert artifact.record.results["retrieval-my-bank"] is None and artifact.record.results["retrieval-my-bank.mrr"] is None


def test_the_command_line_takes_commas_and_averages_groups(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    labelled = pq.read_table(data / "my/labelled-pairs.parquet").to_pylist()
    write_table(data, "pairs/qqp", labelled)
    write_table(
        data,
        "transfer/mrpc",
        [{"split": row["split"], "text": row["sentence1"], "text2": row["sentence2"], "label": row["label"]} for row in labelled],
    )
    arguments = [
        "evaluate",
        str(planted_encoder_dir),
        "--tasks",
        "pairs, clustering=my/labels",
        "--tasks",
        "sts=my/pairs",
        "--data",
        str(data),
    ]
    answer = CliRunner().invoke(app, [*arguments, "--store", str(tmp_path / "store")], env={"COLUMNS": "160"})
    assert answer.exit_code == 0, answer.output
    lines = {line.strip().split("  ")[0]: line.split() for line in answer.output.splitlines()}
    assert lines["qqp-pairs"][1:3] == lines["mrpc-pairs"][1:3] == ["ap", "100.00"]
    assert lines["average of pairs"][-2:] == ["ap", "100.00"]
    assert lines["clustering-my-labels"][1] == "v_measure" and lines["sts-my-pairs"][1] == "spearman"


def test_every_kind_of_own_data_has_a_test() -> None:
    """Here, or in a file of its own beside this one."""
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [kind for kind in OWN_KINDS if f'"{kind}=my/' not in sources] == []


def test_a_task_of_each_kind_is_found_in_what_was_trained_on(tiny_encoder_dir: Path, data: Path) -> None:
    """Trained on all pairs that a task asks for: each is seen as a pair, of paraphrases and candidates too; of labelled texts each text.
    Links have a test of their own (test_overlaps.py)."""
    write_forums(data / "retrieval/cqadupstack")
    own = stage_of(tiny_encoder_dir, (*OWN, "cqadupstack"), data)[0].tasks
    tasks = {
        task.kind: task
        for task in (*own, GeometryTask(name="g", source="my/pairs", revision=inspect_source("my/pairs", data_root=data).revision))
    }
    assert set(tasks) == set(TASK_KINDS) - {"links"}
    for kind, task in tasks.items():
        texts = load_task(task, str(data)).texts()
        assert texts.num_items, kind
        if kind in ("classification", "clustering"):
            assert not texts.pairs, "their answers are labels"
            alone = list(dict.fromkeys(text for item in texts.sentences for text in item))
            (leaks,) = LeakFinder([texts], near=0.8).find([alone], np.arange(len(alone))[None])
            assert leaks.count("sentence") == texts.num_items, kind
            continue
        sentences = list(dict.fromkeys(text for pair in texts.pairs for text in pair[1:]))
        ids_2R = np.array([[sentences.index(one), sentences.index(other)] for _, one, other in texts.pairs]).T
        (leaks,) = LeakFinder([texts], near=0.8).find([sentences], ids_2R)
        assert leaks.count("exact") == texts.num_items, kind


def test_groups_hold_tasks_of_the_table_each_once() -> None:
    for group, tasks in TASK_GROUPS.items():
        assert set(tasks) <= TASKS.keys() and len(set(tasks)) == len(tasks)
        assert group not in TASKS
    assert task_names(("sts", "stsb", "pairs")) == (*TASK_GROUPS["sts"], *TASK_GROUPS["pairs"])
    assert {*(card.kind for card in TASKS.values()), *OWN_KINDS} == {name for name, kind in TASK_KINDS.items() if kind.make is not None}


class Opposite(CosineScorer):
    """What is near is far: a kind of task that compares by itself, past its scorer, does not see it."""

    def similarities(self, first_SD: np.ndarray, second_SD: np.ndarray, *, where: str) -> np.ndarray:
        return -super().similarities(first_SD, second_SD, where=where)

    def queries(self, queries_QD: np.ndarray, *, where: str) -> np.ndarray:
        return -queries_QD


def test_every_kind_that_compares_sentences_asks_its_scorer(tiny_encoder_dir: Path, data: Path) -> None:
    write_forums(data / "retrieval/cqadupstack")
    tasks = {task.kind: task for task in stage_of(tiny_encoder_dir, (*OWN, "cqadupstack"), data)[0].tasks}
    assert set(tasks) == set(TASK_KINDS) - {"links", "geometry"}
    for kind, task in tasks.items():
        loaded = load_task(task, str(data))
        embeddings_SD = np.random.default_rng(0).normal(size=(len(loaded.sentences), 8))
        found, turned = (loaded.score(embeddings_SD, scorer).main for scorer in (COSINE, Opposite()))
        assert (found == turned) is (kind in ("classification", "clustering")), kind


def test_one_pair_without_a_score_is_not_reported_in_the_plural(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("sentence1,sentence2,score\na,b,1\nc,d,\ne,f,2\n")
    task = Task(name="sts-s", kind="sts", source="s", revision="any")
    assert load_sts(task, tmp_path).texts().left_out == "1 pair without a score"
