"""Retrieval sources, folds over their queries, and test sets as their authors released them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import read_candidates, read_labelled, read_pairs
from sentdist.data.retrieval import (
    By,
    Retrieval,
    faq_pairs,
    fold_of_queries,
    groups_by_answer,
    queries_for,
    read_retrieval,
)
from sentdist.data.sources import inspect_source
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


def test_what_of_an_faq_is_the_document(tmp_path: Path) -> None:
    root = _written(tmp_path)
    for field, first in {"answer": "So.", "question": "How?", "question_answer": "How? So."}.items():
        assert read_retrieval("shop", data_root=root, document_field=field).documents[0] == first
    with pytest.raises(DataError, match="body missing"):
        read_retrieval("shop", data_root=root, document_field="body")
    facts = inspect_source("shop", data_root=root)
    assert (facts.num_rows, facts.columns, facts.splits) == (3, ("faq_id", "question", "answer"), ())
    _written(root, qrels=QRELS | {"split": ["train", "train", "test"]})
    assert read_retrieval("shop", split="test", data_root=root).query_ids == ("q1",)
    again = inspect_source("shop", split="train", data_root=root)
    assert again.num_rows == 2 and again.digest != facts.digest


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
    assert (facts.num_rows, facts.splits) == (1, (("test", 1), ("train", 1)))
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
        ("qrels", QRELS | {"faq_id": ["f0", "f0", "f2"]}, r"judgement \('q0', 'f0'\) again"),
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
    """Read in a .txt, where grades below 0 are 0."""
    (_written(tmp_path) / "shop_qrels.parquet").unlink()
    qrels = tmp_path / "shop_qrels.txt"
    qrels.write_text("\ufeffq0 0 f1 2\nq0 0 f2 -1\n\nq1\t0\tf0\t1\n", encoding="utf-8")
    assert read_retrieval("shop", data_root=tmp_path).qrels == {"q0": {"f1": 2, "f2": 0}, "q1": {"f0": 1}}
    for text, said in (
        ("q0 0 f1 2\nq0 f2 1\n", "lines of query, 0, document, grade"),
        ("q0 0 f1 2\nq0 0 f1 1\nq1 0 f0 1\nq1 0 f0 1\n", "Remove row 2, row 4"),
    ):
        qrels.write_text(text)
        with pytest.raises(DataError, match=said):
            read_retrieval("shop", data_root=tmp_path)


def test_missing_parts(tmp_path: Path) -> None:
    (_written(tmp_path) / "shop_queries.parquet").unlink()
    for look in (read_retrieval, inspect_source):
        with pytest.raises(DataError, match=r"found shop_faqs.parquet, shop_qrels.parquet; expected .*shop_queries"):
            look("shop", data_root=tmp_path)
    with pytest.raises(DataError, match="no documents, queries and qrels"):
        read_retrieval("shopping", data_root=tmp_path)


def test_folds_are_balanced_and_do_not_depend_on_the_order() -> None:
    queries = [f"q{number}" for number in range(103)]
    folds = fold_of_queries(queries, num_folds=5, seed=0)
    assert sorted(list(folds.values()).count(fold) for fold in range(5)) == [20, 20, 21, 21, 21]
    assert fold_of_queries(queries[::-1], num_folds=5, seed=0) == folds != fold_of_queries(queries, num_folds=5, seed=1)
    assert [folds[query] for query in queries[:12]] == GOLDEN_FOLDS, "these folds are part of every published cross-validated number"
    tested: list[str] = []
    for fold in range(5):
        train, dev, test = (queries_for(queries, fold=fold, num_folds=5, seed=0, role=role) for role in ("train", "dev", "test"))
        assert sorted([*train, *dev, *test]) == sorted(queries)
        assert dev == queries_for(queries, fold=(fold + 1) % 5, num_folds=5, seed=0, role="test")
        tested += test
    assert sorted(tested) == sorted(queries)
    refused = (({"num_folds": 2}, "2 folds"), ({"num_folds": 11}, "10 queries"), ({"fold": 5}, "0 to 4"))
    for changes, said in refused:
        with pytest.raises(DataError, match=said):
            faq_pairs(_many(10), **({"fold": 0, "num_folds": 5, "seed": 0} | changes))  # type: ignore[arg-type]


def test_pairs_for_training() -> None:
    collection = _many(10)
    rows = faq_pairs(collection, fold=0, num_folds=5, seed=0)
    assert rows.column_names == ["anchor", "positive"] and rows.num_rows == 6
    assert set(rows["positive"].to_pylist()) == {"first answer"}
    tested = queries_for(collection.query_ids, fold=0, num_folds=5, seed=0, role="test")
    assert len(tested) == 2 and not set(rows["anchor"].to_pylist()) & {f"question {query}" for query in tested}
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
    with pytest.raises(DataError, match="3 queries with 2 ids"):
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
        groups = groups_by_answer(collection) if by == "answer" else None
        tested = queries_for(collection.query_ids, fold=fold, num_folds=4, seed=0, role="test", groups=groups)
        answers = {f"answer {document[1:]}" for query in tested for document in collection.qrels[query]}
        met[by] += len(answers & set(faq_pairs(collection, fold=fold, num_folds=4, seed=0, by=by)["positive"].to_pylist()))
    assert met["answer"] == 0 < met["query"]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_votes_and_grades_become_labels_and_two_sentences_may_share_a_field(tmp_path: Path) -> None:
    name, columns = "pairs/Twitter_URL_Corpus_test.txt", ("sentence1", "sentence2")
    _write(tmp_path / name, 'one\tone "too\t(6, 6)\thttp://a\ntwo\tdeux\t(3, 6)\thttp://b\nthree\tother\t(0, 6)\thttp://c\n')
    rows = read_labelled(name, columns=columns, data_root=tmp_path)
    assert rows.labels == ("1", "0") and rows.texts == (("one", "three"), ('one "too', "other"))
    assert inspect_source(name, data_root=tmp_path, columns=("sentence1", "label")).num_rows == 2
    lines = [f"7\ttopic\tfirst {grade}\tsecond\t{grade}\ttags\ttags" for grade in range(6)]
    _write(tmp_path / "pairs/test.data", "\n".join(lines) + "\n")
    rows = read_labelled("pairs/test.data", columns=columns, data_root=tmp_path)
    assert rows.labels == ("0", "0", "0", "1", "1") and "first 3" not in rows.texts[0]
    _write(tmp_path / "sts/sem_text_rel_ranked.csv", 'PairID,Text,Score\nA-1,"It, rains.\nIt pours.",0.9\nA-2,"One\nTwo",0\n')
    pairs = read_pairs("sts/sem_text_rel_ranked.csv", data_root=tmp_path)
    assert (pairs.sentence1, pairs.sentence2, pairs.score.tolist()) == (("It, rains.", "One"), ("It pours.", "Two"), [0.9, 0.0])


def _askubuntu(folder: Path) -> None:
    _write(folder / "text_tokenized.txt", "".join(f"{n}\ttitle {n}\tbody {n}\n" for n in range(1, 7)))
    _write(folder / "dev.txt", "1\t2\t2 3\t0.5 0.7\n")
    _write(folder / "test.txt", "1\t4 5\t3 4 5\t1.0 9.0 2.0\n6\t\t2 3\t0.1 0.2\n")


def test_askubuntus_candidates_stand_in_bm25s_order(tmp_path: Path) -> None:
    _askubuntu(tmp_path / "reranking/askubuntu")
    found = read_candidates("reranking/askubuntu", split="test", data_root=tmp_path)
    assert found.document_ids == ("4", "5", "3") and found.relevance == (1, 1, 0)
    assert set(found.queries) == {"title 1"} and found.documents[0] == "title 4"
    assert inspect_source("reranking/askubuntu", split="test", data_root=tmp_path).num_rows == 3 and found.num_unanswerable == 0
    assert dict(inspect_source("reranking/askubuntu", split="dev", data_root=tmp_path).splits) == {"dev": 2, "test": 3}


def test_scidocs_relations_are_splits_and_papers_without_title_are_left_out(tmp_path: Path) -> None:
    papers = {key: {"title": title} for key, title in (("p", "query paper"), ("q", "near"), ("r", "far"), ("s", None))}
    test = {"cite": {"p": {"q": 1, "r": 0, "s": 1}}, "coview": {"p": {"r": 1, "unknown": 0}, "s": {"q": 1}}}
    valid = {"cite": {"p": {"r": 1, "q": 0}}}
    _write(tmp_path / "reranking/scidocs/data.json", json.dumps({"corpus": papers, "valid": valid, "test": test}))
    assert read_candidates("reranking/scidocs", split="cite-valid", data_root=tmp_path).relevance == (1, 0)
    found = read_candidates("reranking/scidocs", split="cite", data_root=tmp_path)
    assert found.documents == ("near", "far") and found.relevance == (1, 0)
    assert read_candidates("reranking/scidocs", split="coview", data_root=tmp_path).documents == ("far",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pairs/test.data", "7\ttopic\tonly\n", "cannot be read"),
        ("pairs/test.data", "7\ttopic\ta\tb\tseven\tx\ty\n", "cannot be read"),
        ("pairs/Twitter_URL_Corpus_test.txt", "a\tb\t(3, 6)\tu\n", "no rows"),
        ("sts/sem_text_rel_ranked.csv", "PairID,Text,Score\n1,one sentence,0.5\n", "cannot be read"),
    ],
)
def test_damaged_releases_are_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    _write(tmp_path / name, text)
    with pytest.raises(DataError, match=message):
        inspect_source(name, data_root=tmp_path)


ROW = {"query_id": "q", "query": "a", "document_id": "d", "document": "b", "relevance": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROW, ROW], "candidate d of query q again"),
        ([{**ROW, "document": " "}], "no document in row 1"),
        ([{**ROW, "relevance": "half"}], "relevance half in row 1"),
        ([{**ROW, "relevance": 0}], "no query with a relevant candidate"),
        ([{"query_id": "q", "query": "a"}], "document_id, relevance, document missing"),
        ([ROW, {**ROW, "query": "other", "document_id": "e"}], "query q with another text or group in row 2"),
    ],
)
def test_bad_candidates_are_named(rows: list[dict[str, object]], message: str, tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match=message):
        read_candidates("mine", data_root=tmp_path)


LISTS: list[dict[str, object]] = [
    {"query": "who asks?", "positive": ["he asks", "she asks"], "negative": ["nobody"], "split": "test"},
    {"query": "who sleeps?", "positive": ["a cat"], "negative": [], "split": "test"},
    {"query": "who sings?", "positive": [], "negative": ["a bird"], "split": "test"},
]


def test_mteb_s_lists_of_candidates_are_rows_of_candidates(tmp_path: Path) -> None:
    (tmp_path / "few.json").write_text(json.dumps(LISTS))
    pq.write_table(pa.Table.from_pylist(LISTS), tmp_path / "same.parquet")
    for name in ("few", "same"):
        found = read_candidates(name, split="test", data_root=tmp_path)
        assert found.queries == ("who asks?",) * 3 + ("who sleeps?",) and found.num_unanswerable == 1
        assert found.documents == ("nobody", "he asks", "she asks", "a cat") and found.relevance == (0, 1, 1, 1)
        assert len(set(zip(found.query_ids, found.document_ids, strict=True))) == 4 and len(set(found.query_ids)) == 2
    (tmp_path / "alone.csv").write_text("query,positive,negative\nwho asks?,they ask,a cat\nwho sleeps?,a cat,\n")
    assert read_candidates("alone", data_root=tmp_path).documents == ("a cat", "they ask", "a cat")
    (tmp_path / "no.json").write_text(json.dumps([{"query": "a", "positive": ["b"], "negative": [{"text": "c"}]}]))
    with pytest.raises(DataError, match=r"row 1.*negative"):
        read_candidates("no", data_root=tmp_path)


FAQIR = """<?xml version="1.0" encoding="utf-8"?>
<IRSet><queries>
<Query><QueryGroupID>7</QueryGroupID><QueryID>q1</QueryID><QueryString>fix a leaking tap</QueryString><Original>temp</Original></Query>
<Query><QueryGroupID>7</QueryGroupID><QueryID>q2</QueryID><QueryString>my faucet drips</QueryString></Query>
<Query><QueryGroupID>8</QueryGroupID><QueryID>q3</QueryID><QueryString>paint a door</QueryString></Query></queries><KB><Pairs>
<qaPair><Id>1</Id><Question>How do I stop a tap?</Question><Answer>Change the &amp; washer.</Answer></qaPair>
<qaPair><Id>2</Id><Question>What paint for doors?</Question><Answer>Gloss.</Answer></qaPair>
<qaPair><Id>3</Id><Question>Anything?</Question><Answer/></qaPair></Pairs></KB>
<relCandidates><IRCandidateList><grpId>7</grpId><candidates>
<IRCandidate><Id>1</Id><Annotations><Annotation><Val>2</Val></Annotation><Annotation><Val>1</Val></Annotation></Annotations></IRCandidate>
<IRCandidate><Id>2</Id><Annotations><Annotation><Val>2</Val></Annotation></Annotations></IRCandidate>
<IRCandidate><Id>1</Id><Annotations><Annotation><Val>2</Val></Annotation></Annotations></IRCandidate></candidates></IRCandidateList>
<IRCandidateList><grpId>8</grpId><candidates>
<IRCandidate><Id>2</Id><Annotations><Annotation><Val>1</Val></Annotation></Annotations></IRCandidate></candidates></IRCandidateList>
</relCandidates></IRSet>
"""
COUGH = {
    "FAQ_Bank_eval.csv": 'index,source,question,answer,language\n4,CDC,"What, then?","Long\nanswer",en\n9,WHO,How long?,14 days,en\n11,WHO,,no question,en\n',
    "User_Query_Bank.csv": "index,query\n0,what now\n3,for how many days\n",
    "Annotated_Relevance_Set.csv": (
        "Query_index,Query,FAQ_index,FAQ,average,Label (mean score > 3 as positive)\n"
        "0,what now,4,x,3.7,positive\n0,what now,9,x,1.0,negative\n3,for how many days,9,x,4.0,positive\n2,gone,4,x,1.0,negative\n"
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, texts in {"faqir": {"FAQIRv1.0.xml": FAQIR}, "cough": COUGH}.items():
        folder = tmp_path / "retrieval" / name
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text)
    return tmp_path


def test_faqs_become_retrieval_sources_of_two_splits(root: Path) -> None:
    """A query of FAQIR has what some annotator calls relevant; COUGH's judgements without a query are left out."""
    found = read_retrieval("retrieval/faqir", split="queries", data_root=root)
    assert found.query_ids == ("q1", "q2", "q3") and found.queries[0] == "fix a leaking tap"
    assert found.qrels == {"q1": {"1": 1, "2": 0}, "q2": {"1": 1, "2": 0}, "q3": {"2": 1}}
    assert found.documents == ("Change the & washer.", "Gloss.") and found.empty_document_ids == ("3",)
    found = read_retrieval("retrieval/faqir", split="questions", data_root=root)
    assert found.queries == ("How do I stop a tap?", "What paint for doors?") and found.qrels == {"faq-1": {"1": 1}, "faq-2": {"2": 1}}
    found = read_retrieval("retrieval/cough", split="queries", data_root=root)
    assert found.qrels == {"0": {"4": 1, "9": 0}, "3": {"9": 1}} and found.documents == ("Long answer", "14 days", "no question")
    facts = inspect_source("retrieval/faqir", split="questions", data_root=root)
    assert (tuple(dict(facts.splits)), facts.num_rows) == (("queries", "questions"), 2) and facts.digest.startswith("sha256:")
    assert inspect_source("retrieval/cough", split="queries", data_root=root).num_rows == 3


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("faqir", "FAQIRv1.0.xml", FAQIR[:300], "cannot be read"),
        ("faqir", "FAQIRv1.0.xml", "<IRSet/>", "no FAQs"),
        ("cough", "Annotated_Relevance_Set.csv", "Query_index,FAQ_index\n0,4\n", "cannot be read"),
    ],
)
def test_damaged_releases_of_faqs_are_named(name: str, file: str, text: str, message: str, root: Path) -> None:
    (root / "retrieval" / name / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_retrieval(f"retrieval/{name}", data_root=root)
