"""Two equally good encoders on several tasks, scored by the mean over them: does the test hold where some of the test sets are tiny?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentdist.evaluation.significance import against
from sentdist.evaluation.variation import Column, Entry

SIZES = ((30,), (4, 500), (10, 500), (3, 3, 3), (8,) * 7, (20, 200, 2000))  # groups of test items of each task


def false_positives_of_means(sizes: Sequence[int], *, count: int, seed: int = 0) -> float:
    """The share of `count` tables in which two untouched encoders differ at 5 % in their mean over tasks. sizes: as SIZES."""
    generator = np.random.default_rng(seed)
    task_of = np.repeat(np.arange(len(sizes)), sizes)
    weights = np.concatenate([np.full(size, 1 / size / len(sizes)) for size in sizes])
    told = 0
    for _ in range(count):
        apart = [generator.normal(0, 10, size) for size in sizes]  # of each item, what one gains over the other
        added = np.concatenate([(own - own.mean()) / len(own) for own in apart]) / len(sizes)
        entries = [
            Entry(label=label, scores=np.array([score]), seeds=(), contributions=one[None])
            for label, score, one in (("one", float(np.mean([own.mean() for own in apart])), added), ("other", 0.0, 0 * added))
        ]
        p = against([Column(entries, weights, task_of)], [[("one", "other")]])[0][0].p
        told += p is not None and p < 0.05
    return told / count
