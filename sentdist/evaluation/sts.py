"""How an STS set is scored: one similarity a pair, a rank correlation with the gold scores, one of three ways to join subsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.means import mean_of_all
from sentdist.evaluation.metrics import pearson, spearman

Aggregation = Literal["all", "mean", "wmean"]


@dataclass(frozen=True, kw_only=True)
class SubsetScore:
    """The correlations × 100 within one subset of a set (say, `headlines` of STS13)."""

    name: str
    num_pairs: int
    spearman: float | None
    pearson: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class StsScore:
    """The score of one STS set and what is needed to test it against another encoder's score of the same set.

    `spearman` and `pearson` are × 100, in [−100, 100]; None where the correlation is not defined (all gold scores equal, or an encoder
    that has collapsed and gives all pairs one similarity).
    """

    spearman: float | None
    pearson: float | None
    aggregation: Aggregation
    num_pairs: int
    subsets: tuple[SubsetScore, ...]
    subset_names: tuple[str, ...]
    similarities: NDArray[np.float64]  # (S,)
    gold: NDArray[np.float64]  # (S,)

    def items(self) -> dict[str, Sequence[str] | NDArray[np.float64]]:
        """The columns to keep per pair (`subset`, `score`, `similarity`), in the order of the task's file."""
        return {"subset": self.subset_names, "score": self.gold, "similarity": self.similarities}


def score_similarities(
    similarities: ArrayLike,
    scores: ArrayLike,
    subsets: Sequence[str],
    aggregation: Aggregation = "all",
    *,
    where: str = "STS",
) -> StsScore:
    """Score S similarities against S gold scores; no regressor (SimCSE's rule, arXiv 2104.08821 §6).

    `all` concatenates the subsets and takes one correlation (the protocol of the published tables); `mean` averages the subsets'
    correlations; `wmean` weighs them by their pairs. The choice moves numbers by points.
    """
    similarities_S = np.asarray(similarities, dtype=np.float64)
    gold_S = np.asarray(scores, dtype=np.float64)
    _check(similarities_S, gold_S, subsets, aggregation, where)
    names = np.asarray(subsets, dtype=np.str_)
    parts = []
    for name in dict.fromkeys(subsets):
        of_subset = names == name
        parts.append(
            SubsetScore(
                name=name,
                num_pairs=int(of_subset.sum()),
                spearman=spearman(similarities_S[of_subset], gold_S[of_subset]),
                pearson=pearson(similarities_S[of_subset], gold_S[of_subset]),
            )
        )
    match aggregation:
        case "all":
            rank, linear = spearman(similarities_S, gold_S), pearson(similarities_S, gold_S)
        case "mean" | "wmean":
            weights = [part.num_pairs if aggregation == "wmean" else 1 for part in parts]
            rank = mean_of_all([part.spearman for part in parts], weights)  # None as soon as one subset is undefined
            linear = mean_of_all([part.pearson for part in parts], weights)
        case _:
            assert_never(aggregation)
    return StsScore(
        spearman=rank,
        pearson=linear,
        aggregation=aggregation,
        num_pairs=len(gold_S),
        subsets=tuple(parts),
        subset_names=tuple(subsets),
        similarities=similarities_S,
        gold=gold_S,
    )


def jaccard_scores(sentences1: Sequence[str], sentences2: Sequence[str]) -> NDArray[np.float64]:
    """(S,) shared words over all words of a pair, lower-cased whitespace tokens: the floor that any encoder must beat.

    Having no parameters, it also shows which aggregation a piece of code really computes.
    """
    overlaps = []
    for sentence1, sentence2 in zip(sentences1, sentences2, strict=True):
        words1, words2 = set(sentence1.lower().split()), set(sentence2.lower().split())
        overlaps.append(len(words1 & words2) / len(words1 | words2) if words1 | words2 else 0.0)
    return np.asarray(overlaps)


def _check(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64], subsets: Sequence[str], aggregation: str, where: str) -> None:
    if aggregation not in get_args(Aggregation):
        raise DataError(
            where=f"{where}: aggregation", found=f'"{aggregation}"', expected="all, mean or wmean", remedy='Published tables use "all".'
        )
    if not similarities_S.shape == gold_S.shape == (len(subsets),) or not len(subsets):
        raise DataError(
            where=where,
            found=f"{similarities_S.shape} similarities, {gold_S.shape} gold scores, {len(subsets)} subset names",
            expected="one of each for every pair, and at least one pair",
            remedy="Check that the task's file was read whole.",
        )
    for name, values_S in (("similarities", similarities_S), ("gold scores", gold_S)):
        if not np.isfinite(values_S).all():
            raise DataError(
                where=where,
                found=f"{int((~np.isfinite(values_S)).sum())} {name} that are NaN or infinite",
                expected="finite numbers",
                remedy="Pairs without a gold score must be left out when the task is read.",
            )
