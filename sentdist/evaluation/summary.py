"""The scores of one system over its seeds in short: mean, standard deviation, interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from sentdist.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The scores of one system on one task over n seeds. `sd` (n − 1 in the divisor) and Student's interval over seeds, for figures of one
    measure over a grid, are None for one seed. Whether systems differ is asked of `evaluation/significance.py`."""

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    num_seeds: int


def summarize(scores: Sequence[float]) -> Summary:
    """Mean ± sample standard deviation over seeds, with Student's t interval of the mean at 95 %.

    Raises:
        DataError: no score, or one that is not finite.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise DataError(
            where="scores over seeds",
            found=f"{values.tolist()}",
            expected="at least one finite score",
            remedy="Leave out runs that have no score, and say so.",
        )
    mean = float(values.mean())
    if len(values) < 2:
        return Summary(mean=mean, sd=None, low=None, high=None, num_seeds=len(values))
    sd = float(values.std(ddof=1))
    margin = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * sd / len(values) ** 0.5
    return Summary(mean=mean, sd=sd, low=mean - margin, high=mean + margin, num_seeds=len(values))
