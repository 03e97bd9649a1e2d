"""What a search notes of its trials and asks of its store, when clocks differ and others are at work."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from sentdist.errors import DataError, StoreError
from sentdist.execution.searching import budgets as prices
from sentdist.execution.searching.conductor import Conductor, drop_left, keep_curve_of
from sentdist.plan.stage import Json, topological
from sentdist.plan.stages import Train, to_share
from sentdist.stages.local import build_all
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.store.searches import RungReached, SearchTrial, TrialState, read_pruned_curve
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
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
    for dev in (90.0, 80.0, 85.0, 82.0):  # not as the digits of this processor fall
        trials = [conductor.next() for conductor in both]
        assert trials[0] is not None and trials[1] is not None and trials[0].train.key == trials[1].train.key
        build_all(topological((to_share(trials[0].train, 0.3),)), context)
        trained = rung_score(trials[0].train, 0.3, context)
        assert trained is not None
        found = dataclasses.replace(trained, dev=dev, last=dev)
        for conductor, trial in zip(both, trials, strict=True):
            conductor.arrive(trial.number, 0.3, found)  # type: ignore[union-attr]
        states.append([conductor.trial(trial.number).state for conductor, trial in zip(both, trials, strict=True)])  # type: ignore[union-attr]
    assert ["pruned", "running"] in states and "failed" not in {one for pair in states for one in pair}


def _train_with_rungs(store: ArtifactStore) -> Train:
    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    for share in (0.1, 0.3):
        with store.staged() as folder:
            (folder / "checkpoint").mkdir()
            (folder / "checkpoint" / "history.jsonl").write_text(f"until {share}")
            store.commit(to_share(train, share), folder, seconds=1.0, runtime={}, environment={}, results={})
    return train


@pytest.mark.parametrize(
    ("share", "step", "dev", "last", "seconds"),
    [(0.1, 2, 60.0, 60.0, 20.0), (0.2, 2, 60.0, 60.0, 20.0), (0.3, 4, 60.0, 50.0, 40.0), (1.0, 10, 80.0, 70.0, 100.0)],
)
def test_how_a_training_stood_at_a_share_is_read_from_what_went_further(
    share: float, step: int, dev: float, last: float, seconds: float, tmp_path: Path
) -> None:
    context: Any = SimpleNamespace(store=ArtifactStore(tmp_path), shares=(0.1, 0.2, 0.3, 1.0))
    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    assert rung_score(train, share, context) is None
    lines = [{"step": 2 * place, "dev_score": score} for place, score in enumerate((60.0, 50.0, None, 80.0, 70.0), start=1)]
    with context.store.staged() as folder:
        (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"step": 1, "loss": 0.5}, *lines]))
        results: dict[str, Json] = {"num_steps_planned": 10, "num_steps": 10, "seconds_total": 100.0}
        context.store.commit(train, folder, seconds=30.0, runtime={}, environment={}, results=results)
    sentences = step * train.training.batch_size * train.corpus.num_columns
    assert rung_score(train, share, context) == RungScore(step=step, dev=dev, last=last, sentences=sentences, seconds=seconds)


def test_the_next_rung_above_a_share_tells_how_a_training_stood_there(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(store=ArtifactStore(tmp_path), shares=(0.1, 0.3, 0.6))
    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    history: list[Json] = [[2, 60.0], [4, 50.0], [6, None]]
    for share, num_scores, seconds in ((0.3, 2, 40.0), (0.6, 3, 120.0)):  # the second part ran on a slower machine
        with context.store.staged() as folder:
            (folder / "file").write_text("a rung")
            results: dict[str, Json] = {"num_steps_planned": 10, "dev_history": history[:num_scores], "seconds_total": seconds}
            context.store.commit(to_share(train, share), folder, seconds=1.0, runtime={}, environment={}, results=results)
    assert [(found.step, found.seconds) for share in context.shares if (found := rung_score(train, share, context))] == [
        (2, 20.0), (4, 40.0), (6, 120.0),
    ]  # fmt: skip


def test_the_curve_of_a_pruned_training_is_that_of_its_highest_rung(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    train = _train_with_rungs(store)
    keep_curve_of(store, train, (1.0, 0.3, 0.1))
    assert read_pruned_curve(store, train.key) == "until 0.3"


@pytest.mark.parametrize(
    ("state", "share", "kept"), [("pruned", 0.3, []), ("finished", 1.0, []), ("running", 0.3, [0.3]), ("failed", 0.1, [0.1, 0.3])]
)
def test_of_rungs_that_a_killed_submission_left_those_stay_from_which_a_trial_goes_on(
    state: TrialState, share: float, kept: list[float], tmp_path: Path
) -> None:
    store = ArtifactStore(tmp_path)
    train = _train_with_rungs(store)
    rung = RungReached(number=3, share=share, key=train.key, step=1, dev=50.0, last_dev=50.0, sentences=1, seconds=1.0)
    trial = SearchTrial(number=3, method="one", suggestion={}, train=train.key, state=state, rungs=(rung,))
    drop_left(store, {3: trial}, {3: train}, (0.1, 0.3, 1.0))
    assert [one for one in (0.1, 0.3) if store.has(to_share(train, one))] == kept


def test_finalists_came_to_their_end_and_of_equals_the_earlier_is_chosen(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=5, space=space, halving={"rungs": [0.5, 1.0], "keep": 0.5}, finalists=3
    )
    conductor = pretended(planned, context)
    conductor.begin()

    def comes_to(dev: float, *shares: float) -> None:
        trial = conductor.next()
        assert trial is not None
        for share in shares:
            conductor.arrive(trial.number, share, RungScore(step=1, dev=dev, last=dev, sentences=1, seconds=1.0))

    comes_to(50.0, 0.5, 1.0)
    comes_to(60.0, 0.5)
    conductor.fail(1, DataError(where="here", found="this", expected="that", remedy="None."))
    comes_to(55.0, 0.5)
    comes_to(60.0, 0.5, 1.0)
    comes_to(60.0, 0.5, 1.0)
    assert [conductor.trial(number).state for number in range(5)] == ["finished", "failed", "pruned", "finished", "finished"]
    assert [(one.place, one.number) for one in conductor.choose()] == [(1, 3), (2, 4), (3, 0)]


def test_what_a_killed_submission_built_is_paid_for_by_the_next_which_asks_for_the_rest(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path
) -> None:
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=1, space=space, halving={"rungs": [0.5, 1.0], "keep": 0.5}
    )
    killed = pretended(planned, context)
    killed.begin()
    trial = killed.next()
    assert trial is not None and trial.shares == (0.5, 1.0)
    build_all(topological((to_share(trial.train, 0.5),)), context)
    again = pretended(planned, context)
    again.begin()
    assert again.next() == trial and again.arrive(0, 0.5)
    assert again.trial(0).paid_sentences == 4 * 24, "its half ends with a dev score, after four steps of six"
    later = pretended(planned, context)
    later.begin()
    rest = later.next()
    assert rest is not None and rest.shares == (1.0,)


def test_who_suggests_learns_what_became_of_all_that_was_suggested(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    reported: list[tuple[str, float | None]] = []

    class Suggester:
        rates: ClassVar[list[Json]] = [0.001, 0.002, 0.003, 0.004, 0.001]  # the last one again

        def ask(self, name: str) -> dict[str, Json] | None:
            return {"training.learning_rate": self.rates.pop(0)} if self.rates else None

        def tell(self, name: str, score: float, *, rung: int) -> None: ...

        def end(self, name: str, score: float | None, *, is_pruned: bool = False) -> None:
            reported.append((name, score))

    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    planned, context = tiny_search(
        tiny_encoder_dir,
        data,
        tmp_path,
        changes=ONLY,
        samples=2,
        space=space,
        halving={"rungs": [0.5, 1.0], "keep": 0.5},
        prefer_cheaper=True,
    )
    conductor = Conductor(planned, context, lambda axes: Suggester(), print_line=lambda line: None)
    conductor.begin()
    trial = conductor.next()
    assert trial is not None and trial.suggestion == {"training.learning_rate": 0.001}, "all cost the same"
    assert reported == [("fine_tuned-1", None), ("fine_tuned-2", None), ("fine_tuned-3", None)], "they are no trials"
    conductor.arrive(0, 0.5, RungScore(step=1, dev=50.0, last=50.0, sentences=1, seconds=1.0))
    conductor.fail(0, DataError(where="here", found="this", expected="that", remedy="None."))
    assert conductor.next() is None
    assert reported[3:] == [("fine_tuned-0", None), ("fine_tuned-4", None)], "what has failed has no score, nor has the same once more"


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
