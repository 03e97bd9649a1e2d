"""What is said of work that does not move, as tables: who waits for what, which worker is silent, which host went."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.run.board.diagnosis import ActiveStage, ClusterState, Heartbeat, Heartbeats, Host, LastHeartbeat, notices
from sentdist.run.board.events import StageEvent
from sentdist.run.board.watchdog import Watchdog
from sentdist.run.cluster.nodes import Node
from sentdist.run.demand import Demand
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
        ({"demand": POOL}, ONE, "waits for 1 × 1 CPUs, the cluster has 1 of which 1 are free"),  # one worker is enough
        ({"demand": TASK}, BOTH,
         f"waits for 1 × 4 CPUs, the cluster has 2 of which 0 are free and for 1 × 1 GPUs, it has 0 of which 0 are free{JOIN}"),
        ({"heartbeats": alive, **MOVING}, BOTH, None),
        ({"heartbeats": _heartbeats(990.0, 930.0), **MOVING}, BOTH, "no sign of life of rank 1 for 70 s; last at step 60/240 on host 10.0.0.2"),
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


def test_a_pulse_notices_that_its_host_is_about_to_leave() -> None:
    sink, draining = BeatSink(0.01), [False]
    with Heartbeats(STAGE, sink, is_draining=lambda node: draining[0]) as heartbeats:
        assert not heartbeats.is_leaving()
        draining[0] = True
        wait_for(heartbeats.is_leaving, what="the notice")
        draining[0] = False
        seen = len(sink.beats)
        wait_for(lambda: len(sink.beats) > seen + 2, what="more beats")
        assert heartbeats.is_leaving(), "a host that got notice does not come back"
