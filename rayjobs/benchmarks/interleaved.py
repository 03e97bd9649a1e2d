"""Interleaved benchmark: peers take turns in one run, so that other load on the machine slows all of them alike."""

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
Sample = dict[str, float]  # "seconds" of one unit of work, and what else is said of it


@dataclass(frozen=True, kw_only=True)
class Peer(Generic[W]):
    """A generator that does one unit of `work` a sample. Both must pickle."""

    run: Callable[[W], Iterator[Sample]]
    work: W


@dataclass(frozen=True, kw_only=True)
class Turns:
    """The samples of one peer after the round that warms up, and the peak memory of its process."""

    samples: list[Sample]
    peak_gib: float

    def median(self, name: str) -> float:
        """The median over samples of one of their numbers."""
        return statistics.median(sample[name] for sample in self.samples)

    def over(self, other: Turns, *, units: int) -> float:
        """Its seconds over another's: the median over rounds, whose turns follow one another, so that a slow minute counts little."""
        sums = [[sum(sample["seconds"] for sample in peer.samples[at : at + units]) for at in range(0, len(peer.samples), units)]
                for peer in (self, other)]  # fmt: skip
        return statistics.median(own / of for own, of in zip(*sums, strict=True))


def interleave(peers: Mapping[str, Peer[W]], *, rounds: int, units: int) -> dict[str, Turns]:
    """Let the peers take turns, `units` samples a turn, each in a process of its own, so that its peak memory is its own."""
    context = multiprocessing.get_context("spawn")
    running = {}
    for name, peer in peers.items():
        here, there = context.Pipe()
        process = context.Process(target=_take_turns, args=(peer, there), daemon=True)
        process.start()
        there.close()  # so that the end of the process ends the waiting for it
        running[name] = (process, here)
    samples: dict[str, list[Sample]] = {name: [] for name in peers}
    for number in range(rounds + 1):  # the first round warms up
        for name, (_, pipe) in running.items():
            pipe.send(units)
            received = pipe.recv()
            samples[name] += received if number else []
    found = {}
    for name, (process, pipe) in running.items():
        pipe.send(0)
        found[name] = Turns(samples=samples[name], peak_gib=pipe.recv())
        process.terminate()
        process.join()
    return found


def machine(threads: int) -> dict[str, str]:
    """What a figure was measured on."""
    from sentdist.stages.context import environment

    found = environment()
    names = ("processor", "python", "torch", "transformers", "sentence-transformers", "commit")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "threads": str(threads),
        **{name: found[name] for name in names if name in found},
    }


def _take_turns(peer: Peer[W], pipe: Connection) -> None:
    samples = peer.run(peer.work)
    while units := pipe.recv():
        pipe.send([next(samples) for _ in range(units)])
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
