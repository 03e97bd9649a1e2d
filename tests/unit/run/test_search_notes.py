"""What a search notes of its trials and asks of its store; what trials and finalists cost, counted by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sentdist.errors import DataError
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import Bank, Train, to_share
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.run.searching import budgets
from sentdist.run.searching.budgets import Forecasts, StoreBefore, spent_on
from sentdist.run.searching.conductor import drop_left, keep_curve_of
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.store.record import Record
from sentdist.store.searches import RungReached, SearchTrial, TrialState, read_pruned_curve
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
from tests.support.tiny_data import write_data
from tests.support.tiny_search import pretended, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
SPACE: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
TRAINED = 144  # sentences of a training of one epoch: three columns, six batches of eight
NOTHING = StoreBefore(places=frozenset(), since=None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def _train_with_rungs(store: ArtifactStore) -> Train:
    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    for share in (0.1, 0.3):
        with store.staged() as folder:
            (folder / "checkpoint").mkdir()
            (folder / "checkpoint" / "history.jsonl").write_text(f"until {share}")
            store.commit(to_share(train, share), folder, seconds=1.0, runtime={}, environment={}, results={})
    return train


@pytest.fixture
def regulated(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> tuple[PlannedSearch, Train, Train, Bank]:
    """A search, a training of it that reads a bank, the entropy encoder of the bank, and the bank."""
    planned, _ = tiny_search(tiny_encoder_dir, data, tmp_path, space={"methods.rcl.phis": {"choice": [[0.01], [0.02]]}})
    train = planned.train("rcl", {"methods.rcl.phis": [0.01]})
    (bank,) = train.banks
    return planned, train, bank.encoder, bank


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


def test_how_a_training_stood_at_a_share_is_read_from_what_went_further(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(store=ArtifactStore(tmp_path), shares=(0.1, 0.2, 0.3, 1.0))
    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    assert rung_score(train, 0.1, context) is None
    lines = [{"step": 2 * place, "dev_score": score} for place, score in enumerate((60.0, 50.0, None, 80.0, 70.0), start=1)]
    with context.store.staged() as folder:
        (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"step": 1, "loss": 0.5}, *lines]))
        results: dict[str, Json] = {"num_steps_planned": 10, "num_steps": 10, "seconds_total": 100.0}
        context.store.commit(train, folder, seconds=30.0, runtime={}, environment={}, results=results)
    for share, step, dev, last in ((0.1, 2, 60.0, 60.0), (0.2, 2, 60.0, 60.0), (0.3, 4, 60.0, 50.0), (1.0, 10, 80.0, 70.0)):
        sentences = step * train.training.batch_size * train.corpus.num_columns
        assert rung_score(train, share, context) == RungScore(step=step, dev=dev, last=last, sentences=sentences, seconds=10.0 * step)
    other: Any = SimpleNamespace(store=ArtifactStore(tmp_path / "other"), shares=(0.1, 0.3, 0.6))
    history: list[Json] = [[2, 60.0], [4, 50.0], [6, None]]
    for share, num_scores, seconds in ((0.3, 2, 40.0), (0.6, 3, 120.0)):  # the second part ran on a slower machine
        with other.store.staged() as folder:
            (folder / "file").write_text("a rung")
            results = {"num_steps_planned": 10, "dev_history": history[:num_scores], "seconds_total": seconds}
            other.store.commit(to_share(train, share), folder, seconds=1.0, runtime={}, environment={}, results=results)
    scores = [rung_score(train, share, other) for share in other.shares]
    assert [(one.step, one.seconds) for one in scores if one] == [(2, 20.0), (4, 40.0), (6, 120.0)], "the next rung above tells"


def test_of_rungs_that_a_killed_submission_left_those_stay_from_which_a_trial_goes_on(tmp_path: Path) -> None:
    left: tuple[tuple[TrialState, float, list[float]], ...] = (
        ("pruned", 0.3, []), ("finished", 1.0, []), ("running", 0.3, [0.3]), ("failed", 0.1, [0.1, 0.3]),
    )  # fmt: skip
    for state, share, kept in left:
        store = ArtifactStore(tmp_path / state)
        train = _train_with_rungs(store)
        rung = RungReached(number=3, share=share, key=train.key, step=1, dev=50.0, last_dev=50.0, sentences=1, seconds=1.0)
        trial = SearchTrial(number=3, method="one", suggestion={}, train=train.key, state=state, rungs=(rung,))
        drop_left(store, {3: trial}, {3: train}, (0.1, 0.3, 1.0))
        assert [one for one in (0.1, 0.3) if store.has(to_share(train, one))] == kept
    store = ArtifactStore(tmp_path / "curve")
    keep_curve_of(store, train := _train_with_rungs(store), (1.0, 0.3, 0.1))
    assert read_pruned_curve(store, train.key) == "until 0.3", "that of its highest rung"


def test_finalists_came_to_their_end_and_of_equals_the_earlier_is_chosen(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    halving: Json = {"rungs": [0.5, 1.0], "keep": 0.5}
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=5, space=SPACE, halving=halving, finalists=3)
    conductor = pretended(planned, context)
    conductor.begin()
    for number, (dev, *shares) in enumerate(((50.0, 0.5, 1.0), (60.0, 0.5), (55.0, 0.5), (60.0, 0.5, 1.0), (60.0, 0.5, 1.0))):
        trial = conductor.next()
        assert trial is not None
        for share in shares:
            conductor.arrive(trial.number, share, RungScore(step=1, dev=dev, last=dev, sentences=1, seconds=1.0))
        if number == 1:
            conductor.fail(1, DataError(where="here", found="this", expected="that", remedy="None."))
    assert [conductor.trial(number).state for number in range(5)] == ["finished", "failed", "pruned", "finished", "finished"]
    assert [(one.place, one.number) for one in conductor.choose()] == [(1, 3), (2, 4), (3, 0)]


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


def test_a_forecast_is_of_what_the_store_lacks(
    regulated: tuple[PlannedSearch, Train, Train, Bank], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, train, entropy, bank = regulated
    speeds: dict[str, float | None] = {"train": None}
    speed: Callable[[Any, type[Stage]], float | None] = lambda store, kind: speeds.get(kind.kind)  # noqa: E731
    monkeypatch.setattr(budgets, "speed_of", speed)
    forecasts = Forecasts(planned, _store())
    encoded = forecasts.whole_sentences(bank)
    assert (forecasts.sentences(train), forecasts.seconds(train)) == (2 * TRAINED, None)
    speeds |= {"train": 10.0, "bank": 40.0}
    assert forecasts.seconds(train) is None, "looked up once"
    forecasts.something_was_built()
    assert forecasts.seconds(train) == pytest.approx(2 * TRAINED / 10 + encoded / 40)
    lacks_one = Forecasts(planned, _store(_record(entropy, seconds=1.0, results={})))
    assert lacks_one.sentences(train) == TRAINED and lacks_one.seconds(train) == pytest.approx(TRAINED / 10 + encoded / 40)
