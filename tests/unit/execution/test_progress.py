"""What is reported of a sweep while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.errors import duration
from sentdist.execution.board.events import StageEvent
from sentdist.execution.plan_facts import SILENCE_S, SweepProgress, progress_of
from sentdist.plan.stages import Train
from tests.support.planning import plan_of, small_recipe


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _event(key: str, what: Any, *, kind: str = "train", **values: Any) -> StageEvent:
    return StageEvent(key=key, kind=kind, label=f"label-{key}", what=what, at=0.0, **values)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> SweepProgress:
    return SweepProgress({"a": 3.0, "b": 6.0, "bank": 1.0}, clock=clock)


def test_a_line_counts_the_stages_that_are_finished(progress: SweepProgress) -> None:
    assert progress.line(_event("a", "started"))[8:] == "  [0/3]  train   label-a  started"
    assert "  [1/3]  train   label-a  done in 5.0 s" in progress.line(_event("a", "finished", seconds=5.0))
    assert "[1/3]" in progress.line(_event("a", "finished", seconds=5.0)), "two drivers may tell the same"
    assert "[1/3]" in progress.line(_event("of another sweep", "finished", seconds=5.0))


def test_the_time_left_is_reported_after_the_first_training_by_the_work_that_is_left(progress: SweepProgress, clock: Clock) -> None:
    clock.now += 5
    assert "left" not in progress.line(_event("bank", "finished", kind="bank", seconds=5.0))
    clock.now += 35
    assert progress.line(_event("a", "finished", seconds=35.0)).endswith("done in 35.0 s, about 60 s left")  # 4 of 10 in 40 s
    clock.now += 30
    progress.line(_event("b", "step", step=1, num_steps=2))
    assert progress.share == pytest.approx(0.7)
    assert progress.seconds_left == pytest.approx(30.0)
    assert progress.line(_event("b", "finished", seconds=60.0)).endswith("done in 60.0 s")


def test_silence_is_broken_by_what_runs(progress: SweepProgress, clock: Clock) -> None:
    assert progress.silence_line() is None
    clock.now += SILENCE_S
    line = progress.silence_line()
    assert line is not None and line.endswith("[0/3]  processes are being started; nothing runs yet")
    assert progress.silence_line() is None, "once a time"
    progress.line(_event("a", "started"))
    clock.now += 5
    progress.line(_event("a", "step", step=3, num_steps=10, loss=0.5))
    progress.line(_event("a", "dev", step=3, num_steps=10, score=80.0, task="stsb-dev"))
    clock.now += SILENCE_S
    line = progress.silence_line()
    assert line is not None and line.endswith("still at work: train label-a (step 3/10, loss 0.5000, 25 s)")
    for key in ("a", "b", "bank"):
        progress.line(_event(key, "finished", seconds=1.0))
    clock.now += SILENCE_S
    assert progress.silence_line() is None


def test_what_failed_or_waits_for_an_input_runs_no_longer(progress: SweepProgress) -> None:
    for what in ("failed", "lost"):
        progress.line(_event("a", "started"))
        assert list(progress.running) == ["a"]
        progress.line(_event("a", what, message="why"))
        assert not progress.running and not progress.num_finished


def test_a_training_weighs_more_than_what_only_encodes() -> None:
    plan = plan_of(small_recipe(methods={"one": {"objective": {"name": "info_nce"}}}))
    missing = frozenset(stage.key for stage in plan.stages)
    progress = progress_of(plan, missing)
    assert progress.total == len(missing)
    (train,) = (stage for stage in plan.stages if isinstance(stage, Train))
    progress.line(_event(train.key, "finished", seconds=1.0))
    trained = 10_000 // 64 * 64 * 3  # sentences, each worth three that are only encoded: the pairs of STS-B; a corpus takes a moment
    assert progress.share == pytest.approx(3 * trained / (3 * trained + 2 * 1379 + 1))


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (45, "45 s"), (150, "2 min"), (5340, "89 min"), (9000, "2.5 h")])
def test_durations_are_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_stages_of_one_label_are_distinguished_by_the_values_of_the_grid() -> None:
    """A label says batch size and seed, not each field that a grid may vary: all trainings of a sweep over rates read the same."""
    methods: Any = {
        "fine_tuned": {"objective": {"name": "info_nce"}},
        "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "select": False, "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]},
    }
    rates: Any = {"training.learning_rate": [1e-5, 2e-5], "methods.rcl.objective.temperature": [0.1, 0.2]}
    plan = plan_of(small_recipe(methods=methods, sweep=rates))
    progress = progress_of(plan, frozenset(stage.key for stage in plan.stages))
    lines = {}
    for stage in plan.stages:
        shown = progress.line(StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="started", at=0.0))
        lines[stage.key] = shown[8:].partition("]  ")[2].removesuffix("  started")
    assert len(set(lines.values())) == len(lines)
    entropy = {line for key, line in lines.items() if line.startswith("train   entropy")}
    assert {line[line.index("(") :] for line in entropy} == {"(learning_rate=1e-05)", "(learning_rate=2e-05)"}, (
        "shared by both temperatures"
    )
    rcl = {line[line.index("(") :] for line in lines.values() if line.startswith("train   rcl")}
    assert "(learning_rate=1e-05, temperature=0.1)" in rcl or "(temperature=0.1, learning_rate=1e-05)" in rcl
    (corpus,) = [line for line in lines.values() if line.startswith("corpus")]
    assert "(" not in corpus


def test_two_fields_of_one_last_word_are_distinguished_by_the_word_before_it() -> None:
    terms: Any = [{"weight": 1.0, "objective": {"name": "info_nce"}}, {"weight": 1.0, "objective": {"name": "triplet"}}]
    weights: Any = {f"methods.fine_tuned.objective.terms.{number}.weight": [0.5, 2.0] for number in range(2)}
    plan = plan_of(small_recipe(methods={"fine_tuned": {"objective": {"name": "sum", "terms": terms}}}, sweep=weights))
    progress = progress_of(plan, frozenset(stage.key for stage in plan.stages))
    lines = [progress.line(StageEvent(key=one.key, kind=one.kind, label=one.label, what="started", at=0.0)) for one in plan.stages]
    assert [line for line in lines if "train " in line and "(0.weight=0.5, 1.weight=2)" in line], lines
