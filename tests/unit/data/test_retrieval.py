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

from sentdist.data.retrieval import (
    By,
    Retrieval,
    faq_pairs,
    fold_of_queries,
    fold_of_retrieval,
    groups_by_answer,
    queries_for,
    read_retrieval,
    whole_grade,
)
from sentdist.data.sources.hub import inspect_source
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


@pytest.mark.parametrize(("field", "first"), [("answer", "So."), ("question", "How?"), ("question_answer", "How? So.")])
def test_what_of_an_faq_is_the_document(tmp_path: Path, field: str, first: str) -> None:
    assert read_retrieval("shop", data_root=_written(tmp_path), document_field=field).documents[0] == first


def test_facts_pin_all_three_files(tmp_path: Path) -> None:
    facts = inspect_source("shop", data_root=_written(tmp_path))
    assert (facts.num_rows, facts.columns, facts.splits) == (3, ("faq_id", "question", "answer"), ())
    _written(tmp_path, queries=QUERIES | {"query": ["In what way?", "What for?"]})
    assert inspect_source("shop", data_root=tmp_path).revision != facts.revision


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


def test_a_split_column(tmp_path: Path) -> None:
    root = _written(tmp_path, qrels=QRELS | {"split": ["train", "train", "test"]})
    assert read_retrieval("shop", split="test", data_root=root).query_ids == ("q1",)
    assert inspect_source("shop", split="train", data_root=root).num_rows == 2


def test_columns_that_are_named_for_a_part_go_before_those_that_may_be_anything(tmp_path: Path) -> None:
    """Rows of a database have an `_id` of their own, candidates of a search a score."""
    other = {"_id": ["r0", "r1", "r2"]}
    queries = QUERIES | {"text": ["other", "words"], "_id": ["r0", "r1"]}
    root = _written(tmp_path, faqs=FAQS | other, queries=queries, qrels=QRELS | other | {"score": [0, 7, 7]})
    found = read_retrieval("shop", data_root=root)
    assert (found.queries, found.document_ids) == (("In what way?", "For what reason?"), ("f0", "f1", "f2"))
    assert found.qrels == {"q0": {"f0": 2, "f1": 1}, "q1": {"f2": 1}}


def test_documents_without_text_count_as_not_found(tmp_path: Path) -> None:
    found = read_retrieval("shop", data_root=_written(tmp_path, faqs=FAQS | {"answer": ["So.", " ", None]}))
    assert (found.document_ids, len(found.empty_document_ids)) == (("f0",), 2)
    assert found.qrels["q1"] == {"f2": 1}
    assert faq_pairs(_many(6), fold=0, num_folds=3, seed=0).num_rows == 2


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
        ("qrels", QRELS | {"relevance": [2, 0.5, 1]}, "relevance 0.5 in row 2"),
        ("qrels", QRELS | {"relevance": [2, float("nan"), 1]}, "relevance nan in row 2"),
        ("qrels", QRELS | {"relevance": ["2", "good", "1"]}, "relevance good in row 2"),
    ],
)
def test_inconsistent_tables(tmp_path: Path, part: str, columns: dict[str, list[Any]], message: str) -> None:
    _written(tmp_path)
    pq.write_table(pa.table(columns), tmp_path / f"shop_{part}.parquet")
    with pytest.raises(DataError, match=message):
        read_retrieval("shop", data_root=tmp_path)


@pytest.mark.parametrize(
    ("part", "columns", "message"),
    [
        ("faqs", {"number": ["f0", "f1", "f2"], "answer": FAQS["answer"]}, r"shop_faqs\.parquet.*one called document_id"),
        ("queries", {"query_id": ["q0", "q1"], "words": ["How?", "Why?"]}, r"shop_queries\.parquet.*one called query or text"),
        ("qrels", {"query_id": ["q0"], "faq_id": ["f0"], "grade": [1]}, r"shop_qrels\.parquet.*one called relevance or score"),
    ],
)
def test_columns_are_looked_at_while_planning(tmp_path: Path, part: str, columns: dict[str, list[Any]], message: str) -> None:
    _written(tmp_path, **{part: columns})
    with pytest.raises(DataError, match=message):
        inspect_source("shop", data_root=tmp_path)


def test_judgements_of_trec_in_a_tsv_are_shown_what_to_be_called(tmp_path: Path) -> None:
    """As MS MARCO's qrels.tsv is: no header, so that its first line would be one."""
    (_written(tmp_path) / "shop_qrels.parquet").unlink()
    for text in ("q0\t0\tf0\t1\nq1\t0\tf2\t1\n", "1\t0\t0\t1\n", "q0 Q0 f0 1\n"):
        (tmp_path / "shop_qrels.tsv").write_text(text)
        with pytest.raises(DataError, match=r"shop_qrels\.tsv.*found judgements as TREC writes them.*Call the file shop_qrels\.txt"):
            inspect_source("shop", data_root=tmp_path)
    for suffix, text in (("tsv", "q0\tf0\t1\nq1\tf2\t1\n"), ("csv", 'q0,f0,"2"\n'), ("tsv", "1\t2\t0\r\n")):
        (tmp_path / "shop_qrels.tsv").unlink(missing_ok=True)
        (tmp_path / f"shop_qrels.{suffix}").write_text(text)
        with pytest.raises(
            DataError, match=r"found a judgement in the first line.*expected a header there\. Write a line above it that says query-id"
        ):
            inspect_source("shop", data_root=tmp_path)
        (tmp_path / f"shop_qrels.{suffix}").unlink()
    for part, text in (
        ("corpus.jsonl", '{"_id": "d", "text": "a"}'),
        ("queries.jsonl", '{"_id": "q", "text": "a"}'),
        ("qrels/test.tsv", "q 0 d 1"),
    ):
        (tmp_path / "beir/qrels").mkdir(parents=True, exist_ok=True)
        (tmp_path / "beir" / part).write_text(f"{text}\n")
    with pytest.raises(DataError, match="below a header that says so"):
        inspect_source("beir", data_root=tmp_path)
    (tmp_path / "beir/qrels/test.tsv").write_text("q\td\t1\n")
    with pytest.raises(DataError, match="expected a header there"):
        inspect_source("beir", data_root=tmp_path)


