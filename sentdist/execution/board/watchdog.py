"""What a board remembers of stages in flight: their heartbeats, and the notices given of them. It has no clock of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sentdist.execution.board.diagnosis import (
    SLOWEST_S,
    STANDSTILL_S,
    ActiveStage,
    ClusterState,
    Host,
    LastHeartbeat,
    hosts_of,
    lost_hosts,
    lost_with,
    notices,
)
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.heartbeats import Heartbeat
from sentdist.execution.demand import Demand
from sentdist.plan.stage import Stage


@dataclass(kw_only=True)
class _Watched:
    """What is known of a stage in flight.

    every_s, noticed_at: how rarely a notice is given of it, and when the last one was. before: the heartbeats of the last attempt, if
    that was lost; the loss of its host is often noticed later. lost_host: the host that it lost.
    """

    active: ActiveStage
    every_s: float
    noticed_at: float | None = None
    lost_host: str | None = None
    before: Mapping[str, LastHeartbeat] = field(default_factory=dict)

    @property
    def was(self) -> ActiveStage:
        """The stage with the heartbeats of its last workers."""
        return self.active if self.active.heartbeats else replace(self.active, heartbeats=self.before)


class Watchdog:
    """Reports work that makes no progress, from the stages in flight and their heartbeats. Times are those of one clock, in seconds."""

    def __init__(self, patience_s: float = STANDSTILL_S) -> None:
        self._patience_s = patience_s
        self._watched: dict[str, _Watched] = {}
        self._cluster = ClusterState(hosts=(), free_cpus=0.0, free_gpus=0.0)

    def follow(self, ready: Sequence[tuple[Stage, Demand]], now: float) -> None:
        """These stages are in flight and their inputs are finished; all others are over."""
        keys = {stage.key for stage, _ in ready}
        self._watched = {key: watched for key, watched in self._watched.items() if key in keys}
        for stage, demand in ready:
            if stage.key not in self._watched:
                active = ActiveStage(key=stage.key, kind=stage.kind, label=stage.label, demand=demand, since=now)
                self._watched[stage.key] = _Watched(active=active, every_s=self._patience_s)

    def follows(self, key: str) -> bool:
        """Whether it watches this stage."""
        return key in self._watched

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """A worker lives, or has ended in order. Of work that is not followed nothing is kept."""
        watched = self._watched.get(heartbeat.key)
        if watched is None:
            return
        active = watched.active
        heartbeats = {name: last for name, last in active.heartbeats.items() if name != heartbeat.worker}
        if not heartbeat.is_last:
            heartbeats[heartbeat.worker] = LastHeartbeat(at=now, node=heartbeat.node)
        watched.active = _moved(replace(active, heartbeats=heartbeats, since=now), heartbeat, now)

    def begins_again(self, key: str, now: float) -> None:
        """An attempt at a stage was lost, and its workers with it."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.before = watched.active.heartbeats or watched.before
            watched.active = replace(watched.active, heartbeats={}, since=now, moved_at=None, longest_s=0.0)

    def look(self, cluster: ClusterState, now: float) -> list[StageEvent]:
        """The lines that are due now: hosts that came and went, and what does not move."""
        events = self._changes(cluster)
        self._cluster = cluster
        stages = [watched.active for watched in self._watched.values()]
        for notice in notices(stages, cluster, now, patience_s=self._patience_s):
            watched = self._watched[notice.stage.key]
            if watched.noticed_at is None or now - watched.noticed_at >= watched.every_s:
                if watched.noticed_at is not None:
                    watched.every_s = min(2 * watched.every_s, max(SLOWEST_S, self._patience_s))
                watched.noticed_at = now
                events.append(StageEvent.of(notice.stage, "notice", message=notice.sentence))
        return events

    def completed(self, event: StageEvent) -> StageEvent:
        """An event of a training that goes on from a checkpoint, with the host where it does and the one that it lost."""
        watched = self._watched.get(event.key)
        if event.what != "resumed" or event.message is not None or watched is None:
            return event
        hosts = hosts_of(watched.active, self._cluster)
        lost, watched.lost_host = watched.lost_host, None
        message = f"{event.what_happened} on host {hosts}" if hosts else event.what_happened
        return replace(event, message=message if lost is None else f"host {lost} lost; {message}")

    def _changes(self, cluster: ClusterState) -> list[StageEvent]:
        before = self._cluster.hosts
        if not before:
            return []
        gone = lost_hosts(before, cluster)
        events = [_of_host(host, lost_with(host, [watched.was for watched in self._watched.values()])) for host in gone]
        for watched in self._watched.values():
            for host in gone:
                if any(heartbeat.node == host.node for heartbeat in watched.was.heartbeats.values()):
                    watched.lost_host = host.address
        known = {host.node for host in before}
        joined = [_of_host(host, "joined") for host in cluster.hosts if host.node not in known]
        return [*events, *joined]


def _moved(active: ActiveStage, heartbeat: Heartbeat, now: float) -> ActiveStage:
    if heartbeat.step is None or heartbeat.step == active.step:
        return active
    gap_s = 0.0 if active.moved_at is None else now - active.moved_at
    return replace(active, step=heartbeat.step, num_steps=heartbeat.num_steps, moved_at=now, longest_s=max(active.longest_s, gap_s))


def _of_host(host: Host, what: str) -> StageEvent:
    return StageEvent(key="", kind="host", label=host.address, what="notice", message=what)
