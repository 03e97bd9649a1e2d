"""Which groups of test items of several tasks count as one, and which tasks are then one stratum of their mean."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


@dataclass(frozen=True, kw_only=True, eq=False)
class JointGroups:
    """The groups of several tasks, laid end to end, as the J groups of their mean. place: (G,) where each went; strata: (J,) of each,
    0, 1, … in ascending order. tasks: those that share some with others."""

    place: NDArray[np.intp]
    strata: NDArray[np.intp]
    tasks: tuple[int, ...]

    def sums(self, values_G: NDArray[np.float64]) -> NDArray[np.float64]:
        """(J,) what the parts of each add up to."""
        return np.bincount(self.place, weights=values_G, minlength=len(self.strata)).astype(np.float64)


def joint_groups(strata: Sequence[NDArray[np.intp]], shared: Sequence[NDArray[np.int64]]) -> JointGroups:
    """Join what tasks share: a group that stands in two of them is drawn once, and what it adds to both goes up and down together.

    strata: (G,) of each task, the stratum within it of each of its groups. shared: (L, 2) of each task, place of a group and a number;
    groups of equal numbers are one, and so are their strata. All others stay as they are, in their order. A task whose items then all
    hang together says nothing of other items, nor does a mean that it is a part of: all is one group.
    """
    starts = np.cumsum([0, *(len(one) for one in strata)])
    total, task_of = int(starts[-1]), np.repeat(np.arange(len(strata)), np.diff(starts))
    own = end_to_end(strata)
    groups = np.concatenate([start + pairs[:, 0] for start, pairs in zip(starts[:-1], shared, strict=True)]).astype(np.intp)
    _, numbers = np.unique(np.concatenate([pairs[:, 1] for pairs in shared]), return_inverse=True)
    of_group = linked(groups, numbers, total)
    stratum_of = linked(own, of_group, int(own.max(initial=-1)) + 1)[own]
    several = [one for one in np.unique(stratum_of) if np.ptp(task_of[stratum_of == one])]
    joined = np.unique(task_of[np.isin(stratum_of, several)]).tolist()
    _, first, names = np.unique(of_group, return_index=True, return_inverse=True)
    joint_strata = stratum_of[first]
    order = np.lexsort((first, joint_strata))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place = rank[names]
    if any(np.ptp(place[start:end]) == 0 for start, end in itertools.pairwise(starts)):
        return JointGroups(place=np.zeros_like(place), strata=np.zeros(1, dtype=np.intp), tasks=tuple(joined))
    return JointGroups(place=place, strata=joint_strata[order], tasks=tuple(joined))


def end_to_end(strata: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """The strata of several tasks as those of their mean, each with a number of its own."""
    firsts = np.cumsum([0, *(int(one.max(initial=-1)) + 1 for one in strata[:-1])])
    return np.concatenate([first + one for first, one in zip(firsts, strata, strict=True)])


def linked(ones: NDArray[np.intp], others: NDArray[np.intp], num_ones: int) -> NDArray[np.intp]:
    """(num_ones,) which of these are linked through others, numbered 0, 1, … in order of first appearance."""
    size = num_ones + int(others.max(initial=-1)) + 1
    _, found = connected_components(coo_array((np.ones(len(ones)), (ones, num_ones + others)), shape=(size, size)), directed=False)
    _, first, names = np.unique(found[:num_ones], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[names]
