"""How parts of a work go over workers that are taken one by one, as a cluster has room for them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import ResourceError
from sentdist.execution.capacity import capacity, with_devices, with_gpu_type
from sentdist.execution.cluster.connection import connect, on_node, reason
from sentdist.execution.cluster.nodes import cluster_growth
from sentdist.execution.demand import Demand, workers_line
from sentdist.plan.sections import Runtime

PARTS_PER_WORKER = 4  # so that the workers end at about the same time
MIN_ROWS_PER_PART = 512  # fewer are made faster than they are handed out
LOSSES_PER_PART = 3  # how often a part may lose its process or node; then it is probably the part itself that kills them


TaskPart = TypeVar("TaskPart")
Answer = TypeVar("Answer")
PartIn = TypeVar("PartIn", contravariant=True)
AnswerOut = TypeVar("AnswerOut", covariant=True)


class PoolWorker(Protocol[PartIn, AnswerOut]):
    """A worker: made in a process of its own, then given one part after another. It loads what it needs with the first part."""

    def work(self, part: PartIn) -> AnswerOut:
        """Do one part; done twice (its first process was lost too late), it gives the same."""
        ...


def rows_per_part(num_rows: int, runtime: Runtime) -> int:
    """Rows of a part: few enough that all workers have several, at most those of a shard."""
    wanted = -(-num_rows // (runtime.most_workers * PARTS_PER_WORKER))
    return min(runtime.rows_per_shard, max(wanted, MIN_ROWS_PER_PART))


def with_cluster_devices(runtime: Runtime) -> tuple[Runtime, str]:
    """The runtime with its device decided on the cluster that RAY_ADDRESS names, and for people over how many workers, on what, what lies
    idle and why.

    Raises:
        ResourceError: no cluster, or one that cannot hold so many workers.
    """
    connect()
    nodes = with_gpu_type(cluster_growth().nodes, runtime)
    decided = with_devices(runtime, nodes)
    capacity(decided, nodes)
    return decided, workers_line(runtime, decided, nodes)


def over_workers(
    worker: Callable[..., PoolWorker[TaskPart, Answer]],
    arguments: tuple[object, ...],
    parts: Iterable[TaskPart],
    *,
    demand: Demand,
    where: str,
    ahead_per_worker: float = math.inf,
) -> Iterator[tuple[TaskPart, Answer]]:
    """Each part with what a worker made of it, as it comes; parts are drawn as workers become free.

    No worker waits for another: it begins when there is room for it and gets parts only once it lives, so that one worker can do
    all of them; it holds its CPUs while it works, and goes when no part is left. Whoever calls this must reserve nothing, or it would hold
    what its own workers wait for. A part whose process or node is lost goes to another worker.

    where: what is being made, for people. ahead_per_worker: at least 1; so many parts for each worker are drawn, at most, from the oldest
    that is missing on: fewer answers come before their turn, for who must take them in the order of the parts. A worker that finds nothing
    to do then does the oldest one, too, and the first answer counts: a slow worker delays the others by no more than a part, once for each
    that it is given.

    Raises:
        ResourceError: a part lost its worker again and again.
        Exception: what a worker raised, as it raised it.
    """
    pool: _Pool[TaskPart, Answer] = _Pool(worker, arguments, parts, demand=demand, where=where, most_open=ahead_per_worker * demand.workers)
    try:
        yield from pool.answers()
    finally:
        pool.close()


@dataclass(kw_only=True, eq=False)
class _Task(Generic[TaskPart]):
    """A part, how many workers it has lost, and how many are doing it."""

    number: int
    part: TaskPart
    num_lost: int = 0
    num_working: int = 0


class _Pool(Generic[TaskPart, Answer]):
    def __init__(
        self,
        worker: Callable[..., PoolWorker[TaskPart, Answer]],
        arguments: tuple[object, ...],
        parts: Iterable[TaskPart],
        *,
        demand: Demand,
        where: str,
        most_open: float,
    ) -> None:
        """most_open: parts from the oldest that is missing to the last that was drawn."""
        self._worker: Any = ray.remote(worker).options(**demand.options)
        self._arguments, self._where, self._most_open = arguments, where, most_open
        self._left = enumerate(parts)
        self._num_drawn, self._is_drawn_out = 0, False
        self._missing: dict[int, _Task[TaskPart]] = {}  # drawn and not answered, the oldest first
        self._tasks: deque[_Task[TaskPart]] = deque()  # of these, those that nobody is doing
        self._coming: dict[ray.ObjectRef, Any] = {}  # the answer that a worker is up -> the worker
        self._working: dict[ray.ObjectRef, tuple[Any, _Task[TaskPart]]] = {}
        self._free: deque[Any] = deque()  # workers that live and do nothing
        self._num_stillborn = 0  # workers in a row that died before their first part
        for _ in range(demand.workers):
            self._draw()

    def answers(self) -> Iterator[tuple[TaskPart, Answer]]:
        for _ in range(len(self._tasks)):
            self._start()
        while self._missing:  # who is still at work then does what another has done
            (ready,), _ = ray.wait([*self._coming, *self._working], num_returns=1)
            if ready in self._coming:
                self._welcome(ready)
            else:
                yield from self._done(ready)

    def close(self) -> None:
        for worker in [*self._coming.values(), *(worker for worker, _ in self._working.values()), *self._free]:
            ray.kill(worker)
        self._coming, self._working = {}, {}
        self._free.clear()

    def _start(self) -> None:
        worker = self._worker.remote(*self._arguments)
        self._coming[worker.__ray_ready__.remote()] = worker

    def _welcome(self, ready: ray.ObjectRef) -> None:
        worker = self._coming.pop(ready)
        try:
            ray.get(ready)
        except RayError as error:
            self._num_stillborn += 1
            if self._num_stillborn > LOSSES_PER_PART:
                raise self._lost("workers that die before they begin", error) from error
            self._start()
            return
        self._num_stillborn = 0
        self._free.append(worker)
        self._serve()

    def _done(self, ready: ray.ObjectRef) -> Iterator[tuple[TaskPart, Answer]]:
        worker, task = self._working.pop(ready)
        task.num_working -= 1
        is_missing = task.number in self._missing
        try:
            answer: Answer = ray.get(ready)
        except RayTaskError as error:
            ray.kill(worker)
            raise on_node(error) from None
        except RayError as error:
            ray.kill(worker)  # it may live on a node that is only out of reach
            task.num_lost += 1
            if is_missing and task.num_lost > LOSSES_PER_PART:
                raise self._lost(f"a part whose worker was lost {task.num_lost} times", error) from error
            if is_missing and not task.num_working:
                self._tasks.append(task)
            if self._tasks or not self._is_drawn_out:
                self._start()
            self._serve()
            return
        self._missing.pop(task.number, None)
        self._free.append(worker)
        self._serve()
        if is_missing:
            yield task.part, answer

    def _serve(self) -> None:
        """Give the workers that are free what there is to do. When no part is left, end them, and those that are still to come."""
        while self._free and (task := self._next_task()) is not None:
            worker = self._free.popleft()
            task.num_working += 1
            self._working[worker.work.remote(task.part)] = (worker, task)
        if self._free and self._is_drawn_out and not self._tasks:
            for needless in [*self._free, *self._coming.values()]:
                ray.kill(needless)
            self._coming = {}
            self._free.clear()

    def _next_task(self) -> _Task[TaskPart] | None:
        """What a free worker does. One that must wait for the oldest missing part does that, too: whoever has it may be slow."""
        if not self._tasks:
            self._draw()
        if self._tasks:
            return self._tasks.popleft()
        oldest = next(iter(self._missing.values()), None)
        return oldest if oldest is not None and not self._is_drawn_out and oldest.num_working == 1 else None

    def _draw(self) -> None:
        """One part more, if there is one and it is not too far ahead."""
        if self._is_drawn_out or self._num_drawn - next(iter(self._missing), self._num_drawn) >= self._most_open:
            return
        drawn = next(self._left, None)
        if drawn is None:
            self._is_drawn_out = True
            return
        number, part = drawn
        self._tasks.append(_Task(number=number, part=part))
        self._missing[number] = self._tasks[-1]
        self._num_drawn = number + 1

    def _lost(self, found: str, error: RayError) -> ResourceError:
        return ResourceError(
            where=self._where,
            found=f"{found} ({reason(error)})",
            expected="processes and nodes that live until a part is done",
            remedy="Look at `ray status` and at the nodes' memory; what is finished is kept.",
        )
