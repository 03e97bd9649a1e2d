"""What the held-out rows of a person's own file are scored by."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal, assert_never

from sentdist.errors import RecipeError
from sentdist.plan.corpora.own import OwnSection
from sentdist.plan.resolver import Resolver
from sentdist.plan.specs import Shape, Task
from sentdist.plan.task_kinds import TripletTask

OWN = "own"  # the task that the held-out rows make
Side = Literal["dev", "test"]


def own_task(section: OwnSection, resolver: Resolver, side: Side, *, where: str) -> Task:
    """The held-out rows of a side: correlation with the scores of graded pairs, or the search for each anchor's positives."""
    pin = section.pinned(resolver, where=where)
    if side == "dev" and pin.rows.split is None and not pin.rows.dev:
        remedy = "Hold some out by corpus.held_out.dev, or leave selection out."
        raise RecipeError(where=where, found="corpus.held_out.dev: 0", expected="dev rows that choose", remedy=remedy)
    kind = kind_of_rows(pin.rows.shape)
    return Task(name=_name(kind, pin.name, side), kind=kind, source=pin.name, revision=pin.revision, split=side, own=pin.rows)


def own_test_tasks(section: OwnSection, resolver: Resolver, *, where: str) -> tuple[Task | TripletTask, ...]:
    """All that they are tested by; of triplets also whether the anchor is nearer to its positive, by which nothing is chosen."""
    first, pin = own_task(section, resolver, "test", where=where), section.pinned(resolver, where=where)
    if pin.rows.shape != "triplets":
        return (first,)
    return first, TripletTask(name=_name("triplets", pin.name, "test"), source=pin.name, revision=pin.revision, split="test", own=pin.rows)


def kind_of_rows(shape: Shape) -> Literal["sts", "retrieval"]:
    """The kind of the task that held-out rows of a shape make, which also chooses checkpoints."""
    match shape:
        case "graded":
            return "sts"
        case "pairs" | "triplets" | "faq":
            return "retrieval"
    assert_never(shape)


def own_test_names(file: str, shape: Shape) -> tuple[str, ...]:
    """The names of the test tasks that the rows of a file make."""
    kinds = (kind_of_rows(shape), *(("triplets",) if shape == "triplets" else ()))
    return tuple(_name(kind, file, "test") for kind in kinds)


def _name(kind: str, file: str, side: Side) -> str:
    """As tasks of a person's own files are called elsewhere, KIND-SOURCE-SPLIT; wherever the file lies."""
    return "".join(letter if letter.isalnum() else "-" for letter in f"{kind}-{PurePath(file).name}-{side}".lower())
