"""What is said of work that does not move, as tables: who waits for what, which worker is silent, which host went."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sentdist.execution.board import diagnosis as heartbeats_module
from sentdist.execution.board.diagnosis import ActiveStage, ClusterState, Heartbeat, Heartbeats, Host, LastHeartbeat, notices
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.watchdog import Watchdog
from sentdist.execution.cluster.nodes import Node
from sentdist.execution.demand import Demand
from sentdist.plan.corpora.rows import RowsCorpus
from tests.support.waiting import wait_for

MOVING = {"step": 60, "num_steps": 240, "moved_at": 995.0, "longest_s": 1.0}
WAITS = "waits for 2 × 1 CPUs, the cluster has"
JOIN = "; it goes on when hosts join (`ray start --address …`), or stop it and submit it again with fewer workers"
GROUP = Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0)
POOL = Demand(way="pool", workers=2, num_cpus=1.0, num_gpus=0.0)
TASK = Demand(way="task", workers=1, num_cpus=4.0, num_gpus=1.0)
A, B = (Host(node=f"node-{letter}", address=f"10.0.0.{number}", offers=Node(cpus=1.0)) for number, letter in enumerate("ab", start=1))
BOTH = ClusterState(hosts=(A, B), free_cpus=0.0, free_gpus=0.0)
ONE = ClusterState(hosts=(A,), free_cpus=1.0, free_gpus=0.0)


def _piece(**fields: object) -> ActiveStage:
    return ActiveStage(**({"key": "k", "kind": "train", "label": "rcl", "demand": GROUP, "since": 0.0} | fields))  # type: ignore[arg-type]


def _heartbeats(*times: float) -> dict[str, LastHeartbeat]:
    return {f"rank {rank}": LastHeartbeat(at=at, node=host.node) for rank, (at, host) in enumerate(zip(times, (A, B), strict=False))}


STAGE = RowsCorpus(source="nli/triplets", source_revision="r")


def _reported(events: list[StageEvent]) -> list[str]:
    return [f"{event.kind} {event.label}: {event.what_happened}" for event in events]


def _followed(demand: Demand, cluster: ClusterState) -> Watchdog:
    dog = Watchdog()
    dog.look(cluster, 0.0)
    dog.follow([(STAGE, demand)], 0.0)
    return dog


def _hear(dog: Watchdog, now: float, *, step: int | None = None, nodes: tuple[str, ...] = (A.node, B.node)) -> None:
    for rank, node in enumerate(nodes):
        dog.on_heartbeat(Heartbeat(key=STAGE.key, worker=f"rank {rank}", node=node, step=step, num_steps=240), now)


class BeatSink:
    """Takes signs of life."""

    def __init__(self, every_s: float = 60.0) -> None:
        self.every_s, self.beats = every_s, list[Heartbeat]()

    def beat(self, heartbeat: Heartbeat) -> None:
        self.beats.append(heartbeat)


def test_what_is_said_of_one_piece_of_work() -> None:
    alive = _heartbeats(990.0, 990.0)
    said: tuple[tuple[dict[str, Any], ClusterState, str | None], ...] = (
        ({"since": 950.0}, BOTH, None),  # not for a minute yet
        ({}, BOTH, f"{WAITS} 2 of which 0 are free"),
        ({}, ONE, f"{WAITS} 1 of which 1 are free{JOIN}"),
        ({}, replace(ONE, may_have=(8.0, 0.0)), f"{WAITS} 1 of which 1 are free; the autoscaler may bring it to 8 CPUs and 0 GPUs, and is asked to"),
        ({}, replace(ONE, may_have=(1.0, 0.0)), f"{WAITS} 1 of which 1 are free{JOIN}"),
        ({"demand": POOL}, ONE, "waits for 1 × 1 CPUs, the cluster has 1 of which 1 are free"),  # one worker is enough
        ({"demand": TASK}, BOTH,
         f"waits for 1 × 4 CPUs, the cluster has 2 of which 0 are free and for 1 × 1 GPUs, it has 0 of which 0 are free{JOIN}"),
        ({"heartbeats": alive, **MOVING}, BOTH, None),
        ({"heartbeats": _heartbeats(990.0, 930.0), **MOVING}, BOTH, "no sign of life of rank 1 for 70 s; last at step 60/240 on host 10.0.0.2"),
        ({"heartbeats": _heartbeats(930.0, 920.0)}, BOTH, "no sign of life of rank 1 for 80 s on host 10.0.0.2"),  # the longer silent one
        ({"heartbeats": {"": LastHeartbeat(at=930.0, node="")}}, BOTH, "no sign of life for 70 s on host that is not known"),
        ({"heartbeats": alive, **MOVING, "moved_at": 900.0}, BOTH,
         "no step for 100 s, though its processes live; last at step 60/240 on host 10.0.0.1, 10.0.0.2"),
        ({"heartbeats": alive, **MOVING, "moved_at": 900.0, "longest_s": 30.0}, BOTH, None),  # its steps are slow ones
        ({"heartbeats": alive}, BOTH, None),  # loads what it needs: there is no step yet
        ({"heartbeats": _heartbeats(900.0, 900.0), **MOVING}, ONE, f"{WAITS} 1 of which 1 are free{JOIN}"),  # host B went, and with it the group
        ({"heartbeats": _heartbeats(980.0, 980.0), **MOVING}, ONE, None),  # and 20 s ago
        ({"demand": POOL, "heartbeats": _heartbeats(930.0, 930.0), **MOVING}, ONE,  # a pool's other workers go on
         "no sign of life of rank 0 for 70 s; last at step 60/240 on host 10.0.0.1"),
    )  # fmt: skip
    for fields, cluster, reported in said:
        assert [notice.sentence for notice in notices([_piece(**fields)], cluster, 1000.0)] == ([] if reported is None else [reported])


def test_work_that_waits_its_turn_is_not_spoken_of_unless_nothing_moves_or_it_can_never_run() -> None:
    alive = _piece(key="alive", heartbeats=_heartbeats(990.0, 990.0), **MOVING)
    waiting = [_piece(key=key) for key in ("one", "two", "three")]
    assert notices([alive, *waiting], BOTH, 1000.0) == []
    (only,) = notices(waiting, BOTH, 1000.0)
    assert only.sentence.endswith("0 are free; so do 2 others")
    (never,) = notices([alive, *waiting, _piece(key="large", demand=TASK)], BOTH, 1000.0)
    assert never.stage.key == "large"


def test_a_line_comes_after_a_minute_and_then_more_and_more_rarely() -> None:
    dog = _followed(GROUP, ONE)
    said_at = []
    for now in range(0, 3600, 5):
        dog.follow([(STAGE, GROUP)], float(now))  # the board says every few seconds what is in flight
        said_at += [now] if dog.look(ONE, float(now)) else []
    assert said_at[:5] == [60, 120, 240, 480, 960]
    assert max(later - earlier for earlier, later in pairwise(said_at)) == 600
    dog.follow([], 3600.0)
    assert not dog.follows(STAGE.key)


def test_a_host_that_goes_and_the_training_that_goes_on() -> None:
    dog = _followed(GROUP, BOTH)
    _hear(dog, 10.0, step=60)
    (lost,) = _reported(dog.look(ONE, 15.0))
    assert lost == f"host 10.0.0.2: lost, and with it corpus {STAGE.label} at step 60/240"
    assert dog.look(ONE, 70.0 - 1) == []
    (waits,) = _reported(dog.look(ONE, 75.0))
    assert f"{WAITS} 1 of which 1 are free" in waits
    c = replace(B, node="node-c", address="10.0.0.3")
    assert _reported(dog.look(replace(BOTH, hosts=(A, c)), 80.0)) == ["host 10.0.0.3: joined"]
    _hear(dog, 90.0, step=55, nodes=(A.node, c.node))
    resumed = StageEvent(key=STAGE.key, kind="train", label="rcl", what="resumed", step=55, num_steps=240)
    assert dog.completed(resumed).what_happened == "host 10.0.0.2 lost; goes on from step 55 of 240 on host 10.0.0.1, 10.0.0.3"
    assert dog.completed(resumed).what_happened == "goes on from step 55 of 240 on host 10.0.0.1, 10.0.0.3"  # the loss is reported once
    assert dog.look(replace(BOTH, hosts=(A, c)), 95.0) == []


def test_a_worker_that_stops_and_one_that_ends() -> None:
    dog = _followed(POOL, BOTH)
    _hear(dog, 0.0)
    dog.on_heartbeat(Heartbeat(key=STAGE.key, worker="rank 0", node=A.node, is_last=True), 50.0)  # a shard that is done
    assert dog.look(BOTH, 59.0) == []
    assert "no sign of life of rank 1 for 60 s on host 10.0.0.2" in _reported(dog.look(BOTH, 60.0))[0]
    dog.on_heartbeat(Heartbeat(key=STAGE.key, worker="rank 1", node=B.node), 400.0)
    assert dog.look(BOTH, 410.0) == [], "one that has ended in order is never called silent"


def test_a_step_is_late_by_the_slowest_of_this_attempt() -> None:
    dog = _followed(GROUP, BOTH)
    for now, step in ((0.0, 1), (30.0, 2), (35.0, 3), (130.0, 3)):
        _hear(dog, now, step=step)
    assert dog.look(BOTH, 134.0) == [], "one took 30 s: five times as long is not over"
    _hear(dog, 180.0, step=3)
    assert "no step for 150 s, though its processes live" in _reported(dog.look(BOTH, 185.0))[0]
    dog.begins_again(STAGE.key, 200.0)
    for now, step in ((210.0, 4), (211.0, 5), (350.0, 5)):
        _hear(dog, now, step=step)
    assert "no step for 144 s, though its processes live" in _reported(dog.look(BOTH, 355.0))[0]


def test_a_pulse_says_that_it_lives_how_far_it_is_and_when_it_ends() -> None:
    sink = BeatSink()
    with Heartbeats(STAGE, sink, worker="rank 3") as heartbeats:
        wait_for(lambda: bool(sink.beats), what="the first sign")
        heartbeats.report_step(7, 9)
    assert [(one.worker, one.step, one.is_last) for one in sink.beats] == [("rank 3", None, False), ("rank 3", 7, True)]
    lost = BeatSink()
    with pytest.raises(RuntimeError, match="closed"), Heartbeats(STAGE, lost):
        wait_for(lambda: bool(lost.beats), what="the first sign")
        raise RuntimeError("connection closed by peer")
    assert [one.is_last for one in lost.beats] == [False], "a rank that only loses its peers goes with what took them"


def test_a_head_that_does_not_say_who_leaves_stops_no_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> dict[str, int]:
        raise RuntimeError("GCS is away")

    assert not heartbeats_module._is_draining("")
    monkeypatch.setattr(heartbeats_module.state, "get_draining_nodes", ask)
    assert not heartbeats_module._is_draining(A.node)
    monkeypatch.setattr(heartbeats_module.state, "get_draining_nodes", lambda: {A.node: 0})
    assert heartbeats_module._is_draining(A.node) and not heartbeats_module._is_draining(B.node)


def test_a_pulse_notices_that_its_host_is_about_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats and looks are each as often as they are to be."""
    sink, draining = BeatSink(0.01), [False]
    with Heartbeats(STAGE, sink, is_draining=lambda node: draining[0]) as heartbeats:
        assert not heartbeats.is_leaving()
        draining[0] = True
        wait_for(heartbeats.is_leaving, what="the notice")
        draining[0] = False
        seen = len(sink.beats)
        wait_for(lambda: len(sink.beats) > seen + 2, what="more beats")
        assert heartbeats.is_leaving(), "a host that got notice does not come back"
    rare, looks = BeatSink(600.0), list[str]()
    monkeypatch.setattr(heartbeats_module, "LOOK_S", 0.01)
    with Heartbeats(STAGE, rare, is_draining=lambda node: bool(looks.append(node))):
        wait_for(lambda: len(looks) > 3, what="looks")
    assert len(rare.beats) == 2, "the first and the last"
