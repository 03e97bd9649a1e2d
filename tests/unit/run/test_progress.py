"""What is reported of a sweep while it runs."""

from __future__ import annotations

from typing import Any

from sentdist.errors import duration
from sentdist.run.events import StageEvent
from sentdist.run.progress import SweepProgress


def _event(key: str, what: Any, *, kind: str = "train", **values: Any) -> StageEvent:
    return StageEvent(key=key, kind=kind, label=f"label-{key}", what=what, at=0.0, **values)


class Sweep(SweepProgress):
    """Of three stages, with a clock of its own."""

    def __init__(self) -> None:
        self.passed_s = 100.0
        super().__init__({"a": 3.0, "b": 6.0, "bank": 1.0}, clock=lambda: self.passed_s)


def test_an_event_is_a_line_that_counts_the_stages_that_are_finished() -> None:
    progress = Sweep()
    assert progress.line(_event("a", "started"))[8:] == "  [0/3]  train   label-a  started"
    step = _event("a", "step", step=5, num_steps=50, loss=0.5, sentences_per_s=99.6)
    assert progress.line(step).endswith("step 5/50, loss 0.5000, 100 sentences/s")
    dev = _event("a", "dev", step=5, num_steps=50, task="stsb-dev", score=81.234, is_best=True)
    assert progress.line(dev).endswith("step 5/50, stsb-dev 81.23 (best so far)")
    for what in ("failed", "lost"):
        progress.line(_event("a", "started"))
        assert list(progress.running) == ["a"]
        assert "why" in progress.line(_event("a", what, message="why"))
        assert not progress.running and not progress.num_finished
    assert "  [1/3]  train   label-a  done in 5.0 s" in progress.line(_event("a", "finished", seconds=5.0))
    assert "[1/3]" in progress.line(_event("a", "finished", seconds=5.0)), "two drivers may tell the same"
    assert "[1/3]" in progress.line(_event("of another sweep", "finished", seconds=5.0))
    assert list(map(duration, (0.4, 45, 150, 5340, 9000))) == ["0 s", "45 s", "2 min", "89 min", "2.5 h"]
