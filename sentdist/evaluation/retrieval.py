"""How well queries find their documents: accuracy among the top k, MAP, MRR, nDCG and recall."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.nearest import Ranking
from sentdist.evaluation.ranking_measures import average_precision, ndcg, recall, reciprocal_rank, success

DEPTH = 1000  # documents of a ranking, as trec_eval and BEIR cut it


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalScore:
    """The mean over queries of each measure × 100, and its value for every query (for paired tests).

    `acc@k`: share of queries with a relevant document among the first k. `map`, `mrr`: to `depth`. A document counts as relevant from
    grade 1 on; `ndcg@10` uses the grades. is_constant: no query distinguishes its first document from its last,
    so that the order is the corpus's own.
    """

    measures: dict[str, float]
    per_query: dict[str, NDArray[np.float64]]
    query_ids: tuple[str, ...]
    num_documents: int
    depth: int
    is_constant: bool = False

    def items(self) -> dict[str, Sequence[str] | NDArray[np.float64]]:
        """The columns to keep per query: `query_id` and one column a measure."""
        return {"query_id": self.query_ids, **self.per_query}


def rank_by(scores_QR: ArrayLike, *, depth: int) -> Ranking:
    """The `depth` documents of highest score for each query, from all scores (Q, R); ties in the corpus's own order."""
    scores = np.asarray(scores_QR, dtype=np.float64)
    rows_QR = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    best, rows = _best(scores, rows_QR, min(depth, scores.shape[1]))
    return Ranking(documents=rows, cosines=best, num_documents=scores.shape[1])


def score_ranking(
    ranking: Ranking,
    *,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    unranked: Collection[str] = (),
    are_documents: Collection[str] = (),
    recall_at: Sequence[int] = (10, 100),
    where: str = "retrieval",
) -> RetrievalScore:
    """Score a ranking, found by whatever means; `qrels[query][document]` is a grade, 0 = not relevant.

    unranked: documents that may be judged though they were not searched, for they have no text; a relevant one counts as not found.
    are_documents: queries that are the document of the same id, which is no hit of theirs, as BEIR (arXiv 2104.08663) scores them.
    Raises DataError as `judgements_of` does, and for a ranking of other queries or documents.
    """
    judged = judgements_of(query_ids, document_ids, qrels, unranked=unranked, where=where)
    if (len(ranking.documents), ranking.num_documents) != (len(query_ids), len(document_ids)):
        raise DataError(
            where=where,
            found=f"{len(ranking.documents)} query embeddings and {ranking.num_documents} document embeddings",
            expected=f"{len(query_ids)} and {len(document_ids)}, one for each id",
            remedy="Give embeddings in the order of the ids.",
        )
    num_ranked = ranking.documents.shape[1]
    row_of = {document: row for row, document in enumerate(document_ids)}
    rows_of_query = []
    for query, rows in zip(query_ids, ranking.documents, strict=True):
        grades = judged[query]
        itself = row_of[query] if query in are_documents else None
        rank_of = {row: place for place, row in enumerate((row for row in rows.tolist() if row != itself), 1)}
        found = {rank_of[row_of[document]]: grade for document, grade in grades.items() if row_of.get(document) in rank_of}
        rows_of_query.append(_measures(found, list(grades.values()), recall_at))
    per_query = {name: np.array([100.0 * row[name] for row in rows_of_query]) for name in rows_of_query[0]}
    return RetrievalScore(
        measures={name: float(values.mean()) for name, values in per_query.items()},
        per_query=per_query,
        query_ids=tuple(query_ids),
        num_documents=len(document_ids),
        depth=num_ranked,
        is_constant=num_ranked > 1 and not np.ptp(ranking.cosines, axis=1).any(),
    )


def _measures(found: Mapping[int, int], grades: Sequence[int], recall_at: Sequence[int]) -> dict[str, float]:
    num_relevant = sum(grade > 0 for grade in grades)
    return {
        **{f"acc@{k}": success(found, k) for k in (1, 3, 5)},
        "map": average_precision(found, num_relevant),
        "mrr": reciprocal_rank(found),
        "ndcg@10": ndcg(found, grades, 10),
        **{f"recall@{k}": recall(found, num_relevant, k) for k in recall_at},
    }


def _best(cosines_QR: NDArray[np.float64], rows_QR: NDArray[np.int64], depth: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The `depth` best columns of each row. Columns stand in corpus order within a cosine, so a stable sort keeps that order."""
    order_Qk = np.argsort(-cosines_QR, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(cosines_QR, order_Qk, axis=1), np.take_along_axis(rows_QR, order_Qk, axis=1)


def judgements_of(
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    unranked: Collection[str] = (),
    where: str = "retrieval",
) -> dict[str, dict[str, int]]:
    """The qrels of these queries. Those of other queries are left alone: a fold scores a part of the queries.

    Raises:
        DataError: ids that repeat; a query without a relevant document, or qrels that name unknown documents:
        silently, both would lower every score.
    """
    for kind, ids in (("query", query_ids), ("document", document_ids)):
        if len(set(ids)) != len(ids) or not len(ids):
            raise DataError(
                where=f"{where}: {kind} ids",
                found=f"{len(ids)} ids, {len(set(ids))} of them different",
                expected="at least one, all different",
                remedy=f"Drop the {kind} rows that repeat an id.",
            )
    judged = {query: dict(qrels.get(query, {})) for query in query_ids}
    without = [query for query, grades in judged.items() if not any(grade > 0 for grade in grades.values())]
    if without:
        raise DataError(
            where=f"{where}: qrels",
            found=f"{len(without)} of {len(query_ids)} queries without a relevant document, first {without[0]!r}",
            expected="at least one document of grade 1 or more for each query",
            remedy="Leave such queries out before scoring; no ranking can answer them.",
        )
    known = {*document_ids, *unranked}
    unknown = sorted(set(itertools.chain.from_iterable(judged.values())) - known)
    if unknown:
        raise DataError(
            where=f"{where}: qrels",
            found=f"{len(unknown)} documents that the corpus does not have, first {unknown[0]!r}",
            expected="ids of the corpus",
            remedy="Check that corpus and qrels belong to the same release.",
        )
    return judged
