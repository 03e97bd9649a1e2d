"""Define events of stages and the line printed for each; keep a log of them for readers; report metrics for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from sentdist.errors import counted
from sentdist.recipe.stage import Stage
from sentdist.store.store import Artifact

if TYPE_CHECKING:
    from ray.util.metrics import Counter, Gauge

    from sentdist.learning.checkpoint import DevScore
    from sentdist.learning.loop import StepReport
    from sentdist.stages.train import TrainSession


What = Literal["started", "resumed", "checkpoint", "retry", "step", "dev", "finished", "lost", "failed"]

PRINT_EVERY = 0.1  # of a training: the fraction of steps between two lines


@dataclass(frozen=True, kw_only=True)
class StageEvent:
    """One thing that happened to one stage; a few hundred bytes."""

    key: str
    kind: str
    label: str
    what: What
    step: int | None = None
    num_steps: int | None = None
    num_workers: int | None = None  # if it may change
    loss: float | None = None  # nats, mean over the global batch
    sentences_per_s: float | None = None
    task: str | None = None
    score: float | None = None  # × 100
    is_best: bool = False
    seconds: float | None = None
    message: str | None = None
    at: float = field(default_factory=time.time)

    @classmethod
    def of(cls, stage: Stage, what: What, **facts: Any) -> StageEvent:
        """Return an event of a stage now."""
        return cls(key=stage.key, kind=stage.kind, label=stage.label, what=what, **facts)

    @property
    def line(self) -> str:
        """Stage and what happened, as a line."""
        return f"{self.kind:<6}  {self.label}  {self.what_happened}"

    @property
    def what_happened(self) -> str:
        """What happened, as a phrase."""
        done = f"step {self.step}/{self.num_steps}" if self.step is not None else ""
        match self.what:
            case "started":
                return "started"
            case "resumed":
                width = "" if self.num_workers is None else f" with {counted(self.num_workers, 'worker')}"
                return f"goes on from step {self.step} of {self.num_steps}{width}" if self.message is None else str(self.message)
            case "checkpoint":
                return f"{done}: {self.message}"
            case "retry":
                return str(self.message)
            case "step":
                speed = f", {self.sentences_per_s:.0f} sentences/s" if self.sentences_per_s else ""
                loss = "" if self.loss is None else f", loss {self.loss:.4f}"
                return f"{done}{loss}{speed}"
            case "dev":
                best = " (best so far)" if self.is_best else ""
                return f"{done}, {self.task} {self.score:.2f}{best}"
            case "finished":
                return f"done in {self.seconds:.1f} s"
            case "lost":
                return f"waits for an input that is built again: {self.message}"
            case "failed":
                return f"FAILED: {self.message}"


def progress_event(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> StageEvent | None:
    """Return the event to report for every tenth of a training, every dev score and every finished stage; None for other steps.

    The choice depends only on step numbers, so that it is the same after resuming from a checkpoint.
    """
    if isinstance(event, Artifact):
        return StageEvent.of(stage, "finished", seconds=event.record.seconds)
    from sentdist.learning.checkpoint import DevScore  # loaded: a training runs

    assert session is not None, "only trainings have steps"
    num_steps = session.schedule.num_steps
    if isinstance(event, DevScore):
        selection = session.stage.selection
        assert selection is not None, "a dev score needs a selection"
        is_best = session.progress.best_step == event.step
        return StageEvent.of(stage, "dev", step=event.step, num_steps=num_steps, task=selection.name, score=event.score, is_best=is_best)
    step = event.step + 1
    if step % max(1, round(num_steps * PRINT_EVERY)):
        return None
    speed = event.num_sentences / event.seconds.total if event.seconds.total else None
    return StageEvent.of(stage, "step", step=step, num_steps=num_steps, loss=event.loss, sentences_per_s=speed)


KEPT_EVENTS = 2000


class EventLog:
    """A log of numbered events, whose readers wait for the next one."""

    def __init__(self) -> None:
        self._kept: deque[StageEvent] = deque(maxlen=KEPT_EVENTS)
        self._news = asyncio.Condition()
        self.last_number = 0  # the number of the last event

    async def add(self, event: StageEvent) -> None:
        """Keep an event and wake the readers."""
        async with self._news:
            self._kept.append(event)
            self.last_number += 1
            self._news.notify_all()

    async def wake(self) -> None:
        """Have the readers check `is_over` again."""
        async with self._news:
            self._news.notify_all()

    async def after(self, since: int | None, *, is_over: Callable[[], bool]) -> tuple[list[StageEvent], int]:
        """Wait for events after number `since` (None: from now on), or until it is over; return them and the number of the last one."""
        since = self.last_number if since is None else since
        async with self._news:
            await self._news.wait_for(lambda: self.last_number > since or is_over())
            num_new = min(self.last_number - since, len(self._kept))
            return list(self._kept)[len(self._kept) - num_new :], self.last_number


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that a process of the cluster reports. labels: names of its Prometheus labels."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


SENTENCES = Metric(name="sentdist_sentences", kind="counter", meaning="Sentences trained on, by all workers together", labels=("kind",))
STAGES = Metric(name="sentdist_stages", kind="counter", meaning="What happened to stages", labels=("kind", "what"))
IN_FLIGHT = Metric(name="sentdist_stages_in_flight", kind="gauge", meaning="Stages being built or waiting for their inputs")
BANK_BYTES = Metric(name="sentdist_bank_bytes", kind="gauge", meaning="Bytes of banks in the object store")
COUNTED = ("started", "finished", "failed", "lost", "retry")  # values of `StageEvent.what`
METRICS = (SENTENCES, STAGES, IN_FLIGHT, BANK_BYTES)


def add(metric: Metric, amount: float = 1, **labels: str) -> None:
    """Add to a counter (takes a microsecond)."""
    if amount > 0:  # Ray refuses 0
        _counter(metric).inc(amount, tags=labels)


def show(metric: Metric, value: float) -> None:
    """Set the current value of a gauge for this process."""
    _gauge(metric).set(value)


@cache
def _counter(metric: Metric) -> Counter:
    from ray.util.metrics import Counter

    return Counter(metric.name, description=metric.meaning, tag_keys=metric.labels)


@cache
def _gauge(metric: Metric) -> Gauge:
    from ray.util.metrics import Gauge

    return Gauge(metric.name, description=metric.meaning, tag_keys=metric.labels)
