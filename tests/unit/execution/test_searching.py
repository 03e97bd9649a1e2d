"""A search: who is suggested, who goes on, what is noted, what happens after it was killed; trainings are tiny or pretended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import RecipeError
from sentdist.execution.searching import budgets, in_process
from sentdist.execution.searching import budgets as prices
from sentdist.execution.searching import conductor as conducting
from sentdist.execution.searching.conductor import Conductor, survives_rung
from sentdist.execution.searching.in_process import search_in_process
from sentdist.execution.searching.suggesters import TunedSuggester
from sentdist.plan.search import Axis
from sentdist.plan.stage import Json, Stage, topological
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.devices import on_this_machine
from sentdist.stages.local import build_all
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import DevScorer
from sentdist.store.searches import SearchEvent, SearchState, find_search
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import tiny_values, write_data
from tests.support.tiny_search import RATES, Killed, killed_after, outcome, pretended, tiny_search


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def test_the_best_share_of_a_rung_goes_on() -> None:
    assert survives_rung(50.0, [], 1 / 3), "the first one, for nothing is better"
    assert not survives_rung(49.0, [50.0], 1 / 3)
    assert survives_rung(51.0, [50.0], 1 / 3)
    assert survives_rung(50.0, [50.0], 1 / 3), "nobody is better"
    assert not survives_rung(50.0, [51.0, 52.0, 40.0, 41.0, 42.0], 1 / 3)
    assert survives_rung(51.5, [51.0, 52.0, 40.0, 41.0, 42.0], 1 / 3), "second of six"


@pytest.mark.parametrize("suggest", ["random", "quasi_random", "tpe"])
def test_suggestions_lie_in_the_space_and_follow_from_the_seed(suggest: str) -> None:
    axes = {
        "a.rate": Axis(log=(1e-5, 1e-3)), "a.steps": Axis(uniform=(0.0, 1.0), steps=3), "a.size": Axis(integers=(2, 4)),
        "a.phis": Axis(choice=([0.1], [0.1, 0.2])),
    }  # fmt: skip

    def drawn(seed: int) -> list[dict[str, Json] | None]:
        suggester = TunedSuggester(axes, suggest=suggest, seed=seed)
        found = []
        for number in range(14):
            found.append(suggester.ask(str(number)))
            suggester.tell(str(number), float(number), rung=1)
            suggester.end(str(number), float(number), is_pruned=number % 3 == 1)
        return found

    found = drawn(0)
    for one in found:
        assert one is not None and 1e-5 <= float(str(one["a.rate"])) <= 1e-3
        assert one["a.rate"] == float(f"{one['a.rate']:.6g}"), "it has one spelling, and stages that meet have one key"
        assert one["a.steps"] in (0.0, 0.5, 1.0) and one["a.size"] in (2, 3, 4) and one["a.phis"] in ([0.1], [0.1, 0.2])
    assert found == drawn(0) != drawn(1)
    assert len({str(one) for one in found}) > 10


def test_a_grid_is_tried_once_and_whole() -> None:
    suggester = TunedSuggester({"a.b": Axis(integers=(1, 2)), "a.c": Axis(choice=(True, False, None))}, suggest="grid", seed=0)
    found = [suggester.ask(str(number)) for number in range(7)]
    assert found[-1] is None
    assert len({str(one) for one in found[:-1]}) == 6


def test_a_search_tries_prunes_chooses_and_builds_shared_stages_once(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path)
    assert planned.fields == {"fine_tuned": ("training.learning_rate",), "rcl": ("training.learning_rate", "methods.rcl.phis")}
    lines: list[str] = []
    record = search_in_process(planned, context, print_line=lines.append)
    assert lines[0].endswith(f"search in this process, {on_this_machine(context.runtime)[1]}")
    assert [one.method for one in sorted(record.trials, key=lambda one: one.number)] == ["fine_tuned", "rcl"] * 3
    assert {one.state for one in record.trials} <= {"finished", "pruned"} and record.reason == "all trials are made"
    assert all(len(one.rungs) == (2 if one.state == "finished" else 1) for one in record.trials)
    assert all(one.rungs[0].step == 2 for one in record.trials), "the first of three dev scores"
    for method in planned.methods:
        (chosen,) = [one for one in record.finalists if one.method == method]
        assert chosen.dev == max(one.dev or 0 for one in record.of_method(method) if one.state == "finished")
        assert chosen.cells == {0: planned.scores(method, chosen.suggestion, seed=0).key}
    # Each stage is paid for once, and what is paid for is all that was built.
    paid = [key for one in record.trials for rung in one.rungs for key in rung.paid_for]
    assert len(paid) == len(set(paid))
    store = context.store
    built = {one.key for kind in ("train", "bank") for one in store.artifacts(kind)}
    assert built <= set(paid)
    assert not list(store.artifacts("rung")), "nothing goes on from them any more"
    trained = [int(str(one.record.results["num_steps"])) for one in store.artifacts("train")]
    pruned = [one.rungs[-1].step for one in record.trials if one.state == "pruned"]
    assert record.spent_sentences == 24 * (sum(trained) + sum(pruned))
    assert any("goes no further" in line for line in lines) == any(one.state == "pruned" for one in record.trials)
    # Asked again it does nothing; asked for more it builds only what is new.
    again = search_in_process(planned, context, print_line=lines.append)
    assert outcome(again) == outcome(record)
    wider, _ = tiny_search(tiny_encoder_dir, data, tmp_path, samples=4)
    more = search_in_process(wider, context, print_line=lines.append)
    assert outcome(more)[: len(record.trials)] == outcome(record) and len(more.trials) == 8


def test_a_search_killed_anywhere_ends_as_one_left_alone(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    """With as many trials as Optuna needs before it suggests by the results reported to it."""
    changes: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    whole, context = tiny_search(tiny_encoder_dir, data, tmp_path / "one", changes=changes, suggest="tpe", samples=12, space=space)
    alone = search_in_process(whole, context, print_line=lambda line: None)
    planned, elsewhere = tiny_search(tiny_encoder_dir, data, tmp_path / "two", changes=changes, suggest="tpe", samples=12, space=space)
    for number in (3, 9, 15, 32):
        with pytest.raises(Killed):
            search_in_process(planned, elsewhere, print_line=lambda line: None, watch=killed_after(number))
    found = search_in_process(planned, elsewhere, print_line=lambda line: None)
    assert outcome(found) == outcome(alone)
    assert [one.model_dump() for one in found.finalists] == [one.model_dump() for one in alone.finalists]
    assert found.spent_sentences == alone.spent_sentences, "nothing is built twice"
    assert not list(elsewhere.store.artifacts("rung")), "nothing goes on from them, though it was killed before it could remove them"


def test_a_trial_that_fails_is_noted_and_tried_again_by_the_next_submission(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    changes: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
    space: Json = {"training.learning_rate": {"choice": [1e-3, 1e4]}}  # the second one diverges
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=changes, suggest="grid", samples=None, space=space, halving=None
    )
    broken = replace(context, data_root=str(tmp_path / "nowhere"))
    lines: list[str] = []
    record = search_in_process(planned, broken, print_line=lines.append)
    assert [one.state for one in record.trials] == ["failed", "failed"] and not record.finalists
    assert any("FAILED" in line for line in lines)
    again = search_in_process(planned, context, print_line=lines.append)
    assert again.trials[0].state == "finished" and len(again.trials) == 2


def test_a_training_that_stops_before_its_first_dev_score_is_scored_where_it_stopped(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path
) -> None:
    stopped: dict[str, Json] = {"objective": {"name": "info_nce"}, "stopping": {"reading": "step", "patience": 1}}
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes={"methods": {"base": {}, "stopped": stopped}, "baseline": "base", "selection": {"task": "stsb-dev", "every_fraction": 1.0}},
        halving=None, samples=1, space={"training.learning_rate": {"choice": [5.0, 9.0]}},
    )  # fmt: skip
    (trial,) = search_in_process(planned, context, print_line=lambda line: None).trials
    found = rung_score(planned.train("stopped", trial.suggestion), 1.0, context)
    assert found is not None and found.dev is not None and found.dev == found.last and 0 < found.step < 6
    assert trial.state == "finished" and trial.dev == found.dev


def test_a_trial_whose_embeddings_are_all_alike_fails_alone(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its artifact is there, so nobody waits for it: it says what is missing."""
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, halving=None, samples=2)
    whole = DevScorer.score
    asked: list[DevScorer] = []

    def score(scorer: DevScorer, encode: Any) -> float | None:
        asked.append(scorer)
        return None if scorer is asked[0] else whole(scorer, encode)

    monkeypatch.setattr(DevScorer, "score", score)
    alike, *others = search_in_process(planned, context, print_line=lambda line: None).trials
    assert alike.state == "failed" and "expected similarities that differ" in str(alike.error)
    assert others and all(other.state == "finished" for other in others)


