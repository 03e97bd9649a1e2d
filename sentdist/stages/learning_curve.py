"""Record the learning curve of a training and the seconds of each part of a step."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from sentdist.learning.loop import StepReport, StepSeconds
from sentdist.recipe.stage import Json


@dataclass(kw_only=True)
class Curve:
    """Points every `log_every` steps (means over them), and total seconds of each part of a step."""

    log_every: int
    history: list[dict[str, Json]] = field(default_factory=list)
    last_loss: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    num_sentences: int = 0
    _recent: list[StepReport] = field(default_factory=list)

    def add(self, report: StepReport) -> None:
        self.last_loss = report.loss
        self.num_sentences += report.num_sentences
        for part in ("data", "forward", "loss", "backward", "optimizer", "waiting"):
            self.seconds[part] = self.seconds.get(part, 0.0) + getattr(report.seconds, part)
        self._recent.append(report)
        if (report.step + 1) % self.log_every == 0 or report.step == 0:  # fixed places, so that a resumed curve has the same points
            self._point()

    def _point(self) -> None:
        last = self._recent[-1]
        took = sum(report.seconds.total for report in self._recent)
        self.history.append(
            {
                "step": last.step + 1,
                "loss": sum(report.loss for report in self._recent) / len(self._recent),
                "grad_norm": last.grad_norm,
                "lr": last.lr,
                "sentences_per_s": round(sum(report.num_sentences for report in self._recent) / took, 1) if took else None,
                "at": round(time.time(), 2),
            }
        )
        self._recent.clear()

    def since_last_point(self) -> str:
        """Return the steps after the last point, as text for a checkpoint."""
        return json.dumps([asdict(report) for report in self._recent])

    def go_on(self, since_last_point: str) -> None:
        """Restore the steps of `since_last_point` from a checkpoint."""
        recent = [StepReport(**one | {"seconds": StepSeconds(**one["seconds"])}) for one in json.loads(since_last_point)]
        self._recent[:] = recent

    def summary(self) -> dict[str, Json]:
        total = sum(self.seconds.values())
        parts: dict[str, Json] = {f"seconds.{part}": round(seconds, 2) for part, seconds in self.seconds.items()}
        return {"sentences_per_s": round(self.num_sentences / total, 1) if total else None, **parts}


def history_lines(history: Sequence[dict[str, Json]]) -> str:
    """Return the history as JSON lines."""
    return "".join(json.dumps(point) + "\n" for point in history)
