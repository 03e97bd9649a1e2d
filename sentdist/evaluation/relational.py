"""Score pairs by relations (RSE, arXiv 2212.08802): weights, similarities, cosines of relations, weight curves, link prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError, did_you_mean
from sentdist.evaluation.sts import checked_embeddings, normalized, paired_cosines

BY = "by."  # prefix of a relation: name of the main score by this relation alone


def relation_weights(
    weights: Mapping[str, float], names: Sequence[str], *, normalize: bool, where: str = "relations"
) -> NDArray[np.float64]:
    """Return (K,) weights in the order of `names`; 0 for relations that `weights` leaves out.

    Args:
        normalize: divide by the sum, as the released code does; it matters for thresholds, not for Spearman's correlation.

    Raises:
        DataError: an unknown relation, or all weights are 0.
    """
    unknown = next((name for name in weights if name not in names), None)
    if unknown is not None:
        expected = f"one of the encoder's relations: {', '.join(names) or 'it has none'}"
        raise DataError(
            where=f"{where}: weights", found=f'"{unknown}"', expected=expected, remedy=did_you_mean(unknown, names, "Correct it.")
        )
    weights_K = np.array([weights.get(name, 0.0) for name in names], dtype=np.float64)
    if not weights_K.any():
        raise DataError(where=f"{where}: weights", found="no weight above 0", expected="at least one", remedy="Give a relation a weight.")
    return weights_K / weights_K.sum() if normalize else weights_K


def _by_relation(first_SD: ArrayLike, second_SD: ArrayLike, relations_KD: ArrayLike, where: str) -> NDArray[np.float64]:
    """(K, S) cos(h_1 + r_k, h_2) of S pairs for each of K relations; the first sentence is the head.

    Embeddings are not normalised, since the length of a relation matters relative to theirs (arXiv 2212.08802, Eq. 3).
    """
    heads_SD = np.asarray(first_SD, dtype=np.float64)
    return np.stack([paired_cosines(heads_SD + vector_D, second_SD, where=where) for vector_D in np.asarray(relations_KD)])


def relational_similarities(
    embeddings1_SD: ArrayLike,
    embeddings2_SD: ArrayLike,
    relations_KD: ArrayLike,
    weights: ArrayLike,
    *,
    directions: str = "max_both",
    where: str = "relations",
) -> NDArray[np.float64]:
    """Return (S,) Σ_k w_k cos(h_1 + r_k, h_2), or its maximum with Σ_k w_k cos(h_2 + r_k, h_1). Weights multiply cosines, not vectors.

    Args:
        directions: "one" as in the paper; "max_both" (symmetric) as in its released code, which gave the printed numbers.
    """
    weights_K = np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights_K)
    vectors_KD = np.asarray(relations_KD)[used]
    forward_S = weights_K[used] @ _by_relation(embeddings1_SD, embeddings2_SD, vectors_KD, where)
    if directions == "one":
        return forward_S
    return np.maximum(forward_S, weights_K[used] @ _by_relation(embeddings2_SD, embeddings1_SD, vectors_KD, where))


def relational_queries(
    queries_QD: ArrayLike, relations_KD: ArrayLike, weights: ArrayLike, *, where: str = "relations"
) -> NDArray[np.float64]:
    """Return (Q, D) vectors Σ_k w_k (h + r_k)/‖h + r_k‖: their inner product with a unit document d is Σ_k w_k cos(h + r_k, d).

    Their cosines rank documents as the relational score does, query as head, one direction (the paper's USEB tasks).
    """
    weights_K, vectors_KD = np.asarray(weights, dtype=np.float64), np.asarray(relations_KD, dtype=np.float64)
    heads_QD = np.asarray(queries_QD, dtype=np.float64)
    parts = [weights_K[k] * normalized(checked_embeddings(heads_QD + vectors_KD[k], where=where)) for k in np.flatnonzero(weights_K)]
    return np.sum(parts, axis=0)


def relation_cosines(relations_KD: ArrayLike) -> NDArray[np.float64]:
    """Return the (K, K) cosines between relation vectors (arXiv 2212.08802, Figure 4)."""
    unit_KD = normalized(checked_embeddings(relations_KD, where="relations"))
    return np.clip(unit_KD @ unit_KD.T, -1.0, 1.0)


def weight_curve(
    embeddings1_SD: ArrayLike,
    embeddings2_SD: ArrayLike,
    relations_KD: ArrayLike,
    weights_of_points: Sequence[NDArray[np.float64]],
    *,
    score: Callable[[NDArray[np.float64]], float | None],
    directions: str = "max_both",
    where: str = "relations",
) -> list[float | None]:
    """Return the score of the pairs' similarities by each of several (K,) weights (arXiv 2212.08802, Figure 3)."""
    forward_KS = _by_relation(embeddings1_SD, embeddings2_SD, relations_KD, where)
    backward_KS = _by_relation(embeddings2_SD, embeddings1_SD, relations_KD, where) if directions == "max_both" else forward_KS
    return [score(np.maximum(weights_K @ forward_KS, weights_K @ backward_KS)) for weights_K in weights_of_points]


Pool = Literal["relation", "all"]
HITS = (1, 3, 10)
ROWS_PER_TILE = 512
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class LinkScore:
    """Scores of T triples, × 100: `mrr`, mean of 1/rank; `hits[k]`, share of true tails among the first k; mean number of candidates."""

    name: str
    num_candidates: float
    mrr: float
    hits: dict[int, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkPrediction:
    """Scores of each relation, then of all triples ("all"); `ranks`: (T,) from 1 up, x.5 for ties."""

    scores: tuple[LinkScore, ...]
    ranks: NDArray[np.float64]

    @property
    def overall(self) -> LinkScore:
        return self.scores[-1]


def link_similarities(
    heads_TD: ArrayLike, tails_KD: ArrayLike, *, where: str = "link prediction"
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Return the cosines (rows, K) of some of T heads, shifted by their relation, with all tails, for `rank_links`.

    cos(h + r, t) as Sun et al. 2019 (arXiv 1902.10197), whom the paper cites.
    """
    heads_unit = normalized(checked_embeddings(heads_TD, where=f"{where}: heads shifted by their relation"))
    tails_unit = normalized(checked_embeddings(tails_KD, where=f"{where}: tails"))
    return lambda rows: heads_unit[rows] @ tails_unit.T


def rank_links(
    similarities: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    *,
    num_tails: int,
    tail: NDArray[np.int64],
    relation: NDArray[np.int64],
    names: Sequence[str],
    known: NDArray[np.int64],
    pool: Pool,
) -> LinkPrediction:
    """Rank the tails of T triples.

    Ties share their mean rank, so a collapsed encoder gets middle ranks. Memory: a tile of 512 × K numbers.

    Args:
        similarities: rows -> (rows, K) similarities of these triples' heads with all tails.
        tail: (T,) index of the true tail.
        relation: (T,) index in `names`.
        known: (P, 2) pairs (triple, tail) that are also true and not ranked ("filtered"); may include tails with the head's text.
        pool: rank the tails of the same relation, or of all; the paper does not say.
    """
    allowed_RK = np.ones((len(names), num_tails), dtype=bool)
    if pool == "relation":
        allowed_RK[:] = False
        allowed_RK[relation, tail] = True
    known = known[np.argsort(known[:, 0], kind="stable")]
    ranks, counts = np.zeros(len(tail)), np.zeros(len(tail))
    for first in range(0, len(tail), ROWS_PER_TILE):
        rows = np.arange(first, min(first + ROWS_PER_TILE, len(tail)))
        found = similarities(rows)
        ranked = allowed_RK[relation[rows]]
        low, high = np.searchsorted(known[:, 0], [rows[0], rows[-1] + 1])
        ranked[known[low:high, 0] - first, known[low:high, 1]] = False
        ranked[rows - first, tail[rows]] = False
        own = found[rows - first, tail[rows]][:, None]
        ranks[rows] = 1 + (ranked & (found > own)).sum(axis=1) + 0.5 * (ranked & (found == own)).sum(axis=1)
        counts[rows] = ranked.sum(axis=1) + 1
    parts = [(name, relation == number) for number, name in enumerate(names) if (relation == number).any()]
    scores = [_score(name, ranks[chosen], counts[chosen]) for name, chosen in parts]
    return LinkPrediction(scores=(*scores, _score(ALL, ranks, counts)), ranks=ranks)


def _score(name: str, ranks_T: NDArray[np.float64], counts_T: NDArray[np.float64]) -> LinkScore:
    return LinkScore(
        name=name, num_candidates=float(counts_T.mean()), mrr=100.0 * float((1.0 / ranks_T).mean()),
        hits={most: 100.0 * float((ranks_T <= most).mean()) for most in HITS},
    )  # fmt: skip
