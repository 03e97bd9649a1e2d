"""A search: what is suggested, what goes on, what is recorded, how it resumes after it was killed; trainings are tiny or pretended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.errors import DataError, StoreError
from sentdist.recipe.search import Axis
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train, to_share
from sentdist.run.local import search_in_process
from sentdist.run.search import SearchRun, distribution, parameter, value_at
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.store.searches import SearchRecord, find_search, read_pruned_curve, search_names
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import Tracker
from tests.support.planning import plan_of, small_recipe
from tests.support.tiny_data import write_data
from tests.support.tiny_search import Killed, KilledAfter, outcome, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
SPACE: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def _run(planned: Any, context: Any, tracker: Tracker | None = None, **options: Any) -> SearchRecord:
    return search_in_process(planned, context, tracker or Tracker(), **({"print_line": lambda line: None} | options))


def _pretended(planned: Any, context: Any, dev: Any, **options: Any) -> tuple[SearchRun, SearchRecord]:
    """Run a search to its end whose trials have these dev scores, by number and share."""
    run = SearchRun(planned, context, Tracker(), print_line=lambda line: None, **options)
    while (asked := run.ask()) is not None:
        for share in planned.search.shares:
            score = dev(asked.number, share)
            if isinstance(score, Exception):
                run.fail(asked.number, score)
                break
            if not run.arrive(asked.number, share, RungScore(step=1, dev=score, last=score, sentences=10, seconds=1.0)):
                break
    return run, run.choose()


def test_parameters_of_optuna_are_values_of_the_space() -> None:
    axes = (
        Axis(log=(1e-5, 1e-3)), Axis(uniform=(0.0, 1.0)), Axis(uniform=(0.0, 1.0), steps=3), Axis(integers=(2, 4)),
        Axis(choice=([0.1], None, "a", True)),
    )  # fmt: skip
    for axis, known in zip(axes, ((1e-4,), (0.25,), (0.0, 0.5, 1.0), (2, 3, 4), ([0.1], None, "a", True)), strict=True):
        for value in known:
            found = parameter(axis, value)  # type: ignore[arg-type]
            assert distribution(axis)._contains(distribution(axis).to_internal_repr(found)) and value_at(axis, found) == value
        assert parameter(axis, 7.5) is None


def test_suggestions_follow_from_the_seed_and_a_grid_is_tried_whole(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}, "training.batch_size": {"choice": [4, 8, 16]}}

    def tried(place: str, **options: Json) -> list[dict[str, Json]]:
        options = {"space": space, "samples": 14, "halving": None} | options
        planned, context = tiny_search(tiny_encoder_dir, data, tmp_path / place, changes=ONLY, **options)
        return [trial.suggestion for trial in _pretended(planned, context, lambda number, share: float(number % 5))[1].trials]

    for suggest in ("random", "quasi_random", "tpe"):
        found = tried(f"{suggest} 0", suggest=suggest, seed=0)
        assert len(found) == 14 and all(1e-4 <= float(str(one["training.learning_rate"])) <= 1e-2 for one in found)
        assert found == tried(f"{suggest} again", suggest=suggest, seed=0) != tried(f"{suggest} 1", suggest=suggest, seed=1)
    first: Json = {"training.batch_size": {"choice": [4, 8, 16]}}
    assert tried("tpe first", suggest="tpe", samples=1, space=first)[0]["training.batch_size"] == 8, "the recipe's own values"
    finite = {"training.batch_size": {"choice": [4, 8, 16]}, "training.epochs": {"integers": [1, 2]}}
    for suggest in ("grid", "random", "tpe"):
        points = tried(f"finite {suggest}", suggest=suggest, space=finite, samples=None if suggest == "grid" else 20)
        assert len(points) == len({str(one) for one in points}) == 6, "none is trained twice"


@pytest.mark.parametrize("suggest", ["tpe", "random"])
def test_a_search_killed_anywhere_ends_as_one_left_alone(suggest: str, tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    """With as many trials as Optuna needs before it suggests by the results reported to it."""
    options: dict[str, Any] = {"changes": ONLY, "suggest": suggest, "samples": 12 if suggest == "tpe" else 4, "space": SPACE}
    whole, context = tiny_search(tiny_encoder_dir, data, tmp_path / "one", **options)
    alone = _run(whole, context)
    planned, elsewhere = tiny_search(tiny_encoder_dir, data, tmp_path / "two", **options)
    built: dict[str, str] = {}
    for changes in (3, 8, 11) if suggest == "tpe" else (1, 2, 3):
        with pytest.raises(Killed):
            _run(planned, elsewhere, KilledAfter(changes))
        built |= {one.key: one.record.created_at for one in elsewhere.store.artifacts("train")}
    found = _run(planned, elsewhere)
    assert outcome(found) == outcome(alone) and found.finalists == alone.finalists
    assert found.spent_sentences == alone.spent_sentences
    assert built and built.items() <= {one.key: one.record.created_at for one in elsewhere.store.artifacts("train")}.items()
    assert not list(elsewhere.store.artifacts("rung")), "nothing goes on from them"
    assert find_search(elsewhere.store, "tiny") == found and search_names(elsewhere.store) == ["tiny"]
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned and all('"loss"' in read_pruned_curve(elsewhere.store, trial.train) for trial in pruned)


def test_a_trial_that_fails_is_noted_and_tried_again_by_the_next_submission(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    space: Json = {"training.learning_rate": {"choice": [1e-3, 1e4]}}  # the second one diverges
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, suggest="grid", samples=None, space=space, halving=None)
    lines: list[str] = []
    record = _run(planned, replace(context, data_root=str(tmp_path / "nowhere")), print_line=lines.append)
    assert [one.state for one in record.trials] == ["failed", "failed"] and not record.finalists
    assert any("FAILED" in line for line in lines)
    again = _run(planned, context, print_line=lines.append)
    assert [(one.number, one.state) for one in again.trials] == [(0, "finished"), (1, again.trials[1].state)]
    assert any("2 unfinished ones" in line for line in lines)


def test_a_budget_ends_a_search(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    passed_s = 0.0

    def clock() -> float:
        nonlocal passed_s
        passed_s += 200.0
        return passed_s

    for budget, reason, options in (
        ({"samples": 2}, "2 trials", {}), ({"sentences": 15}, "15 sentences", {}), ({"hours": 1.0}, "60 min", {"clock": clock}),
    ):  # fmt: skip
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path / reason, changes=ONLY, space=SPACE, budget=budget, samples=None, halving=None
        )  # type: ignore[arg-type]
        _, record = _pretended(planned, context, lambda number, share: 50.0, **options)
        assert record.reason == f"the budget of {reason} is spent" and (len(record.trials) == 2 or "hours" in budget)
        assert all(trial.state == "finished" for trial in record.trials) and record.finalists
        again = SearchRun(planned, context, Tracker(), print_line=lambda line: None, **options)
        assert again.ask() is None, "also of a search that is submitted again"


def test_finalists_came_to_their_end_and_of_equals_the_earlier_is_chosen(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    halving: Json = {"rungs": [0.5, 1.0], "keep": 0.5}
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=5, space=SPACE, halving=halving, finalists=3)
    failed = DataError(where="here", found="this", expected="that", remedy="None.")
    devs = (50.0, 60.0, 55.0, 60.0, 60.0)
    _, record = _pretended(planned, context, lambda number, share: failed if number == 1 and share == 1.0 else devs[number])
    assert [trial.state for trial in record.trials] == ["finished", "failed", "finished", "finished", "finished"]
    assert [(one.place, one.number) for one in record.finalists] == [(1, 3), (2, 4), (3, 2)]


def test_the_best_part_of_those_that_came_to_a_rung_goes_on(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    halving: Json = {"rungs": [0.5, 1.0], "keep": 0.4}
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=7, space=SPACE, halving=halving)
    devs = (50.0, 40.0, 45.0, 60.0, 55.0, 55.0, 20.0)
    _, record = _pretended(planned, context, lambda number, share: devs[number])
    assert [trial.state == "finished" for trial in record.trials] == [True, False, False, True, True, True, False]


def test_a_second_process_of_a_search_ends_the_first(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, space=SPACE)
    first = SearchRun(planned, context, Tracker(), print_line=lambda line: None)
    assert first.ask() is not None
    SearchRun(planned, context, Tracker(), print_line=lambda line: None)
    with pytest.raises(StoreError):
        first.ask()


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
