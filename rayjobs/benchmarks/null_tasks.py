"""Two equally good encoders on several tasks, scored by the mean over them: does the test hold where some of the test sets are tiny?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sentdist.evaluation.items import items_of, joined, joint_groups
from sentdist.evaluation.significance import against
from sentdist.evaluation.variation import Column, Entry

Floats = NDArray[np.float64]
SIZES = ((30,), (4, 500), (10, 500), (3, 3, 3), (8,) * 7, (20, 200, 2000))  # groups of test items of each task
PARTS = ((4, 500), (10, 500), (3,) * 10, (9,) * 10)  # items of each part of a score: of folds, languages, forums or sets to cluster
SHARING = (((100, 100), 0.3), ((100, 100), 1.0), ((100, 20), 1.0), ((500, 100, 100, 100), 0.5))  # the same, and what they share


def false_positives_of_means(sizes: Sequence[int], *, count: int, seed: int = 0) -> float:
    """The share of `count` tables in which two untouched encoders differ at 5 % in their mean over tasks. sizes: as SIZES."""
    generator = np.random.default_rng(seed)
    task_of = np.repeat(np.arange(len(sizes)), sizes)
    weights = np.concatenate([np.full(size, 1 / size / len(sizes)) for size in sizes])
    num_found = 0
    for _ in range(count):
        apart = [generator.normal(0, 10, size) for size in sizes]  # of each item, what one gains over the other
        num_found += _differ_in_mean(apart, weights, task_of, lambda added: added)
    return num_found / count


def false_positives_of_parts(sizes: Sequence[int], *, count: int, seed: int = 0) -> float:
    """As `false_positives_of_means`, of one task whose score is a mean over parts. sizes: as PARTS."""
    generator = np.random.default_rng(seed)
    num_found = 0
    for _ in range(count):
        apart = [generator.normal(50, 10, size) for size in sizes]
        parts = [items_of({"map": own}, task="parts:map", where="made up") for own in apart]
        both = joined([part for part in parts if part is not None])
        num_found += _is_significant(float(np.mean([own.mean() for own in apart])) - 50, both.by_group(), both.group_weights(), both.strata)
    return num_found / count


def false_positives_of_shared(sizes: Sequence[int], share: float, *, is_joined: bool, count: int, seed: int = 0) -> float:
    """As `false_positives_of_means`, of tasks of which the later ones have a share of their items, at most all of its, in common with
    the first. is_joined: whether the test knows it."""
    generator = np.random.default_rng(seed)
    num_shared = [round(share * min(size, sizes[0])) for size in sizes[1:]]
    numbers = [np.arange(max(num_shared)), *map(np.arange, num_shared)]
    joint = joint_groups([np.zeros(size, dtype=np.intp) for size in sizes], [np.stack([one, one], axis=1) for one in numbers])
    weights = np.concatenate([np.full(size, 1 / size / len(sizes)) for size in sizes])
    num_found = 0
    for _ in range(count):
        apart = [generator.normal(0, 10, size) for size in sizes]
        for own, number in zip(apart[1:], num_shared, strict=True):
            own[:number] = apart[0][:number]
        if is_joined:
            num_found += _differ_in_mean(apart, joint.sums(weights), joint.strata, joint.sums)
        else:
            num_found += _differ_in_mean(apart, weights, np.repeat(np.arange(len(sizes)), sizes), lambda added: added)
    return num_found / count


def _differ_in_mean(apart: Sequence[Floats], weights: Floats, task_of: NDArray[np.intp], grouped: Callable[[Floats], Floats]) -> bool:
    """Whether two encoders differ significantly in the mean over tasks. apart: of each item of each task, what one gains over the other.
    grouped: from items to groups."""
    added = grouped(np.concatenate([(own - own.mean()) / len(own) for own in apart]) / len(apart))
    return _is_significant(float(np.mean([own.mean() for own in apart])), added, weights, task_of)


def _is_significant(difference: float, added: Floats, weights: Floats, strata: NDArray[np.intp]) -> bool:
    """added: (G,) what each group of items adds to the difference."""
    entries = [
        Entry(label=label, scores=np.array([score]), seeds=(), contributions=one[None])
        for label, score, one in (("one", difference, added), ("other", 0.0, 0 * added))
    ]
    p = against([Column(entries, weights, strata)], [[("one", "other")]])[0][0].p
    return p is not None and p < 0.05
