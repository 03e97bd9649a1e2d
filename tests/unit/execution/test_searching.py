"""A search: who is suggested, who goes on, what is noted, what happens after it was killed; trainings are tiny or pretended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import RecipeError, StoreError
from sentdist.execution.searching import budgets as prices
from sentdist.execution.searching import conductor as conducting
from sentdist.execution.searching import in_process
from sentdist.execution.searching.conductor import Conductor
from sentdist.execution.searching.in_process import search_in_process
from sentdist.execution.searching.suggesters import TunedSuggester
from sentdist.plan.search import Axis
from sentdist.plan.stage import Json, topological
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.devices import on_this_machine
from sentdist.stages.local import build_all
from sentdist.stages.rung_records import RungScore
from sentdist.stages.train import TrainSession
from sentdist.store.searches import SearchEvent, load_search
from sentdist.store.store import ArtifactStore
from tests.support.faulty_s3 import faulty_s3
from tests.support.tiny_data import tiny_values, write_data
from tests.support.tiny_search import RATES, Killed, killed_after, outcome, pretended, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
SPACE: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for was there."""

    def rung_score(train: Train, share: float, context: Context) -> RungScore:
        dev = 50.0 + int(train.key[:4], 16) / 65536
        return RungScore(step=1, dev=dev, last=dev, sentences=144, seconds=1.0)

    for module in (conducting, in_process):
        monkeypatch.setattr(module, "rung_score", rung_score)


def test_suggestions_lie_in_the_space_and_follow_from_the_seed() -> None:
    axes = {
        "a.rate": Axis(log=(1e-5, 1e-3)), "a.steps": Axis(uniform=(0.0, 1.0), steps=3), "a.size": Axis(integers=(2, 4)),
        "a.phis": Axis(choice=([0.1], [0.1, 0.2])),
    }  # fmt: skip

    def drawn(suggest: str, seed: int) -> list[dict[str, Json] | None]:
        suggester = TunedSuggester(axes, suggest=suggest, seed=seed)
        found = []
        for number in range(14):
            found.append(suggester.ask(str(number)))
            suggester.tell(str(number), float(number), rung=1)
            suggester.end(str(number), float(number), is_pruned=number % 3 == 1)
        return found

    for suggest in ("random", "quasi_random", "tpe"):
        found = drawn(suggest, 0)
        for one in found:
            assert one is not None and 1e-5 <= float(str(one["a.rate"])) <= 1e-3
            assert one["a.rate"] == float(f"{one['a.rate']:.6g}"), "it has one spelling, and stages that meet have one key"
            assert one["a.steps"] in (0.0, 0.5, 1.0) and one["a.size"] in (2, 3, 4) and one["a.phis"] in ([0.1], [0.1, 0.2])
        assert found == drawn(suggest, 0) != drawn(suggest, 1) and len({str(one) for one in found}) > 10
    grid = TunedSuggester({"a.b": Axis(integers=(1, 2)), "a.c": Axis(choice=(True, False, None))}, suggest="grid", seed=0)
    tried = [grid.ask(str(number)) for number in range(7)]
    assert tried[-1] is None and len({str(one) for one in tried[:-1]}) == 6, "a grid is tried once and whole"


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
    options: dict[str, Any] = {"changes": ONLY, "suggest": "tpe", "samples": 12, "space": SPACE}
    whole, context = tiny_search(tiny_encoder_dir, data, tmp_path / "one", **options)
    alone = search_in_process(whole, context, print_line=lambda line: None)
    planned, elsewhere = tiny_search(tiny_encoder_dir, data, tmp_path / "two", **options)
    for number in (3, 15, 32):
        with pytest.raises(Killed):
            search_in_process(planned, elsewhere, print_line=lambda line: None, watch=killed_after(number))
    found = search_in_process(planned, elsewhere, print_line=lambda line: None)
    assert outcome(found) == outcome(alone) and found.finalists == alone.finalists
    assert found.spent_sentences == alone.spent_sentences, "nothing is built twice"
    assert not list(elsewhere.store.artifacts("rung")), "nothing goes on from them, though it was killed before it could remove them"


