"""What is reported of a sweep while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.errors import duration
from sentdist.execution.board.events import StageEvent
from sentdist.execution.plan_facts import SweepProgress, progress_of
from sentdist.plan.stages import Train
from tests.support.planning import plan_of, small_recipe


def _event(key: str, what: Any, *, kind: str = "train", **values: Any) -> StageEvent:
    return StageEvent(key=key, kind=kind, label=f"label-{key}", what=what, at=0.0, **values)


class Sweep(SweepProgress):
    """Of three stages, with a clock of its own."""

    def __init__(self) -> None:
        self.passed_s = 100.0
        super().__init__({"a": 3.0, "b": 6.0, "bank": 1.0}, clock=lambda: self.passed_s)


def test_the_time_left_is_reported_after_the_first_training_by_the_work_that_is_left() -> None:
    progress = Sweep()
    progress.passed_s += 5
    assert "left" not in progress.line(_event("bank", "finished", kind="bank", seconds=5.0))
    progress.passed_s += 35
    assert progress.line(_event("a", "finished", seconds=35.0)).endswith("done in 35.0 s, about 60 s left")  # 4 of 10 in 40 s
    progress.passed_s += 30
    progress.line(_event("b", "step", step=1, num_steps=2))
    assert (progress.share, progress.seconds_left) == (pytest.approx(0.7), pytest.approx(30.0))
    assert progress.line(_event("b", "finished", seconds=60.0)).endswith("done in 60.0 s")


def test_a_training_weighs_more_than_what_only_encodes() -> None:
    plan = plan_of(small_recipe(methods={"one": {"objective": {"name": "info_nce"}}}))
    missing = frozenset(stage.key for stage in plan.stages)
    progress = progress_of(plan, missing)
    assert progress.total == len(missing)
    (train,) = (stage for stage in plan.stages if isinstance(stage, Train))
    progress.line(_event(train.key, "finished", seconds=1.0))
    trained = 10_000 // 64 * 64 * 3  # sentences, each worth three that are only encoded: the pairs of STS-B; a corpus takes a moment
    assert progress.share == pytest.approx(3 * trained / (3 * trained + 2 * 1379 + 1))


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
