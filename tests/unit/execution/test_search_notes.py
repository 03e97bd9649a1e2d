"""What a search notes of its trials and asks of its store, when clocks differ and others are at work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.execution.searching import prices
from sentdist.plan.stage import Json, topological
from sentdist.plan.stages import to_share
from sentdist.stages.local import build_all
from sentdist.stages.rung_records import rung_score
from tests.support.tiny_data import write_data
from tests.support.tiny_search import RATES, pretended, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("ahead_s", [-60.0, 0.0, 60.0])
def test_what_a_trial_costs_does_not_hang_on_the_clocks_of_hosts(
    ahead_s: float, tmp_path: Path, data: Path, tiny_encoder_dir: Path
) -> None:
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=None, space=space, halving=None, budget={"sentences": 200}
    )
    conductor = pretended(planned, context, clock=lambda: time.time() + ahead_s)
    conductor.begin()
    paid = []
    while (trial := conductor.next()) is not None:
        build_all(topological((trial.train,)), context)
        conductor.arrive(trial.number, 1.0)
        paid.append(conductor.trial(trial.number).paid_sentences)
    assert paid == [144, 144], "the second one has spent the budget"


def test_a_rung_that_another_search_has_pruned_meanwhile_still_counts(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    """Two searches that share trainings: the rung is built once, and the one that prunes it removes it."""
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    both = []
    for name, keep in (("strict", 0.34), ("mild", 0.9)):
        halving: Json = {"rungs": [0.3, 1.0], "keep": keep}
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path, changes=ONLY | {"name": name}, samples=4, space=space, halving=halving
        )
        conductor = pretended(planned, context)
        conductor.begin()
        both.append(conductor)
    states = []
    for _ in range(4):
        trials = [conductor.next() for conductor in both]
        assert trials[0] is not None and trials[1] is not None and trials[0].train.key == trials[1].train.key
        build_all(topological((to_share(trials[0].train, 0.3),)), context)
        found = rung_score(trials[0].train, 0.3, context)
        for conductor, trial in zip(both, trials, strict=True):
            conductor.arrive(trial.number, 0.3, found)  # type: ignore[union-attr]
        states.append([conductor.trial(trial.number).state for conductor, trial in zip(both, trials, strict=True)])  # type: ignore[union-attr]
    assert ["pruned", "running"] in states and "failed" not in {one for pair in states for one in pair}


def test_a_speed_that_nobody_knows_is_not_asked_for_at_each_step(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(prices, "speed_of", lambda store, kind: asked.append(kind.kind))  # None: nothing is known
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=ONLY, space={"training.learning_rate": RATES}, budget={"hours": 1}
    )
    conductor = pretended(planned, context)
    conductor.begin()
    before = len(asked)
    for _ in range(100):
        assert conductor.hours_left is not None
    assert len(asked) - before <= 2, "each kind of stage once, at most"


def test_of_two_submissions_at_once_the_earlier_one_ends(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    """Else trials get each other's scores, for both give them the same numbers."""
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path)
    earlier, later = pretended(planned, context), pretended(planned, context)
    earlier.begin()
    assert earlier.next() is not None
    later.begin()
    with pytest.raises(StoreError, match="lines of another process"):
        earlier.next()
    earlier.stop()
    assert later.next() is not None
