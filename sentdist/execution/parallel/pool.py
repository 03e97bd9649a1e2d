"""How parts of a work go over workers that are taken one by one, as a cluster has room for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import ResourceError
from sentdist.execution.cluster.connection import connect
from sentdist.execution.cluster.growth import cluster_growth
from sentdist.execution.cluster.ray_errors import cause_of, reason
from sentdist.execution.gpu_types import with_gpu_type
from sentdist.execution.resources import Demand, capacity, with_devices, workers_line
from sentdist.plan.runtime import Runtime

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
) -> Iterator[tuple[TaskPart, Answer]]:
    """Each part with what a worker made of it, as it comes; parts are drawn as workers become free.

    No worker waits for another: it begins when there is room for it and gets parts only once it lives, so that one worker can do
    all of them; it holds its CPUs while it works, and goes when no part is left. Whoever calls this must reserve nothing, or it would hold
    what its own workers wait for. A part whose process or node is lost goes to another worker.

    where: what is being made, for people.

    Raises:
        ResourceError: a part lost its worker again and again.
        Exception: what a worker raised, as it raised it.
    """
    pool: _Pool[TaskPart, Answer] = _Pool(worker, arguments, parts, demand=demand, where=where)
    try:
        yield from pool.answers()
    finally:
        pool.close()


@dataclass(kw_only=True)
class _Task(Generic[TaskPart]):
    """A part, and how many workers it has lost."""

    part: TaskPart
    num_lost: int = 0


class _Pool(Generic[TaskPart, Answer]):
    def __init__(
        self,
        worker: Callable[..., PoolWorker[TaskPart, Answer]],
        arguments: tuple[object, ...],
        parts: Iterable[TaskPart],
        *,
        demand: Demand,
        where: str,
    ) -> None:
        self._worker: Any = ray.remote(worker).options(**demand.options)
        self._arguments, self._where = arguments, where
        self._left = iter(parts)
        self._tasks = deque(_Task(part=part) for part in islice(self._left, demand.workers))  # drawn or given back, and not being done
        self._coming: dict[ray.ObjectRef, Any] = {}  # the answer that a worker is up -> the worker
        self._working: dict[ray.ObjectRef, tuple[Any, _Task[TaskPart]]] = {}
        self._num_stillborn = 0  # workers in a row that died before their first part

    def answers(self) -> Iterator[tuple[TaskPart, Answer]]:
        for _ in range(len(self._tasks)):
            self._start()
        while self._coming or self._working:
            (ready,), _ = ray.wait([*self._coming, *self._working], num_returns=1)
            if ready in self._coming:
                self._welcome(ready)
            else:
                yield from self._done(ready)

    def close(self) -> None:
        for worker in [*self._coming.values(), *(worker for worker, _ in self._working.values())]:
            ray.kill(worker)
        self._coming, self._working = {}, {}

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
        self._give(worker)

    def _done(self, ready: ray.ObjectRef) -> Iterator[tuple[TaskPart, Answer]]:
        worker, task = self._working.pop(ready)
        try:
            answer: Answer = ray.get(ready)
        except RayTaskError as error:
            ray.kill(worker)
            raise cause_of(error) from None
        except RayError as error:
            ray.kill(worker)  # it may live on a node that is only out of reach
            task.num_lost += 1
            if task.num_lost > LOSSES_PER_PART:
                raise self._lost(f"a part whose worker was lost {task.num_lost} times", error) from error
            self._tasks.append(task)
            self._start()
            return
        self._give(worker)
        yield task.part, answer

    def _give(self, worker: Any) -> None:
        """Give a free worker its next part. When no part is left, end it, and the workers that are still to come."""
        if not self._tasks:
            self._tasks.extend(_Task(part=part) for part in islice(self._left, 1))
        if self._tasks:
            task = self._tasks.popleft()
            self._working[worker.work.remote(task.part)] = (worker, task)
            return
        for needless in [worker, *self._coming.values()]:
            ray.kill(needless)
        self._coming = {}

    def _lost(self, found: str, error: RayError) -> ResourceError:
        return ResourceError(
            where=self._where,
            found=f"{found} ({reason(error)})",
            expected="processes and nodes that live until a part is done",
            remedy="Look at `ray status` and at the nodes' memory; what is finished is kept.",
        )
