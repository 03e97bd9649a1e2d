"""A trial that is to run, as the conductor gives it out."""

from __future__ import annotations

from dataclasses import dataclass

from sentdist.plan.stages import Train
from sentdist.plan.suggestions import Suggestion, suggestion_text


@dataclass(frozen=True, kw_only=True)
class ToRun:
    """A trial to run. shares: those of its training that it has still to come to, in order."""

    number: int
    method: str
    suggestion: Suggestion
    train: Train
    shares: tuple[float, ...]

    @property
    def name(self) -> str:
        """Number, method and suggestion, as a person reads them."""
        return f"{self.number} {self.method} ({suggestion_text(self.suggestion)})"