def test_missing_parts(tmp_path: Path) -> None:
    (_written(tmp_path) / "shop_queries.parquet").unlink()
    for look in (read_retrieval, inspect_source):
        with pytest.raises(DataError, match=r"found shop_faqs.parquet, shop_qrels.parquet; expected .*shop_queries"):
            look("shop", data_root=tmp_path)
    with pytest.raises(DataError, match="no documents, queries and qrels"):
        read_retrieval("shopping", data_root=tmp_path)
    with pytest.raises(DataError, match="Did you mean shop"):
        inspect_source("shopp", data_root=tmp_path)


def test_an_unknown_document_field(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='document_field "body"'):
        read_retrieval("shop", data_root=_written(tmp_path), document_field="body")


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


def test_a_role_keeps_the_whole_collection() -> None:
    collection = _many(10)
    part = fold_of_retrieval(collection, fold=1, num_folds=5, seed=0, role="test")
    assert len(part.queries) == 2 and part.documents == collection.documents
    assert set(part.qrels) == set(part.query_ids)


def test_pairs_for_training() -> None:
    collection = _many(10)
    rows = faq_pairs(collection, fold=0, num_folds=5, seed=0)
    assert rows.column_names == ["anchor", "positive"] and rows.num_rows == 6
    assert set(rows["positive"].to_pylist()) == {"first answer"}
    tested = fold_of_retrieval(collection, fold=0, num_folds=5, seed=0, role="test")
    assert not set(rows["anchor"].to_pylist()) & set(tested.queries)


def test_documents_of_equal_text_make_one_row() -> None:
    same = Retrieval(
        query_ids=("q0", "q1", "q2"),
        queries=("x", "y", "z"),
        document_ids=("a", "b"),
        documents=("How?", "How?"),
        qrels={query: {"a": 1, "b": 1} for query in ("q0", "q1", "q2")},
    )
    assert faq_pairs(same, fold=0, num_folds=3, seed=0).num_rows == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_folds": 2}, "2 folds"),
        ({"num_folds": 11}, "10 queries"),
        ({"fold": 5}, "fold 5; expected 0 to 4"),
        ({"role": "validation"}, 'role "validation"'),
    ],
)
def test_folds_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"fold": 0, "num_folds": 5, "seed": 0, "role": "train"}
    with pytest.raises(DataError, match=message):
        faq_pairs(_many(10), **(arguments | changes))


def test_queries_without_a_relevant_document_give_no_pairs() -> None:
    asked = _many(10)
    judged = replace(asked, qrels={query: dict.fromkeys(documents, 0) for query, documents in asked.qrels.items()})
    with pytest.raises(DataError, match="no document of relevance 1"):
        faq_pairs(judged, fold=0, num_folds=5, seed=0)


def test_grades_below_0_are_grade_0() -> None:
    assert [whole_grade(grade, where="here", row=0) for grade in (-2, "-1", 0, "2.0", 3)] == [0, 0, 0, 2, 3]


def test_repeated_query_ids() -> None:
    with pytest.raises(DataError, match="occurs twice"):
        fold_of_queries(["a", "b", "a"], num_folds=3, seed=0)


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
    with pytest.raises(DataError, match="3 groups of 5 queries"):
        fold_of_queries(collection.query_ids, num_folds=4, seed=0, groups=groups_by_answer(collection))


def test_a_query_with_two_answers_joins_the_groups_of_both() -> None:
    collection = Retrieval(
        query_ids=("a", "b", "c"),
        queries=("1", "2", "3"),
        document_ids=("x", "y"),
        documents=("one", "two"),
        qrels={"a": {"x": 1}, "b": {"y": 1}, "c": {"x": 1, "y": 1}},
    )
    assert set(groups_by_answer(collection).values()) == {"a"}


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


def test_the_largest_groups_are_dealt_out_first() -> None:
    groups = {f"q{number}": name for number, name in enumerate("aaaabbbcccde")}
    folds = fold_of_queries(list(groups), num_folds=3, seed=0, groups=groups)
    assert sorted(list(folds.values()).count(fold) for fold in range(3)) == [4, 4, 4]


def test_folds_of_groups_are_as_equal_as_they_can_be() -> None:
    queries = [f"q{number}" for number in range(40)]
    groups = {query: str(number // 3) for number, query in enumerate(queries)}
    folds = fold_of_queries(queries, num_folds=5, seed=0, groups=groups)
    sizes = [list(folds.values()).count(fold) for fold in range(5)]
    assert max(sizes) - min(sizes) <= 3 and folds == fold_of_queries(queries[::-1], num_folds=5, seed=0, groups=groups)
    assert folds != fold_of_queries(queries, num_folds=5, seed=1, groups=groups)
