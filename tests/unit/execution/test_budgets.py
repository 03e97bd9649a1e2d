"""What trials and finalists cost, and what a budget has for them, counted by hand; nothing is trained."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sentdist.errors import RecipeError
from sentdist.execution.searching import budgets as prices
from sentdist.execution.searching.budgets import Finalists, Forecasts, StoreBefore, check_budget, spent_on
from sentdist.plan.stage import Json, Stage, topological
from sentdist.plan.stages import Bank, Train, to_share
from sentdist.plan.suggestions import PlannedSearch
from sentdist.stages.rung_records import RungScore
from sentdist.store.record import Record
from sentdist.store.searches import Finalist, FinalistsChosen
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import write_data
from tests.support.tiny_search import pretended, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None, "seeds": [0, 1, 2, 3, 4, 5]}
SPACE: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
TRAINED = 144  # sentences of a training of one epoch: three columns, six batches of eight


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def tenth_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what a training takes; what only encodes takes no time."""
    monkeypatch.setattr(prices, "speed_of", lambda store, kind: TRAINED / 360.0 if kind.kind == "train" else 1e12)


@pytest.mark.usefixtures("tenth_of_an_hour")
@pytest.mark.parametrize(
    ("hours", "finalists", "at_once", "left"),
    [
        (2.0, 1, 1, 1.5),  # the five other seeds
        (0.6, 1, 1, 0.3),  # half is for trials
        (0.3, 1, 1, 0.2),  # twice the time of the first trial
        (0.15, 1, 1, 0.15),  # all is for it
        (4.0, 2, 1, 3.0),
        (2.0, 1, 2, 1.75),
        (2.0, 1, 100, 1.9),  # no faster than one training
    ],
)
def test_what_is_kept_for_finalists(
    hours: float, finalists: int, at_once: int, left: float, tmp_path: Path, data: Path, tiny_encoder_dir: Path
) -> None:
    planned, context = tiny_search(
        tiny_encoder_dir,
        data,
        tmp_path,
        changes=ONLY,
        samples=None,
        budget={"hours": hours},
        halving=None,
        finalists=finalists,
        space=SPACE,
    )
    conductor = pretended(planned, context, clock=lambda: 0.0, at_once=at_once)
    assert conductor.hours_left == pytest.approx(left)


@pytest.mark.parametrize(("reached", "left"), [(None, 0.0), (0.3, 0.25)])
def test_the_first_trial_comes_to_its_end_beyond_the_budget(
    reached: float | None, left: float, tmp_path: Path, data: Path, tiny_encoder_dir: Path
) -> None:
    """A minute was spent on few rows and no trial finished: it was cut off just before its end."""
    now, said = [0.0], list[str]()
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=None, budget={"hours": 1.0}, space=SPACE)
    conductor = pretended(planned, context, clock=lambda: now[0], print_line=said.append)
    conductor.begin()
    trial = conductor.next()
    assert trial is not None
    if reached is not None:
        conductor.arrive(trial.number, reached, RungScore(step=2, dev=50.0, last=50.0, sentences=43, seconds=9.0))
    now[0] = 1.25 * 3600
    assert conductor.hours_left == pytest.approx(left)
    assert conductor.next() is None and conductor.reason == "the budget of 60 min is spent", "no other trial begins"
    if reached is None:
        assert conductor.choose() == ()
        assert said[-1] == "Within the budget no trial has come to 30 % of its training. With a larger budget the search goes on from here."
        return
    conductor.arrive(trial.number, 1.0, RungScore(step=6, dev=60.0, last=60.0, sentences=144, seconds=20.0))
    assert any("has come to its end 15 min after the budget's" in line for line in said), said
    assert conductor.hours_left == 0.0 and len(conductor.choose()) == 1


