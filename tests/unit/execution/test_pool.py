"""Which worker of a pool does what, and what becomes of workers and parts that are lost. Ray is stood in for."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import ActorDiedError

from sentdist.errors import ResourceError
from sentdist.execution.parallel import pool
from sentdist.execution.parallel.pool import LOSSES_PER_PART, over_workers
from sentdist.execution.resources import Demand

DEMAND = Demand(way="pool", workers=2, num_cpus=1.5, num_gpus=0.5)


class Squarer:
    def work(self, part: int) -> int:
        return part * part


class Cluster:
    """Answers calls in the order in which they were made. dies: for each process in turn, the calls that it answers before it goes away;
    those that are not named live. `rooms`: how many processes find room at once; None: all."""

    def __init__(self, dies: Iterable[int] = (), rooms: int | None = None) -> None:
        self.dies, self.rooms = list(dies), rooms
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

        def call(does: Any) -> Any:
            return Mock(remote=lambda *given: Mock(process=process, does=lambda: does(*given)))

        process.__ray_ready__, process.work = call(lambda: True), call(body.work)
        self.living.append(process)
        return process

    def wait(self, refs: list[Any], *, num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        running = [ref for ref in refs if ref.process in self.living[: self.rooms]]
        self.most_at_once = max(self.most_at_once, len({id(ref.process) for ref in running}))
        return [running[0]], [ref for ref in refs if ref is not running[0]]

    def get(self, ref: Any) -> Any:
        if ref.process.left == 0:
            self.kill(ref.process)
            raise ActorDiedError
        ref.process.left -= 1
        return ref.does()

    def kill(self, process: Any) -> None:
        if process in self.living:
            self.living.remove(process)


def _over(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, num_parts: int = 6) -> Any:
    for name in ("remote", "wait", "get", "kill"):
        monkeypatch.setattr(pool.ray, name, getattr(cluster, name))
    return over_workers(Squarer, (), range(num_parts), demand=DEMAND, where="squares")


SQUARES = {part: part * part for part in range(6)}


@pytest.mark.parametrize(
    ("dies", "rooms", "num_started"),
    [
        pytest.param([], None, 2, id="all live"),
        pytest.param([], 1, 2, id="there is room for one"),
        pytest.param([0], None, 3, id="one dies before it begins"),
        pytest.param([2], None, 3, id="one dies with a part"),
        pytest.param([0], 1, 3, id="the only one dies before it begins"),
        pytest.param([1, 1], 1, 4, id="each dies with its first part"),
    ],
)
def test_every_part_is_done_once_whoever_is_lost(
    dies: list[int], rooms: int | None, num_started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(dies, rooms)
    found = list(_over(monkeypatch, cluster))
    assert dict(found) == SQUARES and len(found) == len(SQUARES)
    assert cluster.options == {"num_cpus": 1.5, "num_gpus": 0.5, "resources": None}, "what the demand says of each"
    assert cluster.num_started == num_started and not cluster.living, "each lost one is replaced, and none is left"
    assert cluster.most_at_once == (rooms or DEMAND.workers)


def test_workers_that_die_before_they_begin_are_counted_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that refuses processes now and then must not end a pool of many hours."""
    now_and_then = [number % 2 for number in range(2 * LOSSES_PER_PART + 4)]  # dies at once, or with its first part
    assert dict(_over(monkeypatch, Cluster(now_and_then, rooms=1), num_parts=6)) == SQUARES
    with pytest.raises(ResourceError, match="workers that die before they begin"):
        list(_over(monkeypatch, Cluster([0] * 100)))


def test_who_draws_no_more_leaves_no_worker_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(rooms=1)
    parts = _over(monkeypatch, cluster)
    next(parts)
    assert len(cluster.living) == DEMAND.workers
    parts.close()
    assert not cluster.living