def test_a_budget_ends_a_search(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    only: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
    space: Json = {"training.learning_rate": RATES}
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path / "samples", changes=only, space=space, budget={"samples": 2})
    record = search_in_process(planned, context, print_line=lambda line: None)
    assert (len(record.trials), record.reason) == (2, "the budget of 2 trials is spent")
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path / "sentences", changes=only, space=space, samples=None, budget={"sentences": 200}
    )
    record = search_in_process(planned, context, print_line=lambda line: None)
    assert record.reason == "the budget of 200 sentences is spent" and 200 <= record.spent_sentences < 200 + 144
    now = [0.0]
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path / "hours", samples=None, budget={"hours": 1})
    conductor = pretended(planned, context, clock=lambda: now[0])
    conductor.begin()
    assert conductor.next() is not None
    now[0] = 1800.0
    conductor.stop()
    now[0] = 1e6
    later = pretended(planned, context, clock=lambda: now[0])
    later.begin()
    assert later.hours_left == 0.5 and later.next() is not None
    now[0] += 1801
    assert later.next() is None and later.reason == "the budget of 60 min is spent"


def test_a_budget_of_hours_counts_those_that_pass_however_the_clock_is_set(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, steady = [1e9], [5.0]
    monkeypatch.setattr(budgets.time, "time", lambda: wall[0])
    monkeypatch.setattr(budgets.time, "monotonic", lambda: steady[0])
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, samples=None, budget={"hours": 8})
    conductor = pretended(planned, context)
    conductor.begin()
    wall[0] += 10 * 3600.0  # as after a night asleep, or when a clock is put right
    steady[0] += 3600.0
    assert conductor.hours_left == pytest.approx(7.0, abs=1e-3) and conductor.next() is not None