@pytest.mark.usefixtures("tenth_of_an_hour")
@pytest.mark.parametrize(
    ("enough", "too_little"), [({"sentences": TRAINED}, {"sentences": TRAINED - 1}), ({"hours": 0.1}, {"hours": 0.0999})]
)
def test_a_budget_for_just_one_trial_is_enough(
    enough: dict[str, Json], too_little: dict[str, Json], tmp_path: Path, data: Path, tiny_encoder_dir: Path
) -> None:
    for budget, outcome in ((enough, nullcontext()), (too_little, pytest.raises(RecipeError, match="for a trial of each method"))):
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=None, budget=budget, halving=None, space=SPACE
        )
        with outcome:
            assert check_budget(planned, Forecasts(planned, context.store))


@pytest.mark.usefixtures("tenth_of_an_hour")
def test_finalists_have_the_seeds_that_fit_and_those_they_had(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=2, halving=None, space=SPACE)
    finalists = Finalists(planned, Forecasts(planned, context.store))
    before = Finalist(number=0, method="fine_tuned", place=1, suggestion={}, dev=50.0, cells={0: "a", 4: "b"})
    assert finalists.seeds(None) == (0, 1, 2, 3, 4, 5)
    assert [finalists.seeds(hours) for hours in (0.0, 0.15, 0.35, 9.0)] == [(0,), (0, 1), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5)]
    assert finalists.seeds(0.15, chosen=FinalistsChosen(finalists=(before,), reason="")) == (0, 1, 4)
    assert (finalists.price.trainings, finalists.price.sentences) == (5, 5 * TRAINED)


def _record(stage: Stage, *, seconds: float, results: dict[str, Json], at: str = "2026-01-01T12:00:00Z") -> Record:
    return Record(
        key=stage.key, kind=stage.kind, label="", place=stage.place, stage={}, inputs=(), created_at=at, seconds=seconds, runtime={},
        environment={}, results=results, files={},
    )  # fmt: skip


def _store(*records: Record) -> ArtifactStore:
    by_key = {record.key: SimpleNamespace(record=record) for record in records}
    fake = SimpleNamespace(
        get_all=lambda stages: {stage.key: by_key[stage.key] for stage in stages if stage.key in by_key},
        artifacts=lambda kind: (one for one in by_key.values() if one.record.kind == kind),
    )
    return cast(ArtifactStore, fake)


