"""Which faults a round has and when: a pure function of a seed and the number of the round."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MORE_FAULTS = (0, 0, 1, 1, 2)  # besides the first one
VARIANT_WEIGHTS = {"torch-1": 6, "deepspeed-1": 1, "torch-2": 1, "deepspeed-2": 1}  # those with Ray Train take several times as long


class Choice(Protocol):
    """What is known of a kind of fault before it is injected."""

    @property
    def name(self) -> str: ...

    @property
    def moments(self) -> tuple[str, ...]: ...

    @property
    def variants(self) -> tuple[str, ...]: ...

    @property
    def lasts_s(self) -> tuple[float, float]: ...


@dataclass(frozen=True, kw_only=True)
class Injection:
    """A fault, the moment at which it is injected, and how many seconds it lasts (0: it is over at once)."""

    fault: str
    moment: str
    lasts_s: float


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One round: which sweep, and what is done to it, one after another."""

    seed: int
    number: int
    variant: str
    injections: tuple[Injection, ...]


def plan_round(seed: int, number: int, choices: Sequence[Choice], variants: Sequence[str] = tuple(VARIANT_WEIGHTS)) -> RoundPlan:
    """The first fault goes through all kinds in an order drawn anew for each pass, so that as many rounds as there are kinds inject each of
    them; the others, their moments and how long they last are drawn."""
    possible = [choice for choice in choices if set(choice.variants) & set(variants)]
    order = list(possible)
    random.Random(f"order {seed} {number // len(order)}").shuffle(order)
    draw = random.Random(f"round {seed} {number}")
    first = order[number % len(order)]
    fitting = [variant for variant in variants if variant in first.variants]
    (variant,) = draw.choices(fitting, weights=[VARIANT_WEIGHTS[name] for name in fitting])
    others = [choice for choice in possible if variant in choice.variants]
    faults = [first, *(draw.choice(others) for _ in range(draw.choice(MORE_FAULTS)))]
    injections = tuple(
        Injection(fault=fault.name, moment=draw.choice(fault.moments), lasts_s=round(draw.uniform(*fault.lasts_s), 1)) for fault in faults
    )
    return RoundPlan(seed=seed, number=number, variant=variant, injections=injections)
