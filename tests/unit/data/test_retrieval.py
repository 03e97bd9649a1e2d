"""Retrieval sources and folds over their queries: both layouts, every inconsistency named, no query in two roles."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.folds import By, faq_pairs, fold_of_queries, fold_of_retrieval, groups_by_answer, queries_for
from sentdist.data.retrieval import Retrieval, read_retrieval
from sentdist.data.sources.pinned import inspect_source
from sentdist.errors import DataError

FAQS: dict[str, list[Any]] = {"faq_id": ["f0", "f1", "f2"], "question": ["How?", "How?", "Why?"], "answer": ["So.", "Thus.", "Because."]}
QUERIES: dict[str, list[Any]] = {"query_id": ["q0", "q1"], "query": ["In what way?", "For what reason?"]}
QRELS: dict[str, list[Any]] = {"query_id": ["q0", "q0", "q1"], "faq_id": ["f0", "f1", "f2"], "relevance": [2, 1, 1]}
GOLDEN_FOLDS = [2, 3, 1, 1, 1, 3, 0, 0, 2, 1, 4, 4]  # of q0 … q11 among 103 queries, seed 0


def _written(
    folder: Path, *, faqs: dict[str, list[Any]] = FAQS, queries: dict[str, list[Any]] = QUERIES, qrels: dict[str, list[Any]] = QRELS
) -> Path:
    for part, columns in (("faqs", faqs), ("queries", queries), ("qrels", qrels)):
        pq.write_table(pa.table(columns), folder / f"shop_{part}.parquet")
    return folder


def _many(num_queries: int) -> Retrieval:
    queries = tuple(f"q{number}" for number in range(num_queries))
    return Retrieval(
        query_ids=queries,
        queries=tuple(f"question {query}" for query in queries),
        document_ids=("a", "b"),
        documents=("first answer", "second answer"),
        qrels={query: {"a": 1, "b": 0} for query in queries},
    )


def test_an_faq_collection(tmp_path: Path) -> None:
    found = read_retrieval("shop", data_root=_written(tmp_path))
    assert found == Retrieval(
        query_ids=("q0", "q1"),
        queries=("In what way?", "For what reason?"),
        document_ids=("f0", "f1", "f2"),
        documents=("So.", "Thus.", "Because."),
        qrels={"q0": {"f0": 2, "f1": 1}, "q1": {"f2": 1}},
    )


def test_what_of_an_faq_is_the_document(tmp_path: Path) -> None:
    root = _written(tmp_path)
    for field, first in {"answer": "So.", "question": "How?", "question_answer": "How? So."}.items():
        assert read_retrieval("shop", data_root=root, document_field=field).documents[0] == first
    with pytest.raises(DataError, match='document_field "body"'):
        read_retrieval("shop", data_root=root, document_field="body")
    facts = inspect_source("shop", data_root=root)
    assert (facts.num_rows, facts.columns, facts.splits) == (3, ("faq_id", "question", "answer"), ())
    _written(root, qrels=QRELS | {"split": ["train", "train", "test"]})
    assert read_retrieval("shop", split="test", data_root=root).query_ids == ("q1",)
    again = inspect_source("shop", split="train", data_root=root)
    assert again.num_rows == 2 and again.revision != facts.revision


def test_a_beir_folder(tmp_path: Path) -> None:
    folder = tmp_path / "beir" / "small"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": "d1", "title": "A title", "text": "and text"}, {"_id": "d2", "title": "", "text": "only text"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "one"}\n{"_id": "2", "text": "two"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\td2\t1\n")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n2\td1\t2\n")
    test = read_retrieval("beir/small", split="test", data_root=tmp_path)
    assert test.documents == ("A title and text", "only text")
    assert (test.queries, test.qrels) == (("one",), {"1": {"d2": 1}})
    assert read_retrieval("beir/small", data_root=tmp_path).queries == ("one", "two")
    facts = inspect_source("beir/small", split="train", data_root=tmp_path)
    assert (facts.num_rows, facts.splits) == (1, ("test", "train"))
    with pytest.raises(DataError, match=r'split "dev"; expected one of test, train'):
        read_retrieval("beir/small", split="dev", data_root=tmp_path)
    with pytest.raises(DataError, match="documents with a question and an answer"):
        read_retrieval("beir/small", data_root=tmp_path, document_field="question")


@pytest.mark.parametrize(
    ("part", "columns", "message"),
    [
        ("faqs", FAQS | {"faq_id": ["f0", "f0", "f2"]}, "document id f0 again"),
        ("faqs", FAQS | {"faq_id": ["f0", None, "f2"]}, "document without an id"),
        ("faqs", FAQS | {"answer": ["", "", ""]}, "no document with text"),
        ("queries", QUERIES | {"query_id": ["q0", "q0"]}, "query id q0 again"),
        ("queries", QUERIES | {"query": ["In what way?", " "]}, "an empty query q1"),
        ("queries", {"query_id": ["q0"], "words": ["How?"]}, "one called query or text"),
        ("qrels", QRELS | {"query_id": ["q0", "q7", "q1"]}, "query q7 in row 2"),
        ("qrels", QRELS | {"faq_id": ["f0", "f9", "f2"]}, "document f9 in row 2"),
        ("qrels", QRELS | {"faq_id": ["f0", "f0", "f2"]}, "query q0 and document f0 judged twice"),
        ("qrels", QRELS | {"relevance": [2, 1.5, 1]}, r"relevance 1.5 in row 2 of the judgements; expected an integer"),
        ("qrels", QRELS | {"relevance": [2, float("nan"), 1]}, "relevance nan in row 2"),
        ("qrels", QRELS | {"relevance": ["2", "good", "1"]}, "relevance good in row 2"),
    ],
)
def test_inconsistent_tables(tmp_path: Path, part: str, columns: dict[str, list[Any]], message: str) -> None:
    _written(tmp_path)
    pq.write_table(pa.table(columns), tmp_path / f"shop_{part}.parquet")
    with pytest.raises(DataError, match=message):
        read_retrieval("shop", data_root=tmp_path)


def test_judgements_as_trec_writes_them(tmp_path: Path) -> None:
    """Read in a .txt, where grades below 0 are 0; in a table their first line would be a header."""
    (_written(tmp_path) / "shop_qrels.parquet").unlink()
    qrels = tmp_path / "shop_qrels.txt"
    qrels.write_text("\ufeffq0 0 f1 2\nq0 0 f2 -1\n\nq1\t0\tf0\t1\n", encoding="utf-8")
    assert read_retrieval("shop", data_root=tmp_path).qrels == {"q0": {"f1": 2, "f2": 0}, "q1": {"f0": 1}}
    for text, said in (
        ("q0 0 f1 2\nq0 f2 1\n", "line 2 has 3 fields"),
        ("q0 0 f1 2\nq0 0 f1 1\nq1 0 f0 1\nq1 0 f0 1\n", "Remove row 2, row 4"),
    ):
        qrels.write_text(text)
        with pytest.raises(DataError, match=said):
            read_retrieval("shop", data_root=tmp_path)
    qrels.unlink()
    for text, said in (("q0\t0\tf0\t1\nq1\t0\tf2\t1\n", "Call the file shop_qrels.txt"), ("q0\tf0\t1\n", "expected a header there")):
        (tmp_path / "shop_qrels.tsv").write_text(text)
        with pytest.raises(DataError, match=said):
            inspect_source("shop", data_root=tmp_path)


def test_missing_parts(tmp_path: Path) -> None:
    (_written(tmp_path) / "shop_queries.parquet").unlink()
    for look in (read_retrieval, inspect_source):
        with pytest.raises(DataError, match=r"found shop_faqs.parquet, shop_qrels.parquet; expected .*shop_queries"):
            look("shop", data_root=tmp_path)
    with pytest.raises(DataError, match="no documents, queries and qrels"):
        read_retrieval("shopping", data_root=tmp_path)
    with pytest.raises(DataError, match="Did you mean shop"):
        inspect_source("shopp", data_root=tmp_path)


def test_folds_are_balanced_and_do_not_depend_on_the_order() -> None:
    queries = [f"q{number}" for number in range(103)]
    folds = fold_of_queries(queries, num_folds=5, seed=0)
    sizes = [list(folds.values()).count(fold) for fold in range(5)]
    assert max(sizes) - min(sizes) <= 1
    assert fold_of_queries(queries[::-1], num_folds=5, seed=0) == folds
    assert fold_of_queries(queries, num_folds=5, seed=1) != folds
    # Published: these folds are part of every cross-validated number.
    assert [fold_of_queries(queries, num_folds=5, seed=0)[f"q{number}"] for number in range(12)] == GOLDEN_FOLDS


def test_every_query_is_tested_once_and_never_trains_its_own_test() -> None:
    queries = tuple(f"q{number}" for number in range(23))
    tested: list[str] = []
    for fold in range(5):
        train, dev, test = (queries_for(queries, fold=fold, num_folds=5, seed=0, role=role) for role in ("train", "dev", "test"))
        assert sorted([*train, *dev, *test]) == sorted(queries)
        assert dev == queries_for(queries, fold=(fold + 1) % 5, num_folds=5, seed=0, role="test")
        tested += test
    assert sorted(tested) == sorted(queries)


def test_pairs_for_training() -> None:
    collection = _many(10)
    rows = faq_pairs(collection, fold=0, num_folds=5, seed=0)
    assert rows.column_names == ["anchor", "positive"] and rows.num_rows == 6
    assert set(rows["positive"].to_pylist()) == {"first answer"}
    tested = fold_of_retrieval(collection, fold=0, num_folds=5, seed=0, role="test")
    assert not set(rows["anchor"].to_pylist()) & set(tested.queries)
    assert len(tested.queries) == 2 and tested.documents == collection.documents and set(tested.qrels) == set(tested.query_ids)
    same = replace(collection, documents=("How?", "How?"), qrels={query: {"a": 1, "b": 1} for query in collection.query_ids})
    assert faq_pairs(same, fold=0, num_folds=5, seed=0).num_rows == 6, "documents of equal text make one row"
    with pytest.raises(DataError, match="no document of relevance 1"):
        faq_pairs(replace(collection, qrels={query: {"a": 0} for query in collection.query_ids}), fold=0, num_folds=5, seed=0)


def test_groups_share_an_answer_or_one_of_the_same_text() -> None:
    collection = Retrieval(
        query_ids=("a", "b", "c", "d", "e"),
        queries=("1", "2", "3", "4", "5"),
        document_ids=("x", "y", "z", "same"),
        documents=("one", "two", "three", "two"),
        qrels={"a": {"x": 1, "y": 1}, "b": {"same": 2}, "c": {"z": 1}, "d": {"x": 0, "z": 3}, "e": {"x": 0}},
    )
    assert groups_by_answer(collection) == {"a": "a", "b": "a", "c": "c", "d": "c", "e": "e"}
    folds = fold_of_queries(collection.query_ids, num_folds=3, seed=0, groups=groups_by_answer(collection))
    assert folds["a"] == folds["b"] != folds["c"] == folds["d"] and len(set(folds.values())) == 3
    joined = replace(collection, qrels=collection.qrels | {"c": {"x": 1, "z": 1}})
    assert set(groups_by_answer(joined).values()) == {"a", "e"}, "a query with two answers joins the groups of both"
    with pytest.raises(DataError, match="occurs twice"):
        fold_of_queries(["a", "b", "a"], num_folds=3, seed=0)
    with pytest.raises(DataError, match="3 groups of 5 queries"):
        fold_of_queries(collection.query_ids, num_folds=4, seed=0, groups=groups_by_answer(collection))


def test_folds_by_answer_test_no_answer_that_is_trained_on() -> None:
    collection = Retrieval(
        query_ids=tuple(f"q{number}" for number in range(24)),
        queries=tuple(f"question {number}" for number in range(24)),
        document_ids=tuple(f"d{number}" for number in range(8)),
        documents=tuple(f"answer {number}" for number in range(8)),
        qrels={f"q{number}": {f"d{number % 8}": 1} for number in range(24)},
    )
    met = {"query": 0, "answer": 0}
    for fold, by in itertools.product(range(4), get_args(By)):
        tested = fold_of_retrieval(collection, fold=fold, num_folds=4, seed=0, role="test", by=by)
        answers = {f"answer {document[1:]}" for query in tested.query_ids for document in tested.qrels[query]}
        met[by] += len(answers & set(faq_pairs(collection, fold=fold, num_folds=4, seed=0, by=by)["positive"].to_pylist()))
    assert met["answer"] == 0 < met["query"]
