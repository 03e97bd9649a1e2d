"""Exact search and retrieval measures, against loops and against cases whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.nearest import search
from sentdist.evaluation.retrieval import DEPTH, RetrievalScore, score_ranking


def _corpus(
    num_queries: int = 12, num_documents: int = 40
) -> tuple[np.ndarray, np.ndarray, list[str], list[str], dict[str, dict[str, int]]]:
    generator = np.random.default_rng(0)
    query_ids = [f"q{n}" for n in range(num_queries)]
    document_ids = [f"d{n}" for n in range(num_documents)]
    qrels = {
        query: {f"d{d}": int(g) for d, g in zip(generator.choice(num_documents, 4, False), (2, 1, 1, 0), strict=True)}
        for query in query_ids
    }
    return generator.normal(size=(num_queries, 6)), generator.normal(size=(num_documents, 6)), query_ids, document_ids, qrels


def _scored(queries_QD: np.ndarray, documents_RD: np.ndarray, **judged: Any) -> RetrievalScore:
    return score_ranking(search(queries_QD, documents_RD, depth=min(DEPTH, len(documents_RD))), **judged)


def test_ties_keep_the_order_of_the_corpus_in_ranking_and_measures() -> None:
    documents = np.tile([[1.0, 2.0]], (6, 1))
    ranking = search(np.array([[2.0, 1.0]]), (documents[start : start + 2] for start in (0, 2, 4)), depth=4)
    assert ranking.documents.tolist() == [[0, 1, 2, 3]]
    # Names in reverse: trec_eval alone would rank ties by name, and find d0 at another place.
    scored = _scored(
        np.array([[2.0, 1.0]]), documents, query_ids=["q"], document_ids=[f"d{9 - n}" for n in range(6)], qrels={"q": {"d7": 1}}
    )
    assert scored.measures["mrr"] == pytest.approx(100 / 3)


def test_cosines_are_constant_only_if_no_query_tells_documents_apart() -> None:
    documents = np.eye(2)
    judged = {"document_ids": ["a", "b"], "qrels": {"flat": {"a": 1}, "sure": {"a": 1}}}
    assert _scored(np.array([[1.0, 1.0]]), documents, query_ids=["flat"], **judged).is_constant
    assert not _scored(np.array([[1.0, 1.0], [1.0, 0.0]]), documents, query_ids=["flat", "sure"], **judged).is_constant


def test_measures_equal_loops() -> None:
    queries, documents, query_ids, document_ids, qrels = _corpus()
    score = _scored(queries, documents, query_ids=query_ids, document_ids=document_ids, qrels=qrels, recall_at=(10,))
    ranking = search(queries, documents, depth=40).documents
    for place, query in enumerate(query_ids):
        grades = np.array([qrels[query].get(f"d{row}", 0) for row in ranking[place]])
        hits = grades > 0
        precision = np.cumsum(hits) / np.arange(1, 41)
        gains = grades[:10] / np.log2(np.arange(2, 12))
        expected = {f"acc@{k}": hits[:k].any() for k in (1, 3, 5)} | {
            "map": precision[hits].mean(),
            "mrr": 1 / (1 + np.argmax(hits)),
            "ndcg@10": gains.sum() / (-np.sort(-grades)[:10] / np.log2(np.arange(2, 12))).sum(),
            "recall@10": hits[:10].sum() / hits.sum(),
        }
        for name, value in expected.items():
            assert score.per_query[name][place] == pytest.approx(100 * value), (query, name)
    assert {name: values.mean() for name, values in score.per_query.items()} == pytest.approx(score.measures)
    assert list(score.items())[:2] == ["query_id", "acc@1"]


def test_a_relevant_document_without_a_text_counts_as_not_found() -> None:
    score = _scored(
        np.eye(2), np.eye(2), query_ids=["q", "r"], document_ids=["d", "e"], qrels={"q": {"d": 1, "gone": 1}, "r": {"e": 1}},
        unranked={"gone"}, recall_at=(2,),
    )  # fmt: skip
    assert score.per_query["recall@2"].tolist() == score.per_query["map"].tolist() == [50.0, 100.0]


def test_a_constant_ranks_nothing_though_queries_differ() -> None:
    for documents, is_constant in [([[1.0, 2.0]] * 3, True), ([[1.0, 2.0]] * 2 + [[2.0, 1.0]], False)]:
        qrels = {"q": {"d0": 1}, "r": {"d1": 1}}
        score = _scored(np.eye(2), np.array(documents), query_ids=["q", "r"], document_ids=["d0", "d1", "d2"], qrels=qrels)
        assert score.is_constant is is_constant


def test_a_collection_of_one_document_is_ranked() -> None:
    score = _scored(np.eye(2), np.ones((1, 2)), query_ids=["q", "r"], document_ids=["d0"], qrels={"q": {"d0": 1}, "r": {"d0": 1}})
    assert not score.is_constant and score.measures["map"] == 100.0


def test_bad_input_is_named() -> None:
    queries, documents, query_ids, document_ids, qrels = _corpus()
    ids = {"query_ids": query_ids, "document_ids": document_ids}
    with pytest.raises(DataError, match="1 of 12 queries without a relevant document, first 'q3'"):
        _scored(queries, documents, qrels=qrels | {"q3": {"d1": 0}}, **ids)
    with pytest.raises(DataError, match="1 documents that the corpus does not have, first 'gone'"):
        _scored(queries, documents, qrels=qrels | {"q3": {"gone": 1}}, **ids)
    with pytest.raises(DataError, match="39 document embeddings"):
        _scored(queries, documents[:39], qrels=qrels, **ids)
    with pytest.raises(DataError, match="all different"):
        _scored(queries, documents, query_ids=["q0"] * 12, document_ids=document_ids, qrels=qrels)
    with pytest.raises(DataError, match="width 6"):
        search(queries, documents[:, :4], depth=3)
    with pytest.raises(DataError, match="at least one"):
        search(queries, iter(()), depth=3)
    documents[1] = np.nan
    with pytest.raises(DataError, match="documents from row 0"):
        search(queries, documents, depth=3)
