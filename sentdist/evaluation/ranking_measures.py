"""How good one ranking is, as trec_eval defines its measures: success, average precision, reciprocal rank, nDCG and recall."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping


def success(found: Mapping[int, int], k: int) -> float:
    """1 if a relevant document stands among the first k. found: grade by rank, from 1 on, of what was found; all else is of grade 0."""
    return float(any(grade > 0 and rank <= k for rank, grade in found.items()))


def average_precision(found: Mapping[int, int], num_relevant: int) -> float:
    """Mean over the relevant documents of the precision at their ranks; 0 for those that were not found."""
    total = 0.0  # summed from the first rank on, as trec_eval does: the same to the last bit
    for number, rank in enumerate(_relevant(found), 1):
        total += number / rank
    return total / num_relevant


def reciprocal_rank(found: Mapping[int, int], k: int | None = None) -> float:
    """1 / the rank of the first relevant document, 0 if there is none (among the first k)."""
    first = next(iter(_relevant(found)), None)
    return 0.0 if first is None or (k is not None and first > k) else 1.0 / first


def ndcg(found: Mapping[int, int], grades: Collection[int], k: int) -> float:
    """Σ grade / log₂(rank + 1) over the first k, divided by what the best order of all judged documents (`grades`) gives.

    Järvelin & Kekäläinen 2002 with trec_eval's gain (the grade) and discount; a grade below 1 gains nothing.
    """
    ideal = dict(enumerate(sorted((grade for grade in grades if grade > 0), reverse=True), 1))
    return _gain(found, k) / _gain(ideal, k)


def recall(found: Mapping[int, int], num_relevant: int, k: int) -> float:
    """Share of the relevant documents that stand among the first k."""
    return sum(rank <= k for rank in _relevant(found)) / num_relevant


def _relevant(found: Mapping[int, int]) -> list[int]:
    return sorted(rank for rank, grade in found.items() if grade > 0)


def _gain(grades: Mapping[int, int], k: int) -> float:
    total = 0.0
    for rank in _relevant(grades):
        if rank <= k:
            total += grades[rank] / math.log2(rank + 1)
    return total
