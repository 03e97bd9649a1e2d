"""Heartbeats: every process that works for a stage says every few seconds that it lives, and how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import ray
from ray._private.state import state  # which nodes drain is said nowhere else; Ray Train reads it here too

from sentdist.plan.stage import Stage

LOOK_S = 2.0  # between two looks whether the host is about to leave: notices come 30 s to 2 min ahead
LAST_LOOK_S = 0.5  # a look takes milliseconds; while the head is away it waits for it, and what is finished does not


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """One worker of one stage is alive. worker: its name within the stage; node: Ray's id of where it runs, empty outside Ray."""

    key: str
    worker: str
    node: str
    step: int | None = None
    num_steps: int | None = None
    is_last: bool = False  # it has ended in order


class HeartbeatSink(Protocol):
    """Takes heartbeats; says how often it wants them."""

    @property
    def every_s(self) -> float: ...

    def beat(self, heartbeat: Heartbeat) -> None:
        """Take one; neither waits nor raises."""
        ...


class Heartbeats:
    """Sends heartbeats from a thread of its own while the context is open,
    so that a process is known to be alive even in a step of ten minutes.

    node: Ray's id of where it runs, empty outside Ray.

    A process that is stopped or swapped out, or whose host is cut off, sends none. It also looks whether its host is about to leave.
    """

    def __init__(self, stage: Stage, sink: HeartbeatSink, *, worker: str = "", is_draining: Callable[[str], bool] | None = None) -> None:
        """is_draining: whether a node is about to leave; None: whatever Ray says."""
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
        """Note how far the work is; sent with the next heartbeat."""
        self._at = (step, num_steps)

    def is_leaving(self) -> bool:
        """Whether the host has been given notice to leave: preemption of a spot machine, `ray drain-node`, a cluster that shrinks.
        It never comes back."""
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
