"""Contestants that take turns, so that what else happens on a machine meets them alike."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

W = TypeVar("W")
Draw = dict[str, float]  # "seconds" of one unit of work, and what else is said of it


@dataclass(frozen=True, kw_only=True)
class Side(Generic[W]):
    """One contestant: a generator that does a unit of its work a draw. Both must pickle."""

    contestant: Callable[[W], Iterator[Draw]]
    work: W


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What one side drew after the round that warms up, and the peak memory of its process."""

    draws: list[Draw]
    peak_gib: float

    def median(self, name: str) -> float:
        """The median over draws of one of their numbers."""
        return statistics.median(draw[name] for draw in self.draws)


def interleave(sides: Mapping[str, Side[W]], *, rounds: int, units: int) -> dict[str, Turns]:
    """Let the sides take turns, `units` draws a turn; each lives in a process of its own, so that its peak memory is its own."""
    context = multiprocessing.get_context("spawn")
    running = {}
    for name, side in sides.items():
        here, there = context.Pipe()
        process = context.Process(target=_take_turns, args=(side, there), daemon=True)
        process.start()
        there.close()  # so that the end of the process ends the waiting for it
        running[name] = (process, here)
    draws: dict[str, list[Draw]] = {name: [] for name in sides}
    for number in range(rounds + 1):  # the first round warms up
        for name, (_, pipe) in running.items():
            pipe.send(units)
            drawn = pipe.recv()
            draws[name] += drawn if number else []
    found = {}
    for name, (process, pipe) in running.items():
        pipe.send(0)
        found[name] = Turns(draws=draws[name], peak_gib=pipe.recv())
        process.terminate()
        process.join()
    return found


def machine(threads: int) -> dict[str, str]:
    """What a figure was measured on."""
    from sentdist.stages.environment import environment

    found = environment()
    names = ("processor", "python", "torch", "transformers", "sentence-transformers", "commit")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "threads": str(threads),
        **{name: found[name] for name in names if name in found},
    }


def _take_turns(side: Side[W], pipe: Connection) -> None:
    contestant = side.contestant(side.work)
    while units := pipe.recv():
        pipe.send([next(contestant) for _ in range(units)])
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