@pytest.mark.parametrize(("share", "state"), [(0.5, "running"), (1.0, "finished")])
def test_a_training_whose_steps_are_done_when_the_hours_end_is_kept(
    share: float, state: str, tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, score = [0.0], TrainSession._score_dev

    def late(session: TrainSession, tell: Callable[[], float]) -> Any:
        now[0] = 3601.0 * session.has_stepped_to(share)
        return score(session, tell)

    monkeypatch.setattr(TrainSession, "_score_dev", late)
    monkeypatch.setattr(in_process, "Conductor", partial(Conductor, clock=lambda: now[0]))
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, samples=None, budget={"hours": 1}, halving=None)
    record = search_in_process(planned, context, print_line=lambda line: None)
    assert [trial.state for trial in record.trials] == [state] and record.reason == "the budget of 60 min is spent"


def test_a_budget_too_small_for_one_trial_is_said_before_anything_starts(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, budget={"sentences": 100})
    with pytest.raises(RecipeError, match=r"search\.budget\.sentences: found 100, where one trial of fine_tuned trains on 144"):
        search_in_process(planned, context, print_line=lambda line: None)
    assert find_search(context.store, "tiny") is None
    build_all((planned.train("fine_tuned", {}).corpus, planned.train("fine_tuned", {})), context)  # now the store knows a speed
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, budget={"hours": 1e-9}, space={"training.learning_rate": {"log": [1e-9, 1]}}
    )
    with pytest.raises(RecipeError, match=r"search\.budget\.hours: found 1e-09, where one trial of fine_tuned takes about"):
        search_in_process(planned, context, print_line=lambda line: None)


def test_cheaper_suggestions_are_preferred_only_where_that_is_asked(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    """Of four phis, the one whose entropy encoder is there is suggested first."""
    methods = {name: one for name, one in dict(tiny_values(tiny_encoder_dir)["methods"]).items() if name in ("entropy", "rcl")}  # type: ignore[call-overload]
    changes: dict[str, Json] = {"methods": methods, "baseline": None}
    space: Json = {"methods.rcl.phis": {"choice": [[0.01], [0.02], [0.03], [0.04]]}}
    first: dict[bool, list[Json]] = {False: [], True: []}
    for prefer in first:
        planned, context = tiny_search(tiny_encoder_dir, data, tmp_path / str(prefer), changes=changes, space=space, prefer_cheaper=prefer)
        (bank,) = planned.train("rcl", {"methods.rcl.phis": [0.02]}).banks
        build_all(topological((bank.encoder,)), context)
        for _ in range(2):  # the second goes on with what the first has left
            conductor = pretended(planned, context)
            conductor.begin()
            trial = conductor.next()
            assert trial is not None
            first[prefer].append(trial.suggestion["methods.rcl.phis"])
    assert first[True][0] == [0.02] != first[False][0]
    assert first[True][0] == first[True][1], "an unfinished trial goes on, whatever became cheaper"


ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}


