"""Score pairs by relations (RSE, arXiv 2212.08802): weights, similarities, cosines of relations, weight curves, link prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError, did_you_mean
from sentdist.evaluation.sts import checked_embeddings, normalized, paired_cosines

DIRECTIONS = ("one", "max_both")
BY = "by."  # prefix of a relation: name of the main score by this relation alone


def relation_weights(
    weights: Mapping[str, float], names: Sequence[str], *, normalize: bool, where: str = "relations"
) -> NDArray[np.float64]:
    """Return (K,) weights in the order of `names`; 0 for relations that `weights` leaves out.

    Args:
        normalize: divide by the sum, as the released code does; it matters for thresholds, not for Spearman's correlation.

    Raises:
        DataError: unknown relation, negative or non-finite weight, or all weights are 0.
    """
    for name, weight in weights.items():
        if name not in names:
            raise DataError(
                where=f"{where}: weights",
                found=f'"{name}"',
                expected=f"one of the encoder's relations: {', '.join(names) or 'it has none'}",
                remedy=did_you_mean(name, names, "Correct the name, or train the encoder with that relation."),
            )
        if not 0 <= weight < math.inf:
            raise DataError(
                where=f"{where}: weights.{name}", found=f"{weight}", expected="a finite number from 0 up", remedy="0 leaves a relation out."
            )
    weights_K = np.array([weights.get(name, 0.0) for name in names], dtype=np.float64)
    if not weights_K.any():
        raise DataError(
            where=f"{where}: weights", found="no weight above 0", expected="at least one",
            remedy="The paper: entailment 1, duplicate-question 0.5.",
        )  # fmt: skip
    return weights_K / weights_K.sum() if normalize else weights_K


def similarities_by_relation(
    embeddings1_SD: ArrayLike, embeddings2_SD: ArrayLike, relations_KD: ArrayLike, *, where: str = "relations"
) -> NDArray[np.float64]:
    """Return (K, S) cos(h_1 + r_k, h_2) of S pairs for each of K relations, in [−1, 1]; the first sentence is the head.

    Embeddings are not normalised, since the length of a relation matters relative to theirs (arXiv 2212.08802, Eq. 3).

    Raises:
        DataError: relations of another width, non-finite numbers, vectors of length 0.
    """
    first_SD, vectors_KD = _checked(embeddings1_SD, relations_KD, where)
    return np.stack([paired_cosines(first_SD + vector_D, embeddings2_SD, where=where) for vector_D in vectors_KD])


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
    _check_directions(directions, where)
    weights_K = np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights_K)
    vectors_KD = np.asarray(relations_KD)[used]
    forward_S = weights_K[used] @ similarities_by_relation(embeddings1_SD, embeddings2_SD, vectors_KD, where=where)
    if directions == "one":
        return forward_S
    return np.maximum(forward_S, weights_K[used] @ similarities_by_relation(embeddings2_SD, embeddings1_SD, vectors_KD, where=where))


def relational_queries(
    queries_QD: ArrayLike, relations_KD: ArrayLike, weights: ArrayLike, *, where: str = "relations"
) -> NDArray[np.float64]:
    """Return (Q, D) vectors Σ_k w_k (h + r_k)/‖h + r_k‖: their inner product with a unit document d is Σ_k w_k cos(h + r_k, d).

    Their cosines rank documents as the relational score does, query as head, one direction (the paper's USEB tasks).
    """
    weights_K = np.asarray(weights, dtype=np.float64)
    checked_QD, vectors_KD = _checked(queries_QD, relations_KD, where)
    parts = [weights_K[k] * normalized(checked_embeddings(checked_QD + vectors_KD[k], where=where)) for k in np.flatnonzero(weights_K)]
    return np.sum(parts, axis=0)


def relation_cosines(relations_KD: ArrayLike) -> NDArray[np.float64]:
    """Return the (K, K) cosines between relation vectors (arXiv 2212.08802, Figure 4)."""
    unit_KD = normalized(checked_embeddings(relations_KD, where="relations"))
    return np.clip(unit_KD @ unit_KD.T, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class WeightCurve:
    """scores[i]: score with `weights[i]` for `relation` and the other weights unchanged; None if undefined."""

    relation: str
    weights: tuple[float, ...]
    scores: tuple[float | None, ...]


def weight_curve(
    embeddings1_SD: ArrayLike,
    embeddings2_SD: ArrayLike,
    relations_KD: ArrayLike,
    names: Sequence[str],
    weights: Mapping[str, float],
    *,
    relation: str,
    grid: Sequence[float],
    score: Callable[[NDArray[np.float64]], float | None],
    directions: str = "max_both",
    where: str = "relations",
) -> WeightCurve:
    """Return the score of the pairs' similarities for a grid of weights of one relation (arXiv 2212.08802, Figure 3).

    Raises:
        DataError: as `relation_weights`, at each point of the grid.
    """
    _check_directions(directions, where)
    by_point = [relation_weights({**weights, relation: weight}, names, normalize=False, where=where) for weight in grid]
    forward_KS = similarities_by_relation(embeddings1_SD, embeddings2_SD, relations_KD, where=where)
    backward_KS = (
        similarities_by_relation(embeddings2_SD, embeddings1_SD, relations_KD, where=where) if directions == "max_both" else forward_KS
    )
    scores = tuple(score(np.maximum(weights_K @ forward_KS, weights_K @ backward_KS)) for weights_K in by_point)
    return WeightCurve(relation=relation, weights=tuple(float(weight) for weight in grid), scores=scores)


def _check_directions(directions: str, where: str) -> None:
    if directions not in DIRECTIONS:
        raise DataError(
            where=f"{where}: directions", found=f'"{directions}"', expected=f"one of {', '.join(DIRECTIONS)}", remedy="Choose one of them."
        )


def _checked(embeddings_SD: ArrayLike, relations_KD: ArrayLike, where: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    checked_SD, vectors_KD = np.asarray(embeddings_SD, dtype=np.float64), np.asarray(relations_KD, dtype=np.float64)
    if checked_SD.ndim != 2 or vectors_KD.ndim != 2 or checked_SD.shape[1] != vectors_KD.shape[1] or not len(vectors_KD):
        raise DataError(
            where=where,
            found=f"embeddings of shape {checked_SD.shape} and relations of shape {vectors_KD.shape}",
            expected="at least one relation, as wide as the embeddings",
            remedy="Score an encoder with the relation table that was trained with it.",
        )
    if not np.isfinite(vectors_KD).all():
        raise DataError(
            where=where, found="relations that are not finite", expected="finite numbers",
            remedy="Look at the training loss: it has diverged.",
        )  # fmt: skip
    return checked_SD, vectors_KD


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


def score_links(
    heads_TD: ArrayLike,
    tails_KD: ArrayLike,
    *,
    tail: ArrayLike,
    relation: ArrayLike,
    relations_RD: ArrayLike | None,
    names: Sequence[str],
    known: ArrayLike | None = None,
    pool: Pool = "relation",
    where: str = "link prediction",
) -> LinkPrediction:
    """Rank tails by cos(h + r, t) for T triples, as Sun et al. 2019 (arXiv 1902.10197), whom the paper cites.

    Ties share their mean rank, so a collapsed encoder gets middle ranks. Memory: a tile of 512 × K numbers.

    Args:
        tail: (T,) row of the true tail in `tails_KD`.
        relation: (T,) row of the relation in `relations_RD` and index in `names`.
        relations_RD: None: an encoder without relations, r = 0.
        known: (P, 2) pairs (triple, tail) that are also true and not ranked ("filtered"); may include tails with the head's text.
        pool: rank the tails of the same relation, or of all; the paper does not say.

    Raises:
        DataError: shapes do not match, non-finite numbers, or an index out of range.
    """
    heads = checked_embeddings(heads_TD, where=f"{where}: heads")
    tails_unit = normalized(checked_embeddings(tails_KD, where=f"{where}: tails"))
    tail_T, relation_T = np.asarray(tail, dtype=np.int64), np.asarray(relation, dtype=np.int64)
    known_P2 = np.zeros((0, 2), dtype=np.int64) if known is None else np.asarray(known, dtype=np.int64).reshape(-1, 2)
    vectors = np.zeros((len(names), heads.shape[1])) if relations_RD is None else np.asarray(relations_RD, dtype=np.float64)
    _check(heads, tails_unit, tail_T, relation_T, known_P2, vectors, names, where)
    heads_unit = normalized(checked_embeddings(heads + vectors[relation_T], where=f"{where}: heads shifted by their relation"))
    return rank_links(
        lambda rows: heads_unit[rows] @ tails_unit.T, num_tails=len(tails_unit), tail=tail_T, relation=relation_T, names=names,
        known=known_P2, pool=pool,
    )  # fmt: skip


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
    """Rank as `score_links`, from `similarities(rows)`: (rows, K) of these triples' heads with all tails."""
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


def _check(
    heads: NDArray[np.float64],
    tails: NDArray[np.float64],
    tail_T: NDArray[np.int64],
    relation_T: NDArray[np.int64],
    known_P2: NDArray[np.int64],
    vectors: NDArray[np.float64],
    names: Sequence[str],
    where: str,
) -> None:
    num_triples, width = heads.shape
    if not (tail_T.shape == relation_T.shape == (num_triples,) and tails.shape[1] == width and vectors.shape == (len(names), width)):
        raise DataError(
            where=where,
            found=f"{heads.shape} heads, {tails.shape} tails, {vectors.shape} relations, {tail_T.shape} and "
            f"{relation_T.shape} places, {len(names)} names",
            expected="a tail and a relation for every head, a vector and a name for every relation, all of one width",
            remedy="Score an encoder with the relation table that was trained with it.",
        )
    for what, places, size in (
        ("tail", tail_T, len(tails)),
        ("relation", relation_T, len(names)),
        ("known triple", known_P2[:, 0], num_triples),
        ("known tail", known_P2[:, 1], len(tails)),
    ):
        if len(places) and not (places.min() >= 0 and places.max() < size):
            raise DataError(
                where=where, found=f"{what} {places.min()} to {places.max()}", expected=f"0 to {size - 1}", remedy="Read the triples again."
            )
