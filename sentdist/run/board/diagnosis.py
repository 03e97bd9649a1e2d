"""Send heartbeats of workers, and word notices of work that hangs: what waits for which resources; `watchdog.py` applies them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

import ray
from ray._private.state import state  # the only source of draining nodes; Ray Train reads it here too

from sentdist.recipe.stage import Stage
from sentdist.run.cluster.nodes import Node
from sentdist.run.demand import Demand

LOOK_S = 2.0  # between two looks whether the host is about to leave: notices come 30 s to 2 min ahead
LAST_LOOK_S = 0.5  # a look takes milliseconds; while the head is away it waits for it, and what is finished does not


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """One worker of a stage is alive. worker: its name within the stage. node: Ray's ID of its node, empty outside Ray."""

    key: str
    worker: str
    node: str
    step: int | None = None
    num_steps: int | None = None
    is_last: bool = False  # it has ended in order


class HeartbeatSink(Protocol):
    """Takes heartbeats every `every_s` seconds."""

    @property
    def every_s(self) -> float: ...

    def beat(self, heartbeat: Heartbeat) -> None:
        """Take a heartbeat; neither wait nor raise."""
        ...


class Heartbeats:
    """Sends heartbeats from a thread while the context is open, also during a step of ten minutes; checks if its host is about to leave.

    A process that is stopped or swapped out, or whose host is cut off, sends none. node: Ray's ID of its node, empty outside Ray.
    """

    def __init__(self, stage: Stage, sink: HeartbeatSink, *, worker: str = "", is_draining: Callable[[str], bool] | None = None) -> None:
        """is_draining: whether a node is about to leave; None asks Ray."""
        self._key, self._sink, self._worker = stage.key, sink, worker
        self.node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        self._at: tuple[int | None, int | None] = (None, None)
        self._is_draining = is_draining or _is_draining
        self._is_leaving = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="sentdist-heartbeats", daemon=True)

    def __enter__(self) -> Heartbeats:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(LAST_LOOK_S)
        if error is None:  # a rank that only loses its peers goes with what took them: it is known to have been here
            self._send(is_last=True)

    def report_step(self, step: int, num_steps: int) -> None:
        """Note the current step; sent with the next heartbeat."""
        self._at = (step, num_steps)

    def is_leaving(self) -> bool:
        """Return True once the host got notice to leave: a preempted spot machine, `ray drain-node`, a shrinking cluster."""
        return self._is_leaving

    def _beat(self) -> None:
        sent_at = float("-inf")
        while True:
            if time.monotonic() - sent_at >= self._sink.every_s:
                self._send()
                sent_at = time.monotonic()
            if not self._is_leaving:
                self._is_leaving = self._is_draining(self.node)
            if self._is_over.wait(min(LOOK_S, self._sink.every_s)):
                return

    def _send(self, *, is_last: bool = False) -> None:
        step, num_steps = self._at
        self._sink.beat(Heartbeat(key=self._key, worker=self._worker, node=self.node, step=step, num_steps=num_steps, is_last=is_last))


def _is_draining(node: str) -> bool:
    if not node:
        return False
    try:
        return node in state.get_draining_nodes()
    except Exception:  # the head does not answer just now (errors of many kinds); heartbeats go on
        return False


STANDSTILL_S = 60.0  # time without progress after which work is reported
SLOWEST_S = 600.0  # largest time between two lines about the same stage, which come more and more rarely
STEPS_LATE = 5  # a step is late after this many times the longest time between two steps


@dataclass(frozen=True, kw_only=True)
class Host:
    """A living node of the cluster."""

    node: str  # Ray's id
    address: str
    offers: Node


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """Resources of a cluster. may_have: (CPUs, GPUs) that an autoscaler may extend it to; None without autoscaler."""

    hosts: tuple[Host, ...]
    free_cpus: float
    free_gpus: float
    may_have: tuple[float, float] | None = None

    @property
    def cpus(self) -> float:
        return sum(host.offers.cpus for host in self.hosts)

    @property
    def gpus(self) -> float:
        return sum(host.offers.gpus for host in self.hosts)

    def address(self, node: str) -> str:
        """Return the address of a living node, by Ray's ID."""
        return next((host.address for host in self.hosts if host.node == node), "that is not known")


@dataclass(frozen=True, kw_only=True)
class LastHeartbeat:
    """Time and node of a worker's last heartbeat."""

    at: float
    node: str  # Ray's id


