"""The decisions of the soak (tests/faults): what is injected when, what is observed, what counts as wrong."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.execution.board.events import StageEvent
from sentdist.execution.plan_facts import SweepProgress
from tests.faults.__main__ import OUTCOMES, not_played, outcomes_in
from tests.faults.artifacts import differences, digests, record_marks
from tests.faults.disk import damage
from tests.faults.events import Observed, built_twice, observed, recovery_s
from tests.faults.kinds import FAULTS, fault_named, ready
from tests.faults.moments import MOMENTS, Sight
from tests.faults.page import page
from tests.faults.processes import Process
from tests.faults.rounds import Injected, Outcome, outcome_of
from tests.faults.selection import VARIANT_WEIGHTS, plan_round
from tests.faults.tracked import tracking_faults


def _event(what: str, at: float, *, label: str = "rcl-s0", step: int = 0, driver: int = 0, kind: str = "train") -> Observed:
    return Observed(at=at, driver=driver, kind=kind, label=label, what=what, step=step, num_steps=100)  # type: ignore[arg-type]


def test_a_round_is_a_function_of_seed_and_number() -> None:
    assert plan_round(3, 7, FAULTS) == plan_round(3, 7, FAULTS)
    plans = [plan_round(0, number, FAULTS) for number in range(100)]
    assert len({plan.injections for plan in plans}) > 90
    assert plans != [plan_round(1, number, FAULTS) for number in range(100)]


def test_as_many_rounds_as_kinds_inject_each_kind() -> None:
    assert len(FAULTS) >= 18
    first = {plan_round(0, number, FAULTS).injections[0].fault for number in range(len(FAULTS))}
    assert first == {fault.name for fault in FAULTS}


def test_a_head_is_lost_only_where_its_tables_are_kept() -> None:
    kept = {fault.name for fault in ready(with_redis=True)} - {fault.name for fault in ready()}
    assert kept == {"kill -9 GCS", "head gone and back"}


def test_what_is_drawn_is_possible() -> None:
    for number in range(200):
        plan = plan_round(5, number, FAULTS)
        assert plan.variant in VARIANT_WEIGHTS
        for injection in plan.injections:
            fault = fault_named(injection.fault)
            assert plan.variant in fault.variants
            assert injection.moment in fault.moments
            assert fault.lasts_s[0] <= injection.lasts_s <= fault.lasts_s[1]


def test_every_fault_names_moments_that_exist() -> None:
    assert {moment for fault in FAULTS for moment in fault.moments} <= set(MOMENTS)


@pytest.mark.parametrize(
    ("event", "what", "step"),
    [
        (StageEvent(key="0", kind="train", label="rcl-n2-s0", what="started"), "started", 0),
        (StageEvent(key="0", kind="bank", label="entropy+0.01 of x", what="started", message="1 MB in memory"), "started", 0),
        (StageEvent(key="0", kind="train", label="rcl-n2-s0", what="resumed", step=30, num_steps=300), "started", 0),
        (StageEvent(key="0", kind="train", label="rcl-n2-s0", what="step", step=30, num_steps=300, loss=1.5), "step", 30),
        (StageEvent(key="0", kind="train", label="rcl-n2-s0", what="dev", step=30, num_steps=300, task="stsb", score=70.0), "step", 30),
        (StageEvent(key="0", kind="scores", label="rcl-n2-s0", what="finished", seconds=1.0), "finished", 0),
        (StageEvent(key="0", kind="corpus", label="nli-triplets", what="failed", message="no room"), "failed", 0),
    ],
)
def test_the_lines_of_a_driver_are_understood(event: StageEvent, what: str, step: int) -> None:
    found = observed(SweepProgress({}).line(event), at=2.0, driver=1)
    assert found is not None
    assert (found.stage, found.what, found.step) == ((event.kind, event.label), what, step)


@pytest.mark.parametrize("line", ["", "tiny: 3 of 3 trials to run", "trial 1/3  base: stsb 88.81", "soak: main score × 100"])
def test_other_lines_tell_of_no_stage(line: str) -> None:
    assert observed(line, at=0.0, driver=0) is None


@pytest.mark.parametrize(
    ("events", "injected_at", "expected"),
    [
        ([_event("step", 1.0, step=30), _event("started", 5.0), _event("step", 6.0, step=30), _event("step", 7.0, step=60)], 2.0, 5.0),
        ([_event("step", 1.0, step=30), _event("finished", 9.0)], 2.0, 7.0),
        # The last one of those that were being made counts, and no later one.
        (
            [_event("started", 1.0, label="a"), _event("started", 1.0), _event("finished", 3.0), _event("finished", 6.0, label="a")],
            2.0,
            4.0,
        ),
        (
            [_event("started", 1.0), _event("started", 3.0, label="a"), _event("finished", 4.0), _event("finished", 9.0, label="a")],
            2.0,
            2.0,
        ),
        # What was reported just before is observed a moment later.
        ([_event("step", 1.0, step=30), _event("step", 2.1, step=60), _event("step", 8.0, step=90)], 2.0, 6.0),
        # Nothing was being made: the next stage.
        ([_event("finished", 1.0), _event("started", 3.0, label="a"), _event("finished", 5.0, label="a")], 2.0, 3.0),
        ([_event("finished", 1.0)], 2.0, None),
    ],
)
def test_recovery_is_when_all_that_was_being_made_has_come_further(
    events: list[Observed], injected_at: float, expected: float | None
) -> None:
    assert recovery_s(events, injected_at) == (None if expected is None else pytest.approx(expected))


def test_a_stage_that_is_done_twice_was_built_twice() -> None:
    one, other = _event("finished", 1.0), _event("finished", 2.0, label="base")
    assert built_twice([one, other]) == []
    assert built_twice([one, _event("finished", 3.0)]) == [("train", "rcl-s0")]
    # Two drivers at once get reports of the same work; one after another they must not.
    assert built_twice([one, _event("finished", 1.1, driver=1)]) == []
    assert built_twice([one, _event("finished", 9.0, driver=1)]) == [("train", "rcl-s0")]


@pytest.mark.parametrize(
    ("moment", "events", "checkpoints", "holds"),
    [
        ("the sweep has begun", [], {}, False),
        ("the sweep has begun", [_event("started", 0.0)], {}, True),
        ("a training is at a tenth", [_event("step", 0.0, step=9)], {}, False),
        ("a training is at a tenth", [_event("step", 0.0, step=10)], {}, True),
        ("a training is at a tenth", [_event("step", 0.0, step=10), _event("finished", 1.0)], {}, False),
        ("a training is at two thirds", [_event("step", 0.0, step=70)], {}, True),
        ("RCL trains on its banks", [_event("step", 0.0, step=70, label="entropy")], {}, False),
        ("a training has its second checkpoint", [], {"k": frozenset({"1"})}, False),
        ("a training has its second checkpoint", [], {"k": frozenset({"1", "2"})}, True),
        ("a bank is made", [_event("started", 0.0, kind="bank")], {}, True),
        ("a bank is made", [_event("started", 0.0, kind="bank"), _event("finished", 1.0, kind="bank")], {}, False),
        ("a bank is done", [_event("finished", 1.0, kind="bank")], {}, True),
        ("scores are made", [_event("started", 1.0, kind="scores")], {}, True),
    ],
)
def test_moments(moment: str, events: list[Observed], checkpoints: dict[str, frozenset[str]], holds: bool) -> None:
    assert MOMENTS[moment](Sight(events=events, checkpoints=checkpoints)) is holds


@pytest.mark.parametrize(
    ("title", "what"),
    [
        ("ray::BoardActor.events ", "BoardActor"),
        ("ray::ImplicitFunc.train ", "trial"),
        ("ray::train rcl-n2-s0 ", "stage"),
        ("ray::RayTrainWorker.poll_status ", "train worker"),
        ("ray::TrainController ", "train controller"),
        ("ray::EmbeddingBanks ", "bank owner"),
        ("ray::ShardMaker.work ", "pool worker"),
        ("/lib/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp/ray/session ", "raylet"),
        ("ray::IDLE ", None),
        ("python -m sentdist run ", None),
    ],
)
def test_processes_are_known_by_their_titles(title: str, what: str | None) -> None:
    assert Process(pid=1, host=0, title=title).what == what


def _artifact(store: Path, place: str, name: str, content: bytes) -> Path:
    folder = store / place
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    (folder / name).write_bytes(content)
    return folder / name


def test_a_flipped_byte_is_a_difference(tmp_path: Path) -> None:
    weights = _artifact(tmp_path, "train/a", "model.safetensors", b"1234")
    _artifact(tmp_path, "scores/a", "scores.json", b"{}")
    _artifact(tmp_path, ".staging/b", "scores.json", b"{}")
    expected = digests(tmp_path)
    assert list(expected) == ["scores/a/scores.json", "train/a/model.safetensors"]
    before = weights.stat()
    damage(weights)
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert differences(digests(tmp_path), expected) == ["train/a/model.safetensors differs from the undisturbed run"]
    damage(weights)
    assert differences(digests(tmp_path), expected) == []
    weights.unlink()
    assert differences(digests(tmp_path), expected) == ["train/a/model.safetensors is missing"]


def test_a_record_that_is_written_anew_has_another_mark(tmp_path: Path) -> None:
    _artifact(tmp_path, "train/a", "model.safetensors", b"1234")
    before = record_marks(tmp_path)
    assert list(before) == ["train/a"]
    assert record_marks(tmp_path) == before
    record = tmp_path / "train" / "a" / "record.json"
    record.with_suffix(".new").write_text("{}")
    os.replace(record.with_suffix(".new"), record)
    assert record_marks(tmp_path) != before


def _database(path: Path, *, status: str = "FINISHED", runs: int = 2, points: int = 1) -> Path:
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.executescript(
            "create table experiments (experiment_id int, name text);"
            "create table runs (run_uuid text, experiment_id int, status text, lifecycle_stage text);"
            "create table tags (run_uuid text, key text, value text);"
            "create table metrics (run_uuid text, key text, step int, value real);"
            "insert into experiments values (1, 'soak');"
        )
        for number in range(runs):
            rows.execute("insert into runs values (?, 1, ?, 'active')", (str(number), status))
            rows.execute("insert into tags values (?, 'sentdist.key', ?)", (str(number), f"key {number % 2}"))
            rows.executemany("insert into metrics values (?, 'loss', 5, 1.0)", [(str(number),)] * points)
    return path


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"status": "RUNNING"}, ["MLflow: a run is RUNNING"] * 2),
        ({"points": 2}, ["MLflow: step 5 of loss stands 2 times"] * 2),
        ({"runs": 1}, ["MLflow: 1 runs, not 2"]),
        ({"runs": 3}, ["MLflow: 2 runs for key 0", "MLflow: 3 runs, not 2"]),
        ({"runs": 0}, ["MLflow: 0 runs, not 2"]),
    ],
)
def test_what_is_wrong_on_mlflow(changes: dict[str, object], wrong: list[str], tmp_path: Path) -> None:
    assert tracking_faults(_database(tmp_path / "mlflow.db", **changes), "soak", num_runs=2) == wrong  # type: ignore[arg-type]


def test_the_page_counts_what_happened() -> None:
    def outcome(number: int, *injected: Injected, wrong: tuple[str, ...] = ()) -> Outcome:
        return Outcome(
            seed=0, number=number, variant="torch-1", injected=injected, submissions=2, seconds=20.0 + number, bytes_left={}, wrong=wrong
        )

    def one(fault: str, recovery_s: float | None, at_s: float | None = 3.0) -> Injected:
        return Injected(fault=fault, moment="a bank is made", lasts_s=0.0, at_s=at_s, recovery_s=recovery_s)

    reported = page(
        [
            outcome(0, one("kill -9 driver", 4.0), one("two drivers", None, at_s=None)),
            outcome(1, one("kill -9 driver", 8.0), one("store full", None), wrong=("a record was replaced",)),
        ],
        command="python -m tests.faults",
        machine="An idle machine.",
    )
    assert "**1 of 2 rounds**" in reported
    assert "submitted 4 times, a round took 20 (21) s" in reported
    assert "| kill -9 driver | 2 | 1 of 2 | 6 (8) | submits again |" in reported
    assert "| store full | 1 | 0 of 1 | – | submits again |" in reported
    assert "two drivers" not in reported
    assert "- round 1 (torch-1): a record was replaced" in reported


def test_a_soak_that_was_ended_goes_on_behind_its_last_round(tmp_path: Path) -> None:
    assert outcomes_in(tmp_path) == []
    played = Outcome(seed=3, number=0, variant="torch-1", injected=(), submissions=1, seconds=1.0, bytes_left={}, wrong=("something",))
    lines = [played.json, replace(played, number=1, wrong=()).json, replace(played, seed=4, number=2).json]
    (tmp_path / OUTCOMES).write_text("\n".join(lines) + "\n")
    assert not_played(range(4), 3, outcomes_in(tmp_path)) == [2, 3]


def test_an_outcome_survives_its_line() -> None:
    one = Injected(fault="two drivers", moment="a bank is made", lasts_s=0.0, at_s=3.0, recovery_s=None)
    outcome = Outcome(
        seed=0, number=3, variant="torch-2", injected=(one,), submissions=1, seconds=2.5, bytes_left={"temp": 3}, wrong=("a", "b")
    )
    assert outcome_of(outcome.json) == outcome


def test_final_figures_of_what_was_built_again_stand_twice(tmp_path: Path) -> None:
    database = _database(tmp_path / "mlflow.db", points=2)
    assert tracking_faults(database, "soak", num_runs=2, was_rebuilt=True) != []
    with closing(sqlite3.connect(database)) as rows, rows:
        rows.execute("update metrics set step = 0")
    assert tracking_faults(database, "soak", num_runs=2) != []
    assert tracking_faults(database, "soak", num_runs=2, was_rebuilt=True) == []
