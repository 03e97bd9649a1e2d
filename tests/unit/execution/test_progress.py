"""What is reported of a sweep while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.errors import duration
from sentdist.execution.board.events import StageEvent
from sentdist.execution.plan_facts import SILENCE_S, SweepProgress, progress_of
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


def test_silence_is_broken_by_what_runs() -> None:
    progress = Sweep()
    assert progress.silence_line() is None
    progress.passed_s += SILENCE_S
    assert str(progress.silence_line()).endswith("[0/3]  processes are being started; nothing runs yet")
    assert progress.silence_line() is None, "once a time"
    progress.line(_event("a", "started"))
    progress.passed_s += 5
    progress.line(_event("a", "step", step=3, num_steps=10, loss=0.5))
    progress.line(_event("a", "dev", step=3, num_steps=10, score=80.0, task="stsb-dev"))
    progress.passed_s += SILENCE_S
    assert str(progress.silence_line()).endswith("still at work: train label-a (step 3/10, loss 0.5000, 25 s)")
    for key in ("a", "b", "bank"):
        progress.line(_event(key, "finished", seconds=1.0))
    progress.passed_s += SILENCE_S
    assert progress.silence_line() is None


def test_a_training_weighs_more_than_what_only_encodes() -> None:
    plan = plan_of(small_recipe(methods={"one": {"objective": {"name": "info_nce"}}}))
    missing = frozenset(stage.key for stage in plan.stages)
    progress = progress_of(plan, missing)
    assert progress.total == len(missing)
    (train,) = (stage for stage in plan.stages if isinstance(stage, Train))
    progress.line(_event(train.key, "finished", seconds=1.0))
    trained = 10_000 // 64 * 64 * 3  # sentences, each worth three that are only encoded: the pairs of STS-B; a corpus takes a moment
    assert progress.share == pytest.approx(3 * trained / (3 * trained + 2 * 1379 + 1))


def test_stages_of_one_label_are_distinguished_by_the_values_of_the_grid() -> None:
    """A label says batch size and seed, not each field that a grid may vary: all trainings of a sweep over rates read the same."""
    terms: Any = [{"weight": 1.0, "objective": {"name": "info_nce"}}, {"weight": 1.0, "objective": {"name": "triplet"}}]
    methods: Any = {
        "summed": {"objective": {"name": "sum", "terms": terms}},
        "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "select": False, "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]},
    }
    grid: Any = {"training.learning_rate": [1e-5, 2e-5], "methods.rcl.objective.temperature": [0.1, 0.2]}
    grid |= {f"methods.summed.objective.terms.{number}.weight": [0.5, 2.0] for number in range(2)}
    plan = plan_of(small_recipe(methods=methods, sweep=grid))
    progress = progress_of(plan, frozenset(stage.key for stage in plan.stages))
    lines = []
    for stage in plan.stages:
        shown = progress.line(StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="started", at=0.0))
        lines.append(shown[8:].partition("]  ")[2].removesuffix("  started"))
    assert len(set(lines)) == len(lines)
    entropy = {line[line.index("(") :] for line in lines if line.startswith("train   entropy")}
    assert entropy == {"(learning_rate=1e-05)", "(learning_rate=2e-05)"}, "shared by both temperatures"
    assert any(
        "learning_rate=1e-05" in line and "temperature=0.1)" in line.replace(", learning_rate", ")") for line in lines if "rcl" in line
    )
    assert any("0.weight=0.5, 1.weight=2" in line for line in lines), "two fields of one last word"
    assert not [line for line in lines if line.startswith("corpus") and "(" in line]


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
