"""The terms that RCL's loss tends to over many rows, and the mean cosines below them (arXiv 2209.13241, Eq. 4 to 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.metrics import checked_embeddings, normalized


@dataclass(frozen=True, kw_only=True)
class PairingTerms:
    """The terms of one pairing of m sentences with m others: q with ind, q with Au_q, ind with Au_ind.

    alignment: mean cosine of those that belong together (Eq. 4's first terms, without their sign). spread: mean over i of the log of the
    mean over j of exp cosine (Eq. 5). mean_cosine: over all i and j (Eq. 6), which Jensen's inequality puts at or below the spread.
    """

    alignment: float
    spread: float
    mean_cosine: float


@dataclass(frozen=True, kw_only=True)
class RclTerms:
    """pairs: of queries and indices; queries, indices: with what N entropy encoders make of them, summed over these."""

    pairs: PairingTerms
    queries: PairingTerms
    indices: PairingTerms

    @property
    def asymptotic_loss(self) -> float:
        """Eq. 4: Eq. 3 at temperature 1 less (1 + 2N) log M, as M grows; nats."""
        return sum(term.spread - term.alignment for term in (self.pairs, self.queries, self.indices))

    @property
    def bound(self) -> float:
        """Eq. 6: the mean cosines that Eq. 5, the last three terms of Eq. 4, lies at or above."""
        return sum(term.mean_cosine for term in (self.pairs, self.queries, self.indices))


def rcl_terms(queries_MD: ArrayLike, indices_MD: ArrayLike, augmented_queries_NMD: ArrayLike, augmented_indices_NMD: ArrayLike) -> RclTerms:
    """The terms of m rows. Eq. 5 prints q in its last sum, where Eq. 4 and 6 have ind; it is ind here.

    Raises:
        DataError: shapes that do not fit, or embeddings without a direction.
    """
    queries, indices = (_unit(one, "RCL's terms") for one in (queries_MD, indices_MD))
    banks = [[_unit(one, "a bank") for one in np.asarray(bank)] for bank in (augmented_queries_NMD, augmented_indices_NMD)]
    if any(one.shape != queries.shape for one in (indices, *banks[0], *banks[1])) or len(banks[0]) != len(banks[1]):
        raise DataError(
            where="RCL's terms",
            found=f"embeddings of shapes {queries.shape}, {indices.shape} and {np.shape(augmented_queries_NMD)}",
            expected="the same rows and width everywhere",
            remedy="Embed the same rows with encoders of one width.",
        )
    return RclTerms(
        pairs=_term(queries, indices),
        queries=_sum([_term(queries, one) for one in banks[0]]),
        indices=_sum([_term(indices, one) for one in banks[1]]),
    )


def _term(one_MD: NDArray[np.float64], other_MD: NDArray[np.float64]) -> PairingTerms:
    cosines = one_MD @ other_MD.T
    return PairingTerms(
        alignment=float(np.trace(cosines) / len(cosines)),
        spread=float(np.mean(np.log(np.mean(np.exp(cosines), axis=1)))),
        mean_cosine=float(cosines.mean()),
    )


def _sum(terms: list[PairingTerms]) -> PairingTerms:
    return PairingTerms(
        alignment=sum(term.alignment for term in terms),
        spread=sum(term.spread for term in terms),
        mean_cosine=sum(term.mean_cosine for term in terms),
    )


def _unit(embeddings_MD: ArrayLike, where: str) -> NDArray[np.float64]:
    return np.asarray(normalized(checked_embeddings(embeddings_MD, where=where)), dtype=np.float64)
