"""Distribute parts of a job over a pool of workers, which start one by one as the cluster has room."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import ResourceError
from sentdist.recipe.sections import Runtime
from sentdist.run.capacity import capacity, with_devices, with_gpu_type
from sentdist.run.cluster.connection import connect, on_node, reason
from sentdist.run.cluster.nodes import cluster_growth
from sentdist.run.demand import Demand, workers_line

PARTS_PER_WORKER = 4  # so that the workers end at about the same time
MIN_ROWS_PER_PART = 512  # fewer are computed faster than they are sent
LOSSES_PER_PART = 3  # how often a part may lose its process or node; after more losses the part itself is probably the cause


TaskPart = TypeVar("TaskPart")
Answer = TypeVar("Answer")
PartIn = TypeVar("PartIn", contravariant=True)
AnswerOut = TypeVar("AnswerOut", covariant=True)


class PoolWorker(Protocol[PartIn, AnswerOut]):
    """A worker in a separate process, which gets one part after another. It loads what it needs with the first part."""

    def work(self, part: PartIn) -> AnswerOut:
        """Do one part; a second call (after a late loss of the first process) returns the same."""
        ...


def rows_per_part(num_rows: int, runtime: Runtime) -> int:
    """Return the rows of a part: few enough that all workers get several parts, at most those of a shard."""
    wanted = -(-num_rows // (runtime.most_workers * PARTS_PER_WORKER))
    return min(runtime.rows_per_shard, max(wanted, MIN_ROWS_PER_PART))


def with_cluster_devices(runtime: Runtime) -> tuple[Runtime, str]:
    """Connect to the cluster that RAY_ADDRESS names; return the runtime with its device, and a line on workers, devices and idle GPUs.

    Raises:
        ResourceError: no cluster, or too few resources.
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
    """Yield each part with a worker's answer, in the order of the answers; draw parts as workers become free.

    No worker waits for another: each begins when there is room and gets parts once it runs, so that one worker can do all parts; it
    holds its CPUs until no part is left. The caller must reserve nothing, or its workers would wait for what it holds. A part whose
    process or node is lost goes to another worker.

    Args:
        where: name of the job, for messages.
        ahead_per_worker: at least 1; how many parts for each worker may be drawn from the oldest missing one on, for a caller that needs
            the order of the parts. A worker without a new part then does the oldest one too, and the first answer counts: a slow
            worker delays the others by at most one part, once for each part that it gets.

    Raises:
        ResourceError: a part lost its worker repeatedly.
        Exception: a worker raised it.
    """
    pool: _Pool[TaskPart, Answer] = _Pool(worker, arguments, parts, demand=demand, where=where, most_open=ahead_per_worker * demand.workers)
    try:
        yield from pool.answers()
    finally:
        pool.close()


@dataclass(kw_only=True, eq=False)
class _Task(Generic[TaskPart]):
    """A part, how many workers it has lost, and how many work on it."""

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
        """most_open: largest number of parts from the oldest missing one to the last drawn one."""
        self._worker: Any = ray.remote(worker).options(**demand.options)
        self._arguments, self._where, self._most_open = arguments, where, most_open
        self._left = enumerate(parts)
        self._num_drawn, self._is_drawn_out = 0, False
        self._missing: dict[int, _Task[TaskPart]] = {}  # drawn and not answered, the oldest first
        self._tasks: deque[_Task[TaskPart]] = deque()  # of these, those without a worker
        self._coming: dict[ray.ObjectRef, Any] = {}  # the answer that a worker is up -> the worker
        self._working: dict[ray.ObjectRef, tuple[Any, _Task[TaskPart]]] = {}
        self._free: deque[Any] = deque()  # idle workers
        self._num_stillborn = 0  # workers in a row that died before their first part
        for _ in range(demand.workers):
            self._draw()

    def answers(self) -> Iterator[tuple[TaskPart, Answer]]:
        for _ in range(len(self._tasks)):
            self._start()
        while self._missing:  # workers that are still busy afterwards repeat parts that are done
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
        """Give free workers parts. When no part is left, end them, and those that are starting."""
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
        """The next part for a free worker. If it must wait for the oldest missing part, it does that too: its worker may be slow."""
        if not self._tasks:
            self._draw()
        if self._tasks:
            return self._tasks.popleft()
        oldest = next(iter(self._missing.values()), None)
        return oldest if oldest is not None and not self._is_drawn_out and oldest.num_working == 1 else None

    def _draw(self) -> None:
        """Draw one more part, if there is one and it is not too far ahead."""
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
            remedy="Check `ray status` and the nodes' memory; what is finished is kept.",
        )
