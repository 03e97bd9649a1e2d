"""Watch stages in flight by their heartbeats, count lost attempts, and estimate times by device. The caller passes the time."""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sentdist.errors import ArtifactLost, ResourceError, SentdistError, named
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Rung, Train
from sentdist.run.board.diagnosis import (
    SLOWEST_S,
    STANDSTILL_S,
    ActiveStage,
    ClusterState,
    Heartbeat,
    Host,
    LastHeartbeat,
    hosts_of,
    lost_with,
    notices,
)
from sentdist.run.board.events import StageEvent
from sentdist.run.cluster.connection import PROCESS_LOST, cause_of, reason
from sentdist.run.demand import Demand
from sentdist.run.training.checkpoints import newest_step
from sentdist.store.store import ArtifactStore


@dataclass(kw_only=True)
class _Watched:
    """A stage in flight. before: heartbeats of the last attempt if that was lost; the loss of its host is often noticed later."""

    active: ActiveStage
    every_s: float  # seconds between two notices
    noticed_at: float | None = None  # time of the last one
    lost_host: str | None = None
    before: Mapping[str, LastHeartbeat] = field(default_factory=dict)

    @property
    def was(self) -> ActiveStage:
        """The stage with the heartbeats of its last workers."""
        return self.active if self.active.heartbeats else replace(self.active, heartbeats=self.before)


class Watchdog:
    """Reports work that makes no progress, from the stages in flight and their heartbeats. Times are seconds of one clock."""

    def __init__(self, patience_s: float = STANDSTILL_S) -> None:
        self._patience_s = patience_s
        self._watched: dict[str, _Watched] = {}
        self._cluster = ClusterState(hosts=(), free_cpus=0.0, free_gpus=0.0)

    def follow(self, ready: Sequence[tuple[Stage, Demand]], now: float) -> None:
        """Watch these stages, which are in flight and whose inputs are finished, and no others."""
        keys = {stage.key for stage, _ in ready}
        self._watched = {key: watched for key, watched in self._watched.items() if key in keys}
        for stage, demand in ready:
            if stage.key not in self._watched:
                active = ActiveStage(key=stage.key, kind=stage.kind, label=stage.label, demand=demand, since=now)
                self._watched[stage.key] = _Watched(active=active, every_s=self._patience_s)

    def follows(self, key: str) -> bool:
        """Return True if it watches this stage."""
        return key in self._watched

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Note that a worker lives or has ended in order; ignore stages that are not watched."""
        watched = self._watched.get(heartbeat.key)
        if watched is None:
            return
        active = watched.active
        heartbeats = {name: last for name, last in active.heartbeats.items() if name != heartbeat.worker}
        if not heartbeat.is_last:
            heartbeats[heartbeat.worker] = LastHeartbeat(at=now, node=heartbeat.node)
        watched.active = _moved(replace(active, heartbeats=heartbeats, since=now), heartbeat, now)

    def begins_again(self, key: str, now: float) -> None:
        """Note that an attempt at a stage was lost with its workers."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.before = watched.active.heartbeats or watched.before
            watched.active = replace(watched.active, heartbeats={}, since=now, moved_at=None, longest_s=0.0)

    def look(self, cluster: ClusterState, now: float) -> list[StageEvent]:
        """Return the notices due now: hosts that joined or were lost, and stages that hang."""
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
        """Return an event "resumed" completed with the training's host and the one that it lost; others unchanged."""
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
        living = {host.node for host in cluster.hosts}
        gone = [host for host in before if host.node not in living]
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


class GroupLostError(Exception):
    """A worker group ended too early. origin: a worker's error, perhaps only that it lost another, or Ray's error for a lost worker."""

    def __init__(self, origin: BaseException) -> None:
        super().__init__(origin)
        self.origin = origin


