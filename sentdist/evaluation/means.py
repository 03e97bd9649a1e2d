"""A mean of values that may be missing: over fewer of them it would be another number."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def mean_of_all(values: Iterable[float | None], weights: Sequence[float] | None = None) -> float | None:
    """The mean, weighted where weights are given; None where a value is None or there is none at all."""
    given = list(values)
    defined = [value for value in given if value is not None]
    return statistics.fmean(defined, weights) if defined and len(defined) == len(given) else None