def test_a_trial_that_fails_is_noted_and_tried_again_by_the_next_submission(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    space: Json = {"training.learning_rate": {"choice": [1e-3, 1e4]}}  # the second one diverges
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, suggest="grid", samples=None, space=space, halving=None)
    lines: list[str] = []
    record = search_in_process(planned, replace(context, data_root=str(tmp_path / "nowhere")), print_line=lines.append)
    assert [one.state for one in record.trials] == ["failed", "failed"] and not record.finalists
    assert any("FAILED" in line for line in lines)
    again = search_in_process(planned, context, print_line=lines.append)
    assert again.trials[0].state == "finished" and len(again.trials) == 2


def test_a_budget_ends_a_search(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    for budget, reason in (({"samples": 2}, "2 trials"), ({"sentences": 200}, "200 sentences")):
        samples = {} if "samples" in budget else {"samples": None}
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path / reason, changes=ONLY, space={"training.learning_rate": RATES}, budget=budget, **samples
        )
        record = search_in_process(planned, context, print_line=lambda line: None)
        assert (len(record.trials), record.reason) == (2, f"the budget of {reason} is spent")
        assert "samples" in budget or 200 <= record.spent_sentences < 200 + 144
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
    assert first[True] == [[0.02]] * 2 and first[False][0] != [0.02], "an unfinished trial goes on, whatever became cheaper"


@pytest.mark.usefixtures("nothing_is_trained")
def test_finalists_are_part_of_a_budget_of_hours(
    tmp_path: Path, data: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed: list[float | None] = [144 / 360.0]  # sentences a second of a training; what only encodes takes no time
    monkeypatch.setattr(prices, "speed_of", lambda store, kind: speed[0] if kind.kind == "train" else 1e12)
    now = [0.0]

    def submitted(hours: float, folder: str = "store") -> Conductor:
        changes = ONLY | {"seeds": [0, 1, 2, 3, 4, 5]}
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path / folder, changes=changes, samples=None, budget={"hours": hours}, halving=None, space=SPACE
        )
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
    assert again.next() is None and again.choose() == (chosen,), "the time that was left was for the finalists"
    more = submitted(4.0)
    assert more.next() is not None and [list(one.cells) for one in more.choose()] == [[0, 1, 2, 3, 4, 5]]
    speed[0] = None
    slow = submitted(1.0, "slow")
    trial = slow.next()
    assert trial is not None
    speed[0] = 144 / 7200.0
    with pytest.raises(RecipeError, match="one trial of fine_tuned takes about 2"):  # said by the first speed that is known
        slow.arrive(trial.number, trial.shares[0])


def test_a_bucket_that_refuses_ends_the_search_with_a_sentence(
    tmp_path: Path, tiny_encoder_dir: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitted again it ends as on a disk, and submitted once more it only reads what was noted."""
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    planned, on_disk = tiny_search(tiny_encoder_dir, data, tmp_path / "store", changes=ONLY, samples=1, halving=None, space=SPACE)
    alone = search_in_process(planned, on_disk, print_line=lambda line: None)
    with faulty_s3() as s3:
        in_bucket = replace(on_disk, store=ArtifactStore(s3.root(uuid.uuid4().hex)))

        def expired(events: Sequence[SearchEvent]) -> None:
            if len(events) == 2:
                s3.be("expired credentials")

        with pytest.raises(StoreError, match="credentials") as raised:
            search_in_process(planned, in_bucket, print_line=lambda line: None, watch=expired)
        s3.be(None)
        assert "secret" not in str(raised.value) and load_search(in_bucket.store, "tiny").reason is None
        found = search_in_process(planned, in_bucket, print_line=lambda line: None)
        assert outcome(found) == outcome(alone) and found.spent_sentences == alone.spent_sentences, "nothing is built twice"
        before = s3.num_requests
        assert outcome(search_in_process(planned, in_bucket, print_line=lambda line: None)) == outcome(alone)
        assert s3.num_requests - before < 60
