"""Link prediction: where the true tail of a (head, relation) stands among all tails (RSE, arXiv 2212.08802, Appendix B)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.metrics import checked_embeddings, normalized

Pool = Literal["relation", "all"]
HITS = (1, 3, 10)
ROWS_PER_TILE = 512
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class LinkScore:
    """Scores of T triples, × 100: mrr, the mean of 1/rank; hits[k], the part of true tails among the first k.
    num_candidates: the mean number ranked."""

    name: str
    num_candidates: float
    mrr: float
    hits: dict[int, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkPrediction:
    """Scores of each relation and, under the name "all", of all triples together. ranks: (T,) from 1 up; x.5 where ties were shared."""

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
    """Rank tails by cos(h + r, t) for T triples, after Sun et al. 2019 (arXiv 1902.10197), to whom the paper refers.

    tail: (T,) row of the true tail in `tails_KD`. relation: (T,) row of the triple's relation in `relations_RD` and place in `names`;
    relations_RD None:
        an encoder without relations, r = 0. known: (P, 2) pairs (triple, tail) that are true as well: they are not ranked ("filtered").
        Nor is a tail with the head's own text, if `known` names it.
    pool: which tails are ranked: those of the triples of the same relation, or of all. The paper does not say.
    Ties share their mean rank: an encoder that has collapsed gets a rank in the middle, not the first.
    Memory: a tile of 512 × K numbers. DataError for shapes that do not fit, numbers that are not finite, a place out of range.
    """
    heads = checked_embeddings(heads_TD, where=f"{where}: heads")
    tails_unit = normalized(checked_embeddings(tails_KD, where=f"{where}: tails"))
    tail_T, relation_T = np.asarray(tail, dtype=np.int64), np.asarray(relation, dtype=np.int64)
    known_P2 = np.zeros((0, 2), dtype=np.int64) if known is None else np.asarray(known, dtype=np.int64).reshape(-1, 2)
    vectors = np.zeros((len(names), heads.shape[1])) if relations_RD is None else np.asarray(relations_RD, dtype=np.float64)
    _check(heads, tails_unit, tail_T, relation_T, known_P2, vectors, names, where)
    heads_unit = normalized(checked_embeddings(heads + vectors[relation_T], where=f"{where}: heads shifted by their relation"))
    return rank_links(
        lambda rows: heads_unit[rows] @ tails_unit.T,
        num_tails=len(tails_unit),
        tail=tail_T,
        relation=relation_T,
        names=names,
        known=known_P2,
        pool=pool,
    )


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
    """As `score_links`, from similarities(rows): (rows, K) of some triples' heads with all tails."""
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
        name=name,
        num_candidates=float(counts_T.mean()),
        mrr=100.0 * float((1.0 / ranks_T).mean()),
        hits={most: 100.0 * float((ranks_T <= most).mean()) for most in HITS},
    )


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
