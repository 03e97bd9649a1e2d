"""Work shared out over workers: who does which part, what becomes of lost workers, what each is given and keeps to. Ray is stood in for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import ActorDiedError

from sentdist.errors import ResourceError
from sentdist.run import embed as pool
from sentdist.run.embed import over_workers
from sentdist.run.resources import Demand

DEMAND = Demand(way="task", workers=2, num_cpus=1.5, num_gpus=0.5)


def squarer() -> Callable[[int], int]:
    return lambda part: part * part


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
    return over_workers(squarer, (), range(num_parts) if parts is None else parts, **{"demand": DEMAND, "where": "squares"} | options)


SQUARES = {part: part * part for part in range(6)}
WORKERS = 5


def test_every_part_is_done_once_and_in_order_whoever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes: tuple[tuple[list[int], int | None, int], ...] = (
        ([], None, 2),
        ([], 1, 2),  # there is room for one
        ([0], None, 3),  # one dies before it begins
        ([2], None, 3),  # one dies with a part
        ([0], 1, 3),
        ([1, 1], 1, 4),  # each dies with its first part
    )
    for dies, rooms, num_started in scenes:
        cluster = Cluster(dies, rooms)
        assert list(_over(monkeypatch, cluster)) == list(SQUARES.items())
        assert cluster.options == {"num_cpus": 1.5, "num_gpus": 0.5, "resources": None}, "what the demand says of each"
        assert cluster.num_started == num_started and not cluster.living, "each lost one is replaced, and none is left"
        assert cluster.most_at_once == (rooms or DEMAND.workers)


def test_what_waits_for_a_slow_worker_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def parts() -> Iterator[int]:
        for part in range(60):
            drawn.append(part)
            yield part

    for part, _ in _over(monkeypatch, Cluster(slow=[0]), parts=parts(), demand=replace(DEMAND, workers=WORKERS)):
        assert len(drawn) - part <= pool.AHEAD_PER_WORKER * WORKERS
    assert len(drawn) == 60


def test_workers_that_die_again_and_again_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match="workers were lost"):
        list(_over(monkeypatch, Cluster([0] * 100)))
