"""Pairs scored by the relations between them: weights, both directions, how alike relations are, and the curve over a weight (RSE,
arXiv 2212.08802)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.metrics import checked_embeddings, normalized, paired_cosines
from sentdist.spelling import did_you_mean

DIRECTIONS = ("one", "max_both")
BY = "by."  # before a relation's name: the measure that is a task's main score by this relation alone


def relation_weights(
    weights: Mapping[str, float], names: Sequence[str], *, normalize: bool, where: str = "relations"
) -> NDArray[np.float64]:
    """(K,) weights in the order of `names`; 0 for a relation that `weights` leaves out.

    normalize: divided by their sum, as the released code does; Spearman does not see it, a threshold would.
    DataError for a weight that names no relation, is negative or not finite, and when all are 0.
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
            where=f"{where}: weights",
            found="no weight above 0",
            expected="at least one",
            remedy="The paper: entailment 1, duplicate-question 0.5.",
        )
    return weights_K / weights_K.sum() if normalize else weights_K


def similarities_by_relation(
    embeddings1_SD: ArrayLike, embeddings2_SD: ArrayLike, relations_KD: ArrayLike, *, where: str = "relations"
) -> NDArray[np.float64]:
    """(K, S) f(s1, s2, r_k) = cos(h_1 + r_k, h_2) of S pairs under each of K relations, in [−1, 1], one direction: the first is the head.

    Embeddings as the encoder gives them, not normalised: a relation's length counts against theirs. Source: arXiv 2212.08802, Eq. 3.
    DataError for relations of another width, not finite numbers, vectors of length 0.
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
    """(S,) Σ_k w_k cos(h_1 + r_k, h_2), or the greater of it and Σ_k w_k cos(h_2 + r_k, h_1).

    directions: "one" is the paper; "max_both" its released code, which gave the printed numbers and does not say so: the paper is silent.
    It makes the score symmetric. Weights multiply cosines, not vectors.
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
    """(Q, D) vectors Σ_k w_k (h + r_k)/‖h + r_k‖: their inner product with a document of length 1 is Σ_k w_k cos(h + r_k, d).

    So their cosines rank documents as the relational score does, query as head, one direction (the paper's USEB tasks).
    """
    weights_K = np.asarray(weights, dtype=np.float64)
    checked_QD, vectors_KD = _checked(queries_QD, relations_KD, where)
    parts = [weights_K[k] * normalized(checked_embeddings(checked_QD + vectors_KD[k], where=where)) for k in np.flatnonzero(weights_K)]
    return np.sum(parts, axis=0)


def relation_cosines(relations_KD: ArrayLike) -> NDArray[np.float64]:
    """(K, K) cosines between relation vectors: how alike two relations are to the encoder (arXiv 2212.08802, Figure 4)."""
    unit_KD = normalized(checked_embeddings(relations_KD, where="relations"))
    return np.clip(unit_KD @ unit_KD.T, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class WeightCurve:
    """scores[i]: what came out with `weights[i]` for `relation`, the others' weights as they were; None where undefined."""

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
    """The score of the pairs' similarities as the weight of one relation runs over a grid (arXiv 2212.08802, Figure 3).

    The cosines are computed once. DataError as `relation_weights`, at each point of the grid.
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
            where=where,
            found="relations that are not finite",
            expected="finite numbers",
            remedy="Look at the training loss: it has diverged.",
        )
    return checked_SD, vectors_KD
