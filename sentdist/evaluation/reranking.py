"""How well the few candidates of each query are put in order: MAP, MRR@10 and nDCG@10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.nearest import COSINE_DECIMALS
from sentdist.evaluation.ranking_measures import average_precision, ndcg, reciprocal_rank

MEASURES = ("map", "mrr@10", "ndcg@10")


@dataclass(frozen=True, kw_only=True, eq=False)
class RerankingScore:
    """The mean over queries of each measure × 100, and its value for every query. measures are None where no query's candidates differ in
    score."""

    measures: dict[str, float | None]
    per_query: dict[str, NDArray[np.float64]]
    query_ids: tuple[str, ...]

    def items(self) -> dict[str, Sequence[str] | NDArray[np.float64]]:
        """The columns to keep per query: `query_id` and one column a measure."""
        return {"query_id": self.query_ids, **self.per_query}


def score_candidates(
    scores: ArrayLike, *, query_ids: Sequence[str], document_ids: Sequence[str], relevance: Sequence[int], where: str = "reranking"
) -> RerankingScore:
    """Score R rows, a query with one of its candidates each; a grade from 1 on is relevant.

    Scores that agree to six decimals tie, and ties keep the order of the rows, as a stable sort in the reference implementations does.
    Raises DataError for a query without a relevant candidate, and for scores that are not finite.
    """
    scores_R = np.asarray(scores, dtype=np.float64)
    if scores_R.shape != (len(query_ids),) or not np.isfinite(scores_R).all():
        raise DataError(
            where=where,
            found=f"scores of shape {scores_R.shape}, {int((~np.isfinite(scores_R)).sum())} of them not finite",
            expected=f"a finite score for each of {len(query_ids)} rows",
            remedy="Look at the encoder.",
        )
    rows_of: dict[str, list[int]] = {}
    for row, query in enumerate(query_ids):
        rows_of.setdefault(query, []).append(row)
    without = [query for query, rows in rows_of.items() if not any(relevance[row] > 0 for row in rows)]
    if without:
        raise DataError(
            where=where,
            found=f"{len(without)} of {len(rows_of)} queries without a relevant candidate, first {without[0]!r}",
            expected="at least one candidate of grade 1 or more for each query",
            remedy="Leave such queries out before scoring; no order can answer them.",
        )
    rounded_R = np.round(scores_R, COSINE_DECIMALS)
    queries = list(rows_of)
    per_query = {name: np.zeros(len(queries)) for name in MEASURES}
    for number, rows in enumerate(rows_of.values()):
        best_first = np.asarray(rows)[np.argsort(-rounded_R[rows], kind="stable")]
        found = {place: relevance[row] for place, row in enumerate(best_first.tolist(), 1)}
        grades = list(found.values())
        values = (average_precision(found, sum(grade > 0 for grade in grades)), reciprocal_rank(found, 10), ndcg(found, grades, 10))
        for name, value in zip(MEASURES, values, strict=True):
            per_query[name][number] = 100.0 * value
    has_order = any(float(np.ptp(rounded_R[rows])) > 0 for rows in rows_of.values())
    return RerankingScore(
        measures={name: float(values.mean()) if has_order else None for name, values in per_query.items()},
        per_query=per_query,
        query_ids=tuple(queries),
    )
