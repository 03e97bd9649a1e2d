"""Two equally good encoders on small test sets, scored by the measures of tasks: does the test hold where a score is no mean over items?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, v_measure_score

from sentdist.evaluation.items import of_average_precision, of_mean, of_spearman, of_v_measure
from sentdist.evaluation.significance import against
from sentdist.evaluation.variation import Column, Entry

Floats = NDArray[np.float64]
Measure = tuple[Callable[[Floats, Floats], float], Callable[[Floats, Floats], Floats]]  # score × 100 and contributions, of (found, gold)


def _reciprocal(found: Floats, gold: Floats) -> Floats:
    """100 / rank of a query's answer among some: the skewed values of MRR, and of MAP with one answer."""
    return 100.0 / (1 + np.floor(np.exp(np.abs(found - gold))))


def _fifths(values: Floats) -> Floats:
    """One of five labels, about as many of each."""
    return np.digitize(values, [-0.84, -0.25, 0.25, 0.84]).astype(np.float64)


MEASURES: Mapping[str, Measure] = {
    "Spearman": (lambda found, gold: 100 * float(spearmanr(found, gold).statistic), of_spearman),
    "average precision": (
        lambda found, gold: 100 * float(average_precision_score(gold > 0.5, found)),
        lambda found, gold: of_average_precision(found, gold > 0.5),
    ),
    "MAP": (lambda found, gold: float(_reciprocal(found, gold).mean()), lambda found, gold: of_mean(_reciprocal(found, gold))),
    "V-measure of 2": (
        lambda found, gold: 100 * float(v_measure_score(gold > 0, found > 0)),
        lambda found, gold: of_v_measure(found > 0, gold > 0),
    ),
    "V-measure of 5": (
        lambda found, gold: 100 * float(v_measure_score(_fifths(gold), _fifths(found))),
        lambda found, gold: of_v_measure(_fifths(found), _fifths(gold)),
    ),
}  # fmt: skip


def false_positives(measure: str, *, num_items: int, count: int, num_seeds: int = 3, seed: int = 0) -> float:
    """The share of `count` tables in which two encoders differ at 5 % that are equally good over all items and seeds."""
    score, contribution = MEASURES[measure]
    generator = np.random.default_rng(seed)
    num_found = 0
    for _ in range(count):
        gold = generator.normal(size=num_items)
        entries = []
        for label in ("one", "other"):
            own = generator.normal(size=num_items)  # how this encoder misreads these items, whatever the seed
            found = [gold * generator.normal(1, 0.1) + 0.7 * own + 0.7 * generator.normal(size=num_items) for _ in range(num_seeds)]
            entries.append(
                Entry(
                    label=label,
                    scores=np.array([score(run, gold) for run in found]),
                    seeds=tuple(range(num_seeds)),
                    contributions=np.stack([contribution(run, gold) for run in found]),
                )
            )
        p = against([Column(entries, np.full(num_items, 1 / num_items))], [[("one", "other")]])[0][0].p
        num_found += p is not None and p < 0.05
    return num_found / count
