"""Retrieval and re-ranking scores are those of trec_eval, through ir-measures, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.evaluation.retrieval import rank_by, score_ranking

ir_measures = pytest.importorskip("ir_measures", reason="it has no wheel for ARM")
AP, RR, R, Success, NDCG = (getattr(ir_measures, name) for name in ("AP", "RR", "R", "Success", "nDCG"))


def _trec_eval(measures: dict[str, object], qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> dict[str, list[float]]:
    found = {(str(one.measure), one.query_id): 100.0 * one.value for one in ir_measures.iter_calc(list(measures.values()), qrels, run)}
    return {name: [found[str(measure), query] for query in qrels] for name, measure in measures.items()}


def test_retrieval_is_scored_as_by_trec_eval() -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        num_queries, num_documents, depth = 20, int(random.integers(5, 300)), int(random.integers(3, 120))
        queries, documents = [f"q{row}" for row in range(num_queries)], [f"d{row}" for row in range(num_documents)]
        qrels = {}
        for query in queries:
            judged = random.choice([*documents, "no text"], size=min(num_documents, int(random.integers(1, 30))), replace=False)
            qrels[query] = {str(name): int(random.integers(-1, 4)) for name in judged} | {documents[0]: 1}
        ranking = rank_by(random.normal(size=(num_queries, num_documents)), depth=depth)
        given = dict(query_ids=queries, document_ids=documents, qrels=qrels)
        found = score_ranking(ranking, **given, unranked=["no text"])
        run = {
            query: {documents[row]: float(depth - place) for place, row in enumerate(rows)}
            for query, rows in zip(queries, ranking.documents.tolist(), strict=True)
        }
        named = {f"acc@{k}": Success @ k for k in (1, 3, 5)} | {
            "map": AP,
            "mrr": RR,
            "ndcg@10": NDCG @ 10,
            "recall@10": R @ 10,
            "recall@100": R @ 100,
        }
        assert {name: values.tolist() for name, values in found.per_query.items()} == _trec_eval(named, qrels, run)
