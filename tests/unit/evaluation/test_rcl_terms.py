"""RCL's Eq. 4 to 6 against loops, Jensen's inequality and the loss itself; and from a finished recipe."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.rcl_terms import rcl_terms


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_terms_are_those_of_loops_and_of_eq_3() -> None:
    draw, m = np.random.default_rng(0), 7
    q, ind, au_q, au_ind = draw.normal(size=(m, 5)) + 1, draw.normal(size=(m, 5)), draw.normal(size=(2, m, 5)), draw.normal(size=(2, m, 5))
    found = rcl_terms(q, ind, au_q, au_ind)
    pairs = [(q, ind), *((q, one) for one in au_q), *((ind, one) for one in au_ind)]
    spreads = [np.mean([math.log(np.mean([math.exp(_cosine(x, y)) for y in right])) for x in left]) for left, right in pairs]
    cosines = [np.mean([_cosine(x, y) for x in left for y in right]) for left, right in pairs]
    assert found.pairs.spread == pytest.approx(spreads[0]) and found.queries.spread == pytest.approx(sum(spreads[1:3]))
    assert found.bound == pytest.approx(sum(cosines)) and found.bound < sum(spreads), "Jensen"
    loss = sum(
        np.mean([-_cosine(left[i], right[i]) + math.log(sum(math.exp(_cosine(left[i], y)) for y in right)) for i in range(m)])
        for left, right in pairs
    )
    assert found.asymptotic_loss == pytest.approx(loss - len(pairs) * math.log(m)), "Eq. 3 less log M for each of its 1 + 2N terms"
    with pytest.raises(DataError, match="the same rows and width"):
        rcl_terms(q, ind[:3], au_q, au_ind)