@pytest.fixture
def regulated(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> tuple[PlannedSearch, Train, Train, Bank]:
    """A search, a training of it that reads a bank, the entropy encoder of the bank, and the bank."""
    planned, _ = tiny_search(tiny_encoder_dir, data, tmp_path, space={"methods.rcl.phis": {"choice": [[0.01], [0.02]]}})
    train = planned.train("rcl", {"methods.rcl.phis": [0.01]})
    (bank,) = train.banks
    return planned, train, bank.encoder, bank


NOTHING = StoreBefore(places=frozenset(), since=None)


def test_a_trial_pays_for_what_was_built_for_it(regulated: tuple[PlannedSearch, Train, Train, Bank]) -> None:
    _, train, entropy, bank = regulated
    rows = train.training.batch_size * train.corpus.num_columns
    records = [
        _record(
            train, seconds=50.0, results={"num_steps": 5, "num_steps_planned": 6, "seconds_before": 20.0, "sentences_before": 2 * rows}
        ),
        _record(entropy, seconds=30.0, results={"num_steps": 6}),
        _record(bank, seconds=4.0, results={"seconds_before": 1.0}),
    ]
    whole = spent_on(train, _store(*records), earlier=NOTHING, known=set())
    assert (whole.seconds, whole.sentences) == (30.0 + 30.0 + 4.0, 3 * rows + 6 * rows)
    assert set(whole.stages) == {train.key, entropy.key, bank.key}
    shared = spent_on(train, _store(*records), earlier=NOTHING, known={entropy.key, bank.key})
    assert (shared.seconds, shared.sentences, shared.stages) == (30.0, 3 * rows, (train.key,))
    rung = to_share(entropy, 0.3)
    part = spent_on(rung, _store(_record(rung, seconds=9.0, results={"step": 2, "num_steps": 6})), earlier=NOTHING, known=set())
    assert (part.seconds, part.sentences) == (9.0, 2 * entropy.training.batch_size * entropy.corpus.num_columns)


@pytest.mark.parametrize(
    ("since", "there", "seconds"),
    [
        (None, True, 0.0),
        (None, False, 7.0),
        (1767268800.0, True, 7.0),  # of that very second: 2026-01-01T12:00:00Z
        (1767268801.0, True, 0.0),
        (1767268801.0, False, 7.0),  # another host's clock may be behind
    ],
)
def test_nobody_pays_for_what_was_there_before(
    since: float | None, there: bool, seconds: float, regulated: tuple[PlannedSearch, Train, Train, Bank]
) -> None:
    entropy = regulated[2]
    record = _record(entropy, seconds=7.0, results={"num_steps": 6})
    earlier = StoreBefore(places=frozenset({record.place} if there else ()), since=since)
    assert spent_on(entropy, _store(record), earlier=earlier, known=set()).seconds == seconds


def test_a_forecast_is_of_what_the_store_lacks(
    regulated: tuple[PlannedSearch, Train, Train, Bank], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, train, entropy, bank = regulated
    speeds: dict[str, float | None] = {"train": None}
    speed: Callable[[Any, type[Stage]], float | None] = lambda store, kind: speeds.get(kind.kind)  # noqa: E731
    monkeypatch.setattr(prices, "speed_of", speed)
    forecasts = Forecasts(planned, _store())
    encoded = forecasts.whole_sentences(bank)
    assert (forecasts.sentences(train), forecasts.seconds(train)) == (2 * TRAINED, None)
    speeds |= {"train": 10.0, "bank": 40.0}
    assert forecasts.seconds(train) is None, "looked up once"
    forecasts.something_was_built()
    assert forecasts.seconds(train) == pytest.approx(2 * TRAINED / 10 + encoded / 40)
    lacks_one = Forecasts(planned, _store(_record(entropy, seconds=1.0, results={})))
    assert lacks_one.sentences(train) == TRAINED and lacks_one.seconds(train) == pytest.approx(TRAINED / 10 + encoded / 40)
    del speeds["bank"]
    stages = topological((train,))
    assert Forecasts(planned, _store()).whole_seconds(stages) == pytest.approx(2 * TRAINED / 10 + encoded / 30), (
        "three are encoded while one is trained on"
    )


def test_the_price_of_finalists_counts_what_a_training_takes_beside_its_steps(
    regulated: tuple[PlannedSearch, Train, Train, Bank], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only steps were counted: `tune --budget 2m` on few rows took three minutes."""
    planned, train, entropy, _ = regulated
    monkeypatch.setattr(prices, "speed_of", lambda store, kind: 10.0)
    whole = _record(entropy, seconds=9.0, results={"seconds.forward": 2.0, "seconds.backward": 3.0, "sentences_per_s": 10.0})
    resumed = _record(train, seconds=30.0, results={"seconds.forward": 4.0, "seconds_before": 20.0, "sentences_per_s": 10.0})
    old = _record(train, seconds=99.0, results={"sentences_per_s": 10.0})
    for records, beside in (([], 0.0), ([old], 0.0), ([whole], 4.0), ([whole, resumed], 5.0)):
        assert Forecasts(planned, _store(*records)).whole_seconds([entropy, train]) == pytest.approx(2 * TRAINED / 10 + 2 * beside)


def test_how_many_seeds_there_is_time_for_is_judged_by_all_trainings_not_by_the_first(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a process is slower: two seeds were trained where there was time for five."""
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=2, halving=None, space=SPACE)
    seconds = [720.0]
    monkeypatch.setattr(prices, "speed_of", lambda store, kind: TRAINED / seconds[-1] if kind.kind == "train" else 1e12)
    finalists = Finalists(planned, Forecasts(planned, context.store))
    assert finalists.price.seconds is not None and finalists.seeds(0.26) == (0, 1)
    seconds.append(180.0)
    assert finalists.seeds(0.26) == (0, 1, 2, 3, 4, 5)
