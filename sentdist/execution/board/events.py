"""Events of stages while they are built, and what is told of each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from sentdist.errors import counted

What = Literal["started", "resumed", "checkpoint", "notice", "retry", "step", "dev", "finished", "lost", "failed"]

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
    num_workers: int | None = None  # where it may change
    loss: float | None = None  # nats, mean over the global batch
    sentences_per_s: float | None = None
    task: str | None = None
    score: float | None = None  # × 100
    is_best: bool = False
    seconds: float | None = None
    message: str | None = None
    at: float = field(default_factory=time.time)

    @property
    def line(self) -> str:
        """The event as a line: stage, what happened."""
        return f"{self.kind:<6}  {self.label}  {self.what_happened}"

    @property
    def what_happened(self) -> str:
        """What happened."""
        done = f"step {self.step}/{self.num_steps}" if self.step is not None else ""
        match self.what:
            case "started":
                return "started" if self.message is None else f"started: {self.message}"
            case "resumed":
                width = "" if self.num_workers is None else f" with {counted(self.num_workers, 'worker')}"
                return f"goes on from step {self.step} of {self.num_steps}{width}" if self.message is None else str(self.message)
            case "checkpoint":
                return f"{done}: {self.message}"
            case "notice" | "retry":
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
