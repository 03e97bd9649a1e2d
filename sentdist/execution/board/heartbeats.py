"""Signs of life: every process that works for a stage says every few seconds that it lives, and how far it is."""

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


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One worker of one stage lives. worker: its name within the stage; node: Ray's id of where it runs, empty outside Ray."""

    key: str
    worker: str
    node: str
    step: int | None = None
    num_steps: int | None = None
    is_last: bool = False  # it has ended in order


class Listener(Protocol):
    """Who hears signs, and how often it wants them."""

    @property
    def every_s(self) -> float: ...

    def sign(self, sign: Sign) -> None:
        """Hear one; neither waits nor raises."""
        ...


class Pulse:
    """Gives signs from a thread of its own while the context is open, so that a process says that it lives even in a step of ten minutes.

    node: Ray's id of where it runs, empty outside Ray.

    A process that is stopped or swapped out, or whose host is cut off, gives none. Beside that it looks whether its host is about to leave.
    """

    def __init__(self, stage: Stage, listener: Listener, *, worker: str = "", is_draining: Callable[[str], bool] | None = None) -> None:
        """is_draining: whether a node is about to leave; None: whatever Ray says."""
        self._key, self._listener, self._worker = stage.key, listener, worker
        self.node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        self._at: tuple[int | None, int | None] = (None, None)
        self._is_draining = is_draining or _is_draining
        self._is_leaving = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="sentdist-pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()
        self._sign(is_last=True)

    def reach(self, step: int, num_steps: int) -> None:
        """Note how far the work is; told with the next sign."""
        self._at = (step, num_steps)

    def is_leaving(self) -> bool:
        """Whether the host has been told to go: a notice of a spot machine, `ray drain-node`, a cluster that shrinks. It never comes back."""
        return self._is_leaving

    def _beat(self) -> None:
        signed_at = float("-inf")
        while True:
            if time.monotonic() - signed_at >= self._listener.every_s:
                self._sign()
                signed_at = time.monotonic()
            if not self._is_leaving:
                self._is_leaving = self._is_draining(self.node)
            if self._is_over.wait(min(LOOK_S, self._listener.every_s)):
                return

    def _sign(self, *, is_last: bool = False) -> None:
        step, num_steps = self._at
        self._listener.sign(Sign(key=self._key, worker=self._worker, node=self.node, step=step, num_steps=num_steps, is_last=is_last))


def _is_draining(node: str) -> bool:
    if not node:
        return False
    try:
        return node in state.get_draining_nodes()
    except Exception:  # the head does not answer just now (errors of many kinds); a pulse goes on
        return False
