"""Score rankings for retrieval, reranking and forum questions: accuracy at k, MAP, MRR, nDCG and recall."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.nearest import COSINE_DECIMALS, Ranking


def average_precision(ranks: Sequence[int], num_relevant: int) -> float:
    """Return the mean over the relevant documents of the precision at their ranks, ascending from 1; 0 for those not found."""
    total = 0.0  # summed from the first rank on, as trec_eval does: the same to the last bit
    for number, rank in enumerate(ranks, 1):
        total += number / rank
    return total / num_relevant


def ndcg(found: Mapping[int, int], grades: Collection[int], k: int) -> float:
    """Return Σ grade / log₂(rank + 1) over the first k, divided by that of the best order of all judged documents (`grades`).

    Järvelin & Kekäläinen 2002 with trec_eval's gain (the grade) and discount; a grade below 1 gains nothing.

    Args:
        found: rank from 1 up -> grade of the documents found.
    """
    ideal = dict(enumerate(sorted((grade for grade in grades if grade > 0), reverse=True), 1))
    return _gain(found, k) / _gain(ideal, k)


def _relevant(found: Mapping[int, int]) -> list[int]:
    return sorted(rank for rank, grade in found.items() if grade > 0)


def _gain(grades: Mapping[int, int], k: int) -> float:
    total = 0.0
    for rank in _relevant(grades):
        if rank <= k:
            total += grades[rank] / math.log2(rank + 1)
    return total


DEPTH = 1000  # documents of a ranking, as trec_eval and BEIR cut it


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingScore:
    """The mean over queries of each measure × 100, and its value for every query (for paired tests).

    All are None if no query distinguishes its first document from its last, so that the order is that of the corpus.
    """

    measures: dict[str, float | None]
    per_query: dict[str, NDArray[np.float64]]
    query_ids: tuple[str, ...]

    @classmethod
    def of(cls, values: Sequence[Mapping[str, float]], query_ids: Sequence[str], *, is_constant: bool) -> RankingScore:
        """Return the score from the measures of each query, from 0 to 1."""
        per_query = {name: np.array([100.0 * row[name] for row in values]) for name in values[0]}
        means = {name: None if is_constant else float(column.mean()) for name, column in per_query.items()}
        return cls(measures=means, per_query=per_query, query_ids=tuple(query_ids))

    def items(self) -> dict[str, Sequence[str] | NDArray[np.float64]]:
        """Return the columns to keep per query: `query_id` and one column a measure."""
        return {"query_id": self.query_ids, **self.per_query}


def rank_by(scores_QR: ArrayLike, *, depth: int) -> Ranking:
    """Return the `depth` documents with the highest scores (Q, R) for each query; ties in corpus order."""
    scores = np.asarray(scores_QR, dtype=np.float64)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return Ranking(documents=rows, cosines=np.take_along_axis(scores, rows, axis=1))


def score_ranking(
    ranking: Ranking,
    *,
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    unranked: Collection[str] = (),
    are_documents: Collection[str] = (),
    where: str = "retrieval",
) -> RankingScore:
    """Score a ranking against graded judgements.

    `acc@k`: share of queries with a relevant document (grade 1 or more) among the first k. `map`, `mrr`: to the depth of the ranking;
    `ndcg@10` uses grades.

    Args:
        qrels: query -> document -> grade, 0 = not relevant.
        unranked: judged documents that were not searched, since they have no text; relevant ones count as not found.
        are_documents: queries that are also documents with the same id, which then does not count as a hit, as in BEIR (arXiv 2104.08663).

    Raises:
        DataError: as `judgements_of`.
    """
    judged = judgements_of(query_ids, document_ids, qrels, unranked=unranked, where=where)
    row_of = {document: row for row, document in enumerate(document_ids)}
    of_query = []
    for query, rows in zip(query_ids, ranking.documents, strict=True):
        grades = judged[query]
        itself = row_of[query] if query in are_documents else None
        rank_of = {row: place for place, row in enumerate((row for row in rows.tolist() if row != itself), 1)}
        found = {rank_of[row_of[document]]: grade for document, grade in grades.items() if row_of.get(document) in rank_of}
        of_query.append(_measures(found, list(grades.values())))
    is_constant = ranking.documents.shape[1] > 1 and not np.ptp(ranking.cosines, axis=1).any()
    return RankingScore.of(of_query, query_ids, is_constant=is_constant)


def _measures(found: Mapping[int, int], grades: Sequence[int]) -> dict[str, float]:
    ranks, num_relevant = _relevant(found), sum(grade > 0 for grade in grades)
    return {
        **{f"acc@{k}": float(any(rank <= k for rank in ranks)) for k in (1, 3, 5)},
        "map": average_precision(ranks, num_relevant),
        "mrr": 1.0 / ranks[0] if ranks else 0.0,
        "ndcg@10": ndcg(found, grades, 10),
        **{f"recall@{k}": sum(rank <= k for rank in ranks) / num_relevant for k in (10, 100)},
    }


def judgements_of(
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    unranked: Collection[str] = (),
    where: str = "retrieval",
) -> dict[str, dict[str, int]]:
    """Return the qrels of these queries; others are ignored, since a fold scores a part of the queries.

    Raises:
        DataError: a query without a relevant document, or qrels with unknown documents.
    """
    judged = {query: dict(qrels.get(query, {})) for query in query_ids}
    without = [query for query, grades in judged.items() if not any(grade > 0 for grade in grades.values())]
    if without:
        raise DataError(
            where=f"{where}: qrels",
            found=f"{len(without)} of {len(query_ids)} queries without a relevant document, first {without[0]!r}",
            expected="at least one document of grade 1 or more for each query",
            remedy="Leave these queries out before scoring; no ranking can answer them.",
        )
    known = {*document_ids, *unranked}
    unknown = sorted(set(itertools.chain.from_iterable(judged.values())) - known)
    if unknown:
        raise DataError(
            where=f"{where}: qrels", found=f"{len(unknown)} documents that the corpus does not have, first {unknown[0]!r}",
            expected="ids of the corpus", remedy="Check that corpus and qrels belong to the same release.",
        )  # fmt: skip
    return judged


def score_candidates(scores: ArrayLike, *, query_ids: Sequence[str], relevance: Sequence[int]) -> RankingScore:
    """Score R rows, each a query with one candidate; grades of 1 or more are relevant, and each query has a relevant candidate.

    Scores equal to six decimals tie, and ties keep the order of the rows, like a stable sort in the reference implementations.
    """
    rounded_R = np.round(np.asarray(scores, dtype=np.float64), COSINE_DECIMALS)
    rows_of: dict[str, list[int]] = {}
    for row, query in enumerate(query_ids):
        rows_of.setdefault(query, []).append(row)
    of_query = []
    for rows in rows_of.values():
        best_first = np.asarray(rows)[np.argsort(-rounded_R[rows], kind="stable")]
        found = {place: relevance[row] for place, row in enumerate(best_first.tolist(), 1)}
        grades = list(found.values())
        ranks = _relevant(found)
        of_query.append(
            {
                "map": average_precision(ranks, len(ranks)),
                "mrr@10": 1.0 / ranks[0] if ranks[0] <= 10 else 0.0,
                "ndcg@10": ndcg(found, grades, 10),
            }
        )
    is_constant = not any(float(np.ptp(rounded_R[rows])) > 0 for rows in rows_of.values())
    return RankingScore.of(of_query, tuple(rows_of), is_constant=is_constant)


FORUMS_DEPTH = 100


def average_precisions(documents_QK: NDArray[np.int64], relevant: Sequence[Set[int]]) -> NDArray[np.float64]:
    """Return the (Q,) average precision × 100 of each question's first K ≤ 100 documents, best first; 0 if none is relevant.

    Divided by the number of relevant documents among these, as USEB's code does by scikit-learn's average_precision_score of the first
    hundred; later documents do not count.
    """
    hits_QK = np.array(
        [[document in known for document in row] for row, known in zip(documents_QK.tolist(), relevant, strict=True)], dtype=bool
    )
    hits_QK = hits_QK.reshape(len(relevant), -1)[:, :FORUMS_DEPTH]
    precision_QK = np.cumsum(hits_QK, axis=1) / np.arange(1, hits_QK.shape[1] + 1)
    return 100.0 * np.asarray(np.sum(precision_QK * hits_QK, axis=1) / np.maximum(1, hits_QK.sum(axis=1)))
