"""Exact search and retrieval measures, against loops and against cases whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sentdist.evaluation.nearest import search
from sentdist.evaluation.retrieval import DEPTH, RetrievalScore, score_ranking


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
