"""Asynchronous successive halving: who goes on at a rung, a pure decision from the scores that its method has there by then."""

from __future__ import annotations

import math
from collections.abc import Sequence


def survives_rung(score: float, before: Sequence[float], keep: float) -> bool:
    """Whether a trial that comes to a rung goes on: it is among the best `keep` of all that are there, itself included; of few, the best.

    before: scores of the trials of its method that came there earlier. The rule is the one by which ASHA promotes (Li et al. 2020,
    Algorithm 2), asked once, when a trial arrives: what is left is not taken up again. So a decision follows from what came before it, in
    the order in which it came; Tune's own scheduler, which keeps that order in memory, could not repeat it after a restart.
    """
    better = sum(other > score for other in before)
    return better < max(1, math.floor(keep * (len(before) + 1) + 1e-9))
