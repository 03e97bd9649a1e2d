"""What a few seeds know of a variance, and what that makes of a critical value."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi
from scipy.stats import norm, t

Floats = NDArray[np.float64]
NORMAL_GRID = np.linspace(0.0, 8.0, 81)  # normal quantiles, between which critical values are interpolated
LEAST_VARIANCE = 1e-18  # points²: below, scores agree to their rounding


def moderated(variances: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Variances drawn towards their common value, and the degrees of freedom that they then have (Smyth 2004, Stat. Appl. Genet. 3, 3).

    The weight of the common value, in degrees of freedom, follows from how much log variances differ beyond chance; it is at most
    (rows − 3) times a row's own, so that three rows or fewer stand for themselves.
    """
    usable = variances > LEAST_VARIANCE
    rows = int(usable.sum())
    if rows < 4:
        return variances, degrees
    own, given = variances[usable], degrees[usable]
    logs = np.log(own) - psi(given / 2) + np.log(given / 2)
    beyond = float(logs.var(ddof=1) - np.mean(polygamma(1, given / 2)))
    most = (rows - 3) * float(np.median(given))
    if beyond > 0 and (prior := 2 * _inverse_trigamma(beyond)) < most:
        common = float(np.exp(logs.mean() + psi(prior / 2) - np.log(prior / 2)))
    else:
        prior, common = most, float(np.average(own, weights=given))
    drawn = (prior * common + degrees * variances) / (prior + degrees)
    return np.where(usable, drawn, variances), np.where(usable, degrees + prior, degrees)


def _inverse_trigamma(value: float) -> float:
    """Newton's method on 1 / trigamma, which is convex (Smyth 2004, appendix)."""
    found = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, found))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, found))
        found += step
        if abs(step) < 1e-8 * found:
            break
    return found


def t_quantiles(degrees_P: Floats) -> Floats:
    """(P, Z) Student's quantiles that belong to NORMAL_GRID."""
    return np.array([_t_curve(round(float(degrees), 3)) for degrees in degrees_P]).reshape(len(degrees_P), len(NORMAL_GRID))


@lru_cache(maxsize=4096)
def _t_curve(degrees: float) -> Floats:
    return np.asarray(t.isf(norm.sf(NORMAL_GRID), degrees))