@dataclass(frozen=True, kw_only=True)
class ActiveStage:
    """A stage whose inputs are finished. All times are on the watcher's clock."""

    key: str
    kind: str
    label: str
    demand: Demand
    since: float  # when its inputs were finished, or its last attempt was lost
    heartbeats: Mapping[str, LastHeartbeat] = field(default_factory=dict)  # by worker, without workers that ended in order
    step: int | None = None
    num_steps: int | None = None
    moved_at: float | None = None  # when its step last changed
    longest_s: float = 0.0  # longest time between two changes of its step

    @property
    def place(self) -> str:
        """Its step as a phrase; "" if unknown."""
        return "" if self.step is None else f"step {self.step}/{self.num_steps}"


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A sentence about a stage that hangs."""

    stage: ActiveStage
    sentence: str


def notices(stages: Iterable[ActiveStage], cluster: ClusterState, now: float, *, patience_s: float = STANDSTILL_S) -> list[Notice]:
    """Return the notices due now, regardless of earlier ones.

    Work that waits while other work of the same board goes on is not mentioned, unless it no longer fits on the cluster.
    """
    stages = [_without_lost_hosts(stage, cluster) for stage in stages]
    found = [Notice(stage=stage, sentence=sentence) for stage in stages if (sentence := _stands(stage, cluster, now, patience_s))]
    waiting = [stage for stage in stages if not stage.heartbeats and now - stage.since >= patience_s]
    unfit = [stage for stage in waiting if not _fits(stage.demand, cluster)]
    if not unfit and not any(stage.heartbeats for stage in stages):
        unfit = waiting
    if unfit:
        others = f"; so do {len(unfit) - 1} others" if len(unfit) > 1 else ""
        found.append(Notice(stage=unfit[0], sentence=waits_for(unfit[0].demand, cluster) + others))
    return found


def waits_for(demand: Demand, cluster: ClusterState) -> str:
    """Return a sentence on the resources that a stage waits for and those of the cluster."""
    cpus = f"{demand.enough} × {demand.num_cpus:g} CPUs"
    parts = [f"waits for {cpus}, the cluster has {cluster.cpus:g} of which {cluster.free_cpus:g} are free"]
    if demand.num_gpus:
        kind = f" {demand.gpu_type}" if demand.gpu_type else ""
        parts.append(
            f"and for {demand.enough} × {demand.num_gpus:g}{kind} GPUs, it has {cluster.gpus:g} of which {cluster.free_gpus:g} are free"
        )
    waiting = " ".join(parts)
    if _fits(demand, cluster):
        return waiting
    wanted_cpus, wanted_gpus = demand.enough * demand.num_cpus, demand.enough * demand.num_gpus
    if cluster.may_have is not None and cluster.may_have[0] >= wanted_cpus and cluster.may_have[1] >= wanted_gpus:
        return f"{waiting}; the autoscaler may bring it to {cluster.may_have[0]:g} CPUs and {cluster.may_have[1]:g} GPUs, and is asked to"
    return f"{waiting}; it goes on when hosts join (`ray start --address …`), or stop it and submit it again with fewer workers"


def lost_with(host: Host, stages: Iterable[ActiveStage]) -> str:
    """Return a phrase on a lost host and the stages that ran on it."""
    lost = [f"{stage.kind} {stage.label}" + (f" at {stage.place}" if stage.place else "") for stage in stages if _is_on(stage, host)]
    return f"lost, and with it {', '.join(lost)}" if lost else "lost; nothing of this store ran on it"


def hosts_of(stage: ActiveStage, cluster: ClusterState) -> str:
    """Return the addresses of a stage's workers."""
    return ", ".join(sorted({cluster.address(heartbeat.node) for heartbeat in stage.heartbeats.values()}))


def _is_on(stage: ActiveStage, host: Host) -> bool:
    return any(heartbeat.node == host.node for heartbeat in stage.heartbeats.values())


def _without_lost_hosts(stage: ActiveStage, cluster: ClusterState) -> ActiveStage:
    """A worker group that lost a host has no workers left: Ray Train ends the others, too."""
    living = {host.node for host in cluster.hosts}
    heartbeats = {name: heartbeat for name, heartbeat in stage.heartbeats.items() if not heartbeat.node or heartbeat.node in living}
    if len(heartbeats) < len(stage.heartbeats) and stage.demand.way == "group":
        heartbeats = {}
    if len(heartbeats) == len(stage.heartbeats):
        return stage
    return replace(stage, heartbeats=heartbeats, since=max([stage.since, *(heartbeat.at for heartbeat in stage.heartbeats.values())]))


def _stands(stage: ActiveStage, cluster: ClusterState, now: float, patience_s: float) -> str | None:
    """Why a stage with workers hangs, or None."""
    last = f"; last at {stage.place}" if stage.place else ""
    silent = {name: heartbeat for name, heartbeat in stage.heartbeats.items() if now - heartbeat.at >= patience_s}
    if silent:
        name, heartbeat = max(silent.items(), key=lambda item: now - item[1].at)
        who = f" of {name}" if name else ""
        return f"no sign of life{who} for {now - heartbeat.at:.0f} s{last} on host {cluster.address(heartbeat.node)}"
    if stage.moved_at is None or not stage.heartbeats:
        return None
    stands_s = now - stage.moved_at
    if stands_s >= max(patience_s, STEPS_LATE * stage.longest_s):
        return f"no step for {stands_s:.0f} s, though its processes live{last} on host {hosts_of(stage, cluster)}"
    return None


def _fits(demand: Demand, cluster: ClusterState) -> bool:
    """Whether it would fit on the empty cluster."""
    return sum(demand.workers_on(host.offers) for host in cluster.hosts) >= demand.enough
