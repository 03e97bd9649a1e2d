"""Work shared out over workers: who does which part, what becomes of lost workers, what each is given and keeps to. Ray is stood in for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import ActorDiedError

from sentdist.errors import ResourceError
from sentdist.run.demand import Demand
from sentdist.run.parallel import pool
from sentdist.run.parallel.pool import LOSSES_PER_PART, over_workers

DEMAND = Demand(way="task", workers=2, num_cpus=1.5, num_gpus=0.5)


class Squarer:
    def work(self, part: int) -> int:
        return part * part


class Cluster:
    """Answers calls in the order in which they were made. dies: for each process in turn, the calls that it answers before it goes away;
    those that are not named live. `rooms`: how many processes find room at once; None: all. slow: numbers of processes that answer a part
    only after so many answers of others as `lag` says."""

    def __init__(self, dies: Iterable[int] = (), rooms: int | None = None, *, slow: Iterable[int] = (), lag: int = 10**6) -> None:
        self.dies, self.rooms, self.slow, self.lag = list(dies), rooms, set(slow), lag
        self.num_answers = 0
        self.options: dict[str, float] = {}
        self.living: list[Any] = []
        self.num_started = 0
        self.most_at_once = 0

    def remote(self, worker: Any) -> Any:
        def options(**given: float) -> Any:
            self.options = given
            return SimpleNamespace(remote=lambda *arguments: self._start(worker(*arguments)))

        return SimpleNamespace(options=options)

    def _start(self, body: Any) -> Any:
        left = self.dies[self.num_started] if self.num_started < len(self.dies) else 1000
        self.num_started += 1
        process = Mock(left=left)
        lag = self.lag if self.num_started - 1 in self.slow else 0

        def call(does: Any, lag: int = 0) -> Any:
            return Mock(
                remote=lambda *given: Mock(process=process, part=given, does=lambda: does(*given), is_due_at=self.num_answers + lag)
            )

        process.__ray_ready__, process.work = call(lambda: True), call(body.work, lag)
        self.living.append(process)
        return process

    def wait(self, refs: list[Any], *, num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        running = [ref for ref in refs if ref.process in self.living[: self.rooms]]
        self.most_at_once = max(self.most_at_once, len({id(ref.process) for ref in running}))
        first = next((ref for ref in running if ref.is_due_at <= self.num_answers), min(running, key=lambda ref: ref.is_due_at))
        self.num_answers += 1
        return [first], [ref for ref in refs if ref is not first]

    def get(self, ref: Any) -> Any:
        if ref.process.left == 0:
            self.kill(ref.process)
            raise ActorDiedError
        ref.process.left -= 1
        return ref.does()

    def kill(self, process: Any) -> None:
        if process in self.living:
            self.living.remove(process)


def _over(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, num_parts: int = 6, *, parts: Iterable[int] | None = None, **options: Any
) -> Any:
    for name in ("remote", "wait", "get", "kill"):
        monkeypatch.setattr(pool.ray, name, getattr(cluster, name))
    return over_workers(Squarer, (), range(num_parts) if parts is None else parts, **{"demand": DEMAND, "where": "squares"} | options)


SQUARES = {part: part * part for part in range(6)}
WORKERS = 5


def _ahead(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *, num_parts: int = 60, ahead: float = 2) -> tuple[list[int], int]:
    """The parts as they were answered, and how many answers waited at most for one that came before them."""
    found: list[int] = []
    waiting: list[int] = []
    demand = replace(DEMAND, workers=WORKERS)
    for part, square in _over(monkeypatch, cluster, num_parts, demand=demand, ahead_per_worker=ahead):
        assert square == part * part
        found.append(part)
        missing = next(one for one in count() if one not in found)
        waiting.append(sum(one > missing for one in found))
    return found, max(waiting)


def test_every_part_is_done_once_whoever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes: tuple[tuple[list[int], int | None, int], ...] = (
        ([], None, 2),
        ([], 1, 2),  # there is room for one
        ([0], None, 3),  # one dies before it begins
        ([2], None, 3),  # one dies with a part
        ([0], 1, 3),
        ([1, 1], 1, 4),  # each dies with its first part
    )
    for dies, rooms, num_started in scenes:
        for ahead in (math.inf, 2, 1):
            cluster = Cluster(dies, rooms)
            found = list(_over(monkeypatch, cluster, ahead_per_worker=ahead))
            assert dict(found) == SQUARES and len(found) == len(SQUARES)
            assert cluster.options == {"num_cpus": 1.5, "num_gpus": 0.5, "resources": None}, "what the demand says of each"
            assert cluster.num_started == num_started and not cluster.living, "each lost one is replaced, and none is left"
            assert cluster.most_at_once == (rooms or DEMAND.workers)


def test_a_slow_worker_holds_up_neither_memory_nor_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before its turn waits for the slow one's part, which is done by one of those that would have nothing to do."""
    found, waiting = _ahead(monkeypatch, cluster := Cluster(slow=[0]))
    assert sorted(found) == list(range(60)) and waiting < 2 * WORKERS
    assert found.index(0) < 3 * WORKERS, "not at the end"
    assert not cluster.living and cluster.num_started == WORKERS
    assert cluster.num_answers < 60 + 2 * WORKERS + 2, "hardly anything is done twice"
    assert _ahead(monkeypatch, Cluster(slow=[0]), ahead=math.inf)[1] > 50, "where order does not matter"


def test_workers_that_die_before_they_begin_are_counted_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that refuses processes now and then must not end a pool of many hours."""
    now_and_then = [number % 2 for number in range(2 * LOSSES_PER_PART + 4)]  # dies at once, or with its first part
    assert dict(_over(monkeypatch, Cluster(now_and_then, rooms=1), num_parts=6)) == SQUARES
    with pytest.raises(ResourceError, match="workers that die before they begin"):
        list(_over(monkeypatch, Cluster([0] * 100)))