LOSSES = (*PROCESS_LOST, GroupLostError)
MOST_ANNOUNCED = 5  # hosts lost after notice in a row without progress; a training could go on forever like that


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Losses of a stage since its last progress: a training on preemptible machines ends if it advances between two losses."""

    max_failures: int  # losses tolerated without progress
    num_lost: int = 0
    num_announced: int = 0  # losses of hosts after notice, which are not the training's fault; MOST_ANNOUNCED are tolerated
    step: int = 0  # step of the newest checkpoint; 0 without one

    def after_loss(self, step: int | None, *, was_announced: bool = False) -> Attempts:
        """Return the attempts after one more loss. step: of the newest checkpoint, where the next attempt begins."""
        before = Attempts(max_failures=self.max_failures) if (step or 0) > self.step else self
        return replace(
            before,
            num_lost=before.num_lost + (not was_announced),
            num_announced=before.num_announced + was_announced,
            step=max(self.step, step or 0),
        )

    @property
    def are_over(self) -> bool:
        """True if the stage is given up."""
        return self.num_lost > self.max_failures or self.num_announced > self._most_announced

    @property
    def _most_announced(self) -> int:
        return max(MOST_ANNOUNCED, self.max_failures)

    @property
    def next_one(self) -> str:
        """Where the next attempt begins, as a phrase."""
        return f"goes on from its checkpoint of step {self.step}" if self.step else "starts over"

    def error(self, where: str, cause: BaseException) -> ResourceError:
        """Return the error of a stage that is given up."""
        since = f"after its checkpoint of step {self.step}" if self.step else "before its first checkpoint"
        if self.num_lost <= self.max_failures:
            return ResourceError(
                where=where,
                found=f"that a host of it was given notice to leave {self.num_announced} times {since} ({reason(cause)})",
                expected=f"at most {self._most_announced} of these losses without progress",
                remedy="Use hosts that stay longer, or set a shorter runtime.checkpoint_every_s. Submit again: it goes on where it was.",
            )
        times = "once" if self.num_lost == 1 else f"{self.num_lost} times"
        return ResourceError(
            where=where,
            found=f"that its process or host was lost {times} {since} ({reason(cause)})",
            expected=f"at most {self.max_failures} losses without progress (runtime.max_failures)",
            remedy="Check `ray status` and the nodes' memory. Submit again: it goes on where it was.",
        )


def lost_to(loss: BaseException) -> BaseException:
    """Return the error that ended a process or group, from Ray's error."""
    found = cause_of(loss)
    return found.origin if isinstance(found, GroupLostError) else loss


def may_be_a_lost_peer(error: Exception, demand: Demand) -> bool:
    """Return True if an error in a group may only mean that a worker is gone; the board then decides on another attempt."""
    return demand.way != "task" and not isinstance(error, SentdistError)


def retry_of(stage: Stage, attempts: Attempts, loss: BaseException) -> StageEvent:
    """Return the event of a loss after which the stage is tried again."""
    return StageEvent.of(stage, "retry", message=f"its process or host was lost ({reason(loss)}); {attempts.next_one}")


def end_of(stage: Stage, error: BaseException) -> StageEvent:
    """Return the event of an error that ends a stage. A lost input is not a failure: the caller requests the stage again."""
    if isinstance(error, ArtifactLost):
        return StageEvent.of(stage, "lost", message=str(error))
    return StageEvent.of(stage, "failed", message=named(error))


def checkpoint_step(store: ArtifactStore, stage: Stage) -> int:
    """Return the step from which a stage would resume; 0 without a checkpoint."""
    return (newest_step(store, stage) or 0) if isinstance(stage, Train | Rung) else 0


class Speeds:
    """Median seconds of finished stages by kind ("train", "bank", …) and device ("NVIDIA A100-SXM4-40GB", …).

    Medians, because stages of one kind differ in size, and only the speeds of devices are compared.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # device -> kind -> sorted

    def note(self, kind: str, device: str, seconds: float) -> None:
        """Note the seconds of a finished stage."""
        bisect.insort(self._seconds[device][kind], seconds)

    def expected_s(self, kind: str, device: str) -> float | None:
        """Return the expected seconds of a stage on a device; None if unknown.

        A kind that never ended there is scaled from another device by the ratio of other kinds on both.
        """
        here = self._medians(device)
        if kind in here:
            return here[kind]
        for other in sorted(self._seconds, key=lambda other: -len(self._seconds[other][kind])):
            there = self._medians(other)
            ratios = [here[known] / there[known] for known in here if there.get(known)]
            if kind in there and ratios:
                return there[kind] * statistics.median(ratios)
        return None

    def _medians(self, device: str) -> dict[str, float]:
        return {kind: seconds[len(seconds) // 2] for kind, seconds in self._seconds[device].items() if seconds}