@pytest.fixture
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for was there."""

    def rung_score(train: Train, share: float, context: Context) -> RungScore:
        dev = 50.0 + int(train.key[:4], 16) / 65536
        return RungScore(step=1, dev=dev, last=dev, sentences=144, seconds=1.0)

    for module in (conducting, in_process):
        monkeypatch.setattr(module, "rung_score", rung_score)


@pytest.mark.usefixtures("nothing_is_trained")
def test_what_a_trial_costs_does_not_grow_with_those_before_it(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of a search are not gone through again for each trial."""
    taken: list[SearchEvent] = []
    take = SearchState.take

    def counted(state: SearchState, event: SearchEvent) -> None:
        taken.append(event)
        take(state, event)

    monkeypatch.setattr(SearchState, "take", counted)
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=ONLY, samples=30, space=space, budget={"sentences": 10**9}, halving=None
    )
    record = search_in_process(planned, context, print_line=lambda line: None)
    assert len(record.trials) == 30 and len(taken) == len(record.events)


@pytest.mark.usefixtures("nothing_is_trained")
def test_a_trial_whose_beginning_is_lost_lends_its_number_to_no_other(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, space={"training.learning_rate": RATES})
    conductor = pretended(planned, context)
    conductor.begin()
    begun = [conductor.next(), conductor.next()]
    (file,) = (tmp_path / "searches").iterdir()
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "damaged", *lines[2:]]) + "\n")
    again = pretended(planned, context)
    again.begin()
    found = [again.next(), again.next()]
    assert [one.number for one in (*begun, *found) if one is not None] == [0, 1, 1, 2]


def a_training_takes(seconds: float) -> Callable[[ArtifactStore, type[Stage]], float | None]:
    """One of 144 sentences; what only encodes takes no time."""
    return lambda store, kind: 144 / seconds if kind.kind == "train" else 1e12


@pytest.mark.usefixtures("nothing_is_trained")
def test_finalists_are_part_of_a_budget_of_hours(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prices, "speed_of", a_training_takes(360.0))
    now = [0.0]
    several = ONLY | {"seeds": [0, 1, 2, 3, 4, 5]}

    def submitted(hours: float) -> Conductor:
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path, changes=several, samples=None, budget={"hours": hours}, halving=None,
            space={"training.learning_rate": {"log": [1e-4, 1e-2]}},
        )  # fmt: skip
        found = pretended(planned, context, clock=lambda: now[0])
        found.begin()
        return found

    first = submitted(1.0)
    assert first.hours_left == pytest.approx(0.5), "five trainings of a tenth of an hour follow"
    trial = first.next()
    assert trial is not None and not first.arrive(trial.number, 1.0)
    now[0] = 0.65 * 3600  # a trial has taken longer
    assert first.next() is None and first.reason == "the budget of 60 min is spent"
    (chosen,) = first.choose()
    assert list(chosen.cells) == [0, 1, 2, 3], "three more trainings fit into 0.35 hours"
    again = submitted(1.0)
    assert again.next() is None, "the time that was left was for the finalists"
    assert again.choose() == (chosen,)
    more = submitted(4.0)
    assert more.next() is not None
    assert [list(one.cells) for one in more.choose()] == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.usefixtures("nothing_is_trained")
def test_a_budget_too_small_for_one_trial_is_said_by_the_first_speed_that_is_known(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds: list[Callable[[ArtifactStore, type[Stage]], float | None]] = [lambda store, kind: None]
    monkeypatch.setattr(prices, "speed_of", lambda store, kind: speeds[-1](store, kind))
    planned, context = tiny_search(
        tiny_encoder_dir, data, tmp_path, changes=ONLY, space={"training.learning_rate": RATES}, budget={"hours": 1}
    )
    conductor = pretended(planned, context)
    conductor.begin()
    assert conductor.hours_left == pytest.approx(1.0, abs=0.01), "nothing is known of the finalists"
    trial = conductor.next()
    assert trial is not None
    speeds.append(a_training_takes(7200.0))
    with pytest.raises(RecipeError, match=r"one trial of fine_tuned takes about 2 \(.*what was measured is kept"):
        conductor.arrive(trial.number, trial.shares[0])
