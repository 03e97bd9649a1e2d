"""The kinds of evaluation task, one module each; every other list of kinds is derived from this one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sentdist.tasks.cards import TASKS
from sentdist.tasks.classification import CLASSIFICATION
from sentdist.tasks.clustering import CLUSTERING
from sentdist.tasks.forums import FORUMS
from sentdist.tasks.geometry import GEOMETRY
from sentdist.tasks.links import LINKS
from sentdist.tasks.pairs import PAIRS
from sentdist.tasks.reranking import RERANKING
from sentdist.tasks.retrieval import RETRIEVAL
from sentdist.tasks.sts import STS
from sentdist.tasks.task import Task, TaskKind
from sentdist.tasks.triplets import TRIPLETS

KINDS = (STS, RETRIEVAL, CLASSIFICATION, PAIRS, RERANKING, FORUMS, CLUSTERING, TRIPLETS, GEOMETRY, LINKS)
TASK_KINDS: dict[str, TaskKind] = {kind.name: kind for kind in KINDS}
OWN_KINDS = tuple(kind.name for kind in KINDS if kind.own is not None)  # of user data
DEV_KINDS = tuple(kind for kind in KINDS if kind.chooses or kind.name in {card.kind for card in TASKS.values() if card.role == "dev"})

if TYPE_CHECKING:
    ScoredTask = Task
    DevTask = Task
else:
    ScoredTask = Annotated[reduce(or_, (kind.value for kind in KINDS)), Field(discriminator="kind")]
    DevTask = Annotated[reduce(or_, (kind.value for kind in DEV_KINDS)), Field(discriminator="kind")]


def have_mean(kinds: Iterable[str]) -> bool:
    """Return whether scores of these kinds of tasks can be averaged: the mean of a correlation and a precision means nothing."""
    return len({TASK_KINDS[kind].scale for kind in kinds}) == 1


def have_one_measure(kinds: Iterable[str]) -> bool:
    """Return whether these kinds have one main measure, which then names their average; stricter than `have_mean`."""
    return len({TASK_KINDS[kind].main.name for kind in kinds}) == 1
