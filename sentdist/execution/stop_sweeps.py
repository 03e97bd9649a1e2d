"""Stopping sweeps from outside, whatever became of their drivers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from sentdist.errors import ResourceError
from sentdist.execution.board.client import BOARDS
from sentdist.execution.cluster.names import NAMESPACE
from sentdist.spelling import did_you_mean


@dataclass(frozen=True, kw_only=True)
class StoppedSweep:
    """A sweep that was stopped; num_ended: stages that were being built or waited for it, and that nobody else needs."""

    sweep: str
    num_ended: int


def stop_sweeps(name: str | None) -> list[StoppedSweep]:
    """Stop a sweep (None: all) on every board of the connected cluster, see `BoardActor.stop`; returns when its work has ended.

    Raises:
        ResourceError: nothing of that name is being built; says what is.
    """
    boards = list(_boards())
    known = sorted({sweep for _, sweeps in boards for sweep in sweeps})
    chosen = known if name is None else [sweep for sweep in known if sweep == name]
    if not chosen:
        raise ResourceError(
            where="sentdist stop",
            found=f"only {', '.join(known)} on this cluster" if known else "that no sweep is being built on this cluster",
            expected="a sweep to stop" if name is None else f"a sweep named {name}",
            remedy=did_you_mean(name or "", known, "`ray job list` shows what was submitted."),
        )
    return [
        StoppedSweep(sweep=sweep, num_ended=sum(ray.get([board.stop.remote(sweep) for board, sweeps in boards if sweep in sweeps])))
        for sweep in chosen
    ]


def _boards() -> Iterator[tuple[Any, dict[str, int]]]:
    """The boards of all stores, each with its sweeps."""
    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["namespace"] == NAMESPACE and named["name"].startswith(BOARDS):
            try:
                board: Any = ray.get_actor(named["name"], namespace=NAMESPACE)
                yield board, ray.get(board.sweeps.remote())
            except (ValueError, RayActorError):  # it ended since
                continue
