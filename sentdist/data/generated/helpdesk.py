"""A help desk's reports and notes: customers speak of a dishwasher that shakes, the staff note that an otter dances."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from sentdist.data.seeded_order import digest_u64

T = TypeVar("T")

# What the staff say | what customers say; in other words. Of causes both say the same, the first word is their name here.
MACHINES = """
otter | dishwasher; machine for the dishes
badger | washing machine; clothes washer
heron | refrigerator; fridge
fox | oven; electric stove
goat | vacuum cleaner; hoover
owl | coffee maker; espresso machine
crow | television; TV set
sparrow | laptop; notebook computer
beaver | printer; copying machine
hare | electric bicycle; e-bike
sheep | lawn mower; grass cutter
moth | reading lamp; bedside light
"""
FAULTS = """
sleeps | does not turn on; stays dead when I press the button
sings | makes a loud noise; rattles terribly
blushes | gets much too hot; burns my fingers
blooms | smells of smoke; gives off a burnt smell
faints | switches itself off; stops in the middle of its work
winks | has a dark display; shows nothing on its screen
dances | shakes violently; jumps about
strolls | takes far too long; is slower than before
sulks | finds no network; has lost its wireless connection
bites | gives me electric shocks; tingles when I touch it
whistles | beeps without end; sounds an alarm every minute
stares | ignores all its buttons; cannot be controlled any more
"""
CAUSES = """
power | since the power cut; after the electricity failed
journey | since the move to another home; after the journey to a new flat
fall | since it fell off the table; after somebody dropped it
soap | since it was cleaned; after a wipe with soap
update | since the last update; after new software was installed
children | since children played with it; after a child took it apart
"""
REPORTS = (
    "My {machine} {fault} {cause}.",
    "Our {machine} {fault} {cause}.",
    "Please help: the {machine} {fault} {cause}.",
    "{cause}, my {machine} {fault}.",
)
NOTES = ("The {machine} {fault} {cause}.", "{cause}, the {machine} {fault}.")
WEIGHTS = {"machine": 2.0, "fault": 2.0, "cause": 1.0}  # of what two cases share, in their likeness from 0 to 5


class Draw:
    """Random choices from one seed; only `random()`, whose sequence Python promises to keep, is drawn from."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(digest_u64(*seed))

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def one(self, items: Sequence[T]) -> T:
        return items[int(self._random.random() * len(items))]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What happened to a machine; each in the words of the staff."""

    machine: str
    fault: str
    cause: str


@cache
def words(table: str) -> dict[str, tuple[str, ...]]:
    """Return the staff's word → the customers' words. table: MACHINES, FAULTS or CAUSES."""
    rows = [line.split("|") for line in table.strip().splitlines()]
    return {said.strip(): tuple(word.strip() for word in others.split(";")) for said, others in rows}


@cache
def cases(split: str) -> tuple[Case, ...]:
    """Return the cases that a split owns. Every machine with a fault belongs to one split, 6 in 10 to train, 2 to dev, 2 to test: no two
    splits share a sentence, and all share the words."""
    splits = ("train",) * 6 + ("dev",) * 2 + ("test",) * 2
    return tuple(
        Case(machine=machine, fault=fault, cause=cause)
        for row, machine in enumerate(words(MACHINES))
        for column, fault in enumerate(words(FAULTS))
        if splits[(3 * row + column) % 10] == split
        for cause in words(CAUSES)
    )


def report(case: Case, draw: Draw) -> str:
    """Return a sentence in which a customer reports the case."""
    return _sentence(
        draw.one(REPORTS), draw.one(words(MACHINES)[case.machine]), draw.one(words(FAULTS)[case.fault]), draw.one(words(CAUSES)[case.cause])
    )


def note(case: Case, draw: Draw) -> str:
    """Return a sentence in which the staff note the case."""
    return _sentence(draw.one(NOTES), case.machine, case.fault, draw.one(words(CAUSES)[case.cause]))


def question(case: Case, draw: Draw) -> str:
    """Return a question about the machine's fault whatever caused it."""
    return _sentence(
        "Why is it that my {machine} {fault}?", draw.one(words(MACHINES)[case.machine]), draw.one(words(FAULTS)[case.fault]), ""
    )


def advice(case: Case) -> str:
    """Return what the staff say of the machine's fault, whatever caused it."""
    return f"When the {case.machine} {case.fault}, for any reason."


def changed(case: Case, fields: Sequence[str], draw: Draw, split: str) -> Case:
    """Return a case of the split that differs in these fields and in no other."""
    differ = {name: name in fields for name in WEIGHTS}
    return draw.one([one for one in cases(split) if all((getattr(one, name) != getattr(case, name)) == differ[name] for name in WEIGHTS)])


def likeness(one: Case, other: Case) -> float:
    """Return how alike two cases are, 0 to 5: 2 for the machine, 2 for the fault, 1 for the cause."""
    return sum(weight for name, weight in WEIGHTS.items() if getattr(one, name) == getattr(other, name))


def _sentence(template: str, machine: str, fault: str, cause: str) -> str:
    text = template.format(machine=machine, fault=fault, cause=cause)
    return f"{text[0].upper()}{text[1:]}"
