"""Whole sweeps on a real cluster: the paper's grid, submitted again, grown by a seed, killed half-way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import ResourceError, TrainingDiverged
from sentdist.execution.prometheus import IN_FLIGHT, SENTENCES, STAGES
from sentdist.plan.evaluation import overlaps_of
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.tracking.tracker import NullTracker, RunOutcome
from tests.support.prometheus import rows
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

PHIS = [0.01, 0.02, 0.03]
LIGHT: Json = {"engine": "torch", "bank_in_object_store": False, "max_failures": 0}


class LastWord(NullTracker):
    """Keeps how sweeps ended."""

    def __init__(self) -> None:
        self.said: list[RunOutcome | None] = []

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        self.said.append(outcome)

    def __reduce__(self) -> tuple[object, ...]:
        return NullTracker, ()  # workers know nothing of this module


def grid_values(encoder: Path, **changes: Json) -> dict[str, Json]:
    """The paper's grid with three φ in place of five, 2 batch sizes × 3 φ sets, on the tiny encoder: only rcl is reported."""
    methods = tiny_values(encoder)["methods"]
    assert isinstance(methods, dict)
    values: dict[str, Json] = {
        "name": "grid",
        "methods": {name: methods[name] for name in ("entropy", "rcl")},
        "baseline": None,
        "sweep": {"training.batch_size": [4, 8], "methods.rcl.phis": [PHIS[:number] for number in range(1, 4)]},
        "runtime": LIGHT,
    }
    return tiny_values(encoder, **(values | changes))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"), num_rows=16)


@pytest.fixture(scope="module")
def grid(cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The grid's plan, its store after the first submission, and the summary of that."""
    from sentdist.execution.sweep import run_sweep

    plan, context = tiny_plan(grid_values(tiny_encoder_dir), data=data, store=tmp_path_factory.mktemp("store"))
    lines: list[str] = []
    return plan, context, run_sweep(plan, context, print_line=lines.append), lines


def trained(plan: Plan, objective: str) -> list[Train]:
    return [stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == objective]


def test_the_papers_grid_builds_6_entropy_encoders_not_12(grid: Any) -> None:
    plan, context, summary, _ = grid
    assert not summary.failures, summary.lines
    assert len(plan.trials) == 6
    entropy = trained(plan, "entropy")
    assert sum(plan.mentions[stage.key] for stage in entropy) == 12
    built = Counter(record["fields"]["objective"]["name"] for record in (a.record.stage for a in context.store.artifacts("train")))
    assert built == {"entropy": 6, "rcl": 6}
    assert summary.mentioned == {"corpus": 6, "train": 18, "bank": 12, "scores": 6}
    assert summary.built == {"corpus": 1, "train": 12, "bank": 6, "scores": 6}


def test_every_cell_is_reported_with_its_scores(grid: Any) -> None:
    plan, _, _, lines = grid
    assert all(any(trial.name in line and "stsb" in line for line in lines) for trial in plan.trials)


def test_prometheus_learns_of_stages_and_sentences(grid: Any) -> None:
    """From the node's own port, under the names that the dashboard of cluster/monitoring asks for."""
    _, _, summary, _ = grid

    def finished() -> dict[str, float]:
        return {labels["kind"]: value for labels, value in rows(STAGES) if labels["what"] == "finished"}

    wait_for(
        lambda: all(finished().get(kind, 0) >= number for kind, number in summary.built.items()), what=f"{summary.built} stages reported"
    )
    assert sum(value for _, value in rows(SENTENCES)) > 0
    assert rows(IN_FLIGHT)


@pytest.fixture
def no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that asks the cluster for its board fails at once."""
    from sentdist.execution import sweep

    def refuse(*_: object) -> None:
        raise AssertionError("a board was asked for")

    monkeypatch.setattr(sweep, "BoardClient", refuse)


@pytest.mark.usefixtures("no_board")
def test_submitting_again_builds_nothing(grid: Any) -> None:
    from sentdist.execution.sweep import run_sweep

    plan, context, first, _ = grid
    left = Path(context.store.base) / "running" / trained(plan, "rcl")[0].key  # as if its host was lost right after it was published
    left.mkdir(parents=True)
    again = run_sweep(plan, context, print_line=lambda line: None)
    assert again.found == first.built
    assert not left.exists()
    assert not +again.built
    assert again.seconds < first.seconds / 4  # neither a board nor Tune: only the store is read


def test_one_more_seed_builds_only_what_is_new(grid: Any, data: Path, tiny_encoder_dir: Path) -> None:
    from sentdist.execution.sweep import run_sweep

    _, context, _, _ = grid
    wanted = grid_values(tiny_encoder_dir, seeds=[0, 1], sweep={"training.batch_size": [8], "methods.rcl.phis": [PHIS[:1]]})
    plan, context = tiny_plan(wanted, data=data, store=context.store.root)
    more = run_sweep(plan, context, print_line=lambda line: None)
    assert not more.failures, more.lines
    assert more.found == {"corpus": 1, "train": 2, "bank": 1, "scores": 1}
    assert more.built == {"train": 2, "bank": 1, "scores": 1}


DRIVER = """
import json, os, sys
sys.path.insert(0, {root!r})
import ray
from pathlib import Path
from tests.support.prometheus import rows
from tests.support.tiny_data import tiny_plan
from sentdist.execution.sweep import run_sweep
ray.init(address={address!r}, logging_level="ERROR", log_to_driver=False)
plan, context = tiny_plan(json.loads({values!r}), data=Path({data!r}), store={store!r})
run_sweep(plan, context, print_line=lambda line: print(line, flush=True))
"""


@pytest.mark.in_turns(2)
def test_a_killed_driver_loses_no_finished_stage(cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.execution.sweep import run_sweep

    values = grid_values(tiny_encoder_dir, sweep={"methods.rcl.phis": [PHIS[:1], PHIS[:2]]})
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    script = DRIVER.format(
        root=str(Path(__file__).parents[2]),
        address=cluster.address,
        values=json.dumps(values),
        data=str(data),
        store=str(tmp_path / "store"),
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            if "bank" in line and "done" in line:
                break
        driver.kill()
    finished = {artifact.key: artifact.record.created_at for artifact in context.store.artifacts()}
    assert 0 < len(finished) < len(plan.stages)
    summary = run_sweep(plan, context, print_line=lambda line: None)
    assert not summary.failures, summary.lines
    records = {artifact.key: artifact.record.created_at for artifact in context.store.artifacts()}
    tokens = {artifact.key for artifact in context.store.artifacts("tokens")}  # which trainings make for one another
    assert set(records) - tokens == {stage.key for stage in (*plan.stages, *overlaps_of(plan))}
    assert all(records[key] == created_at for key, created_at in finished.items())


@pytest.mark.nightly
def test_a_stopped_sweep_says_so_and_goes_on_when_it_is_submitted_again(
    cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    from sentdist.execution.board.client import stop_sweeps
    from sentdist.execution.sweep import run_sweep

    values = grid_values(tiny_encoder_dir, name="ended", sweep={"methods.rcl.phis": [PHIS[:1], PHIS[:2], PHIS[:3]]})
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    lines: list[str] = []
    tracker = LastWord()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_sweep, plan, context, tracker=tracker, print_line=lines.append)
        wait_for(lambda: running.done() or any("bank" in line and "done" in line for line in lines), what="the first bank")
        (stopped,) = stop_sweeps("ended")
        summary = running.result(timeout=60)
    assert stopped.num_ended > 0
    assert summary.was_stopped
    assert 0 < len(summary.failures) <= 3
    assert "ended: being stopped by `sentdist stop`" in lines
    assert not any("FAILED" in line for line in lines)
    assert f"STOPPED by `sentdist stop`, {len(summary.failures)} trial" in lines[-1]
    assert tracker.said == ["stopped"]
    again = run_sweep(plan, context, print_line=lambda line: None)
    assert not again.failures, again.lines
    assert again.found["bank"] > 0


@pytest.mark.nightly
def test_a_diverging_cell_is_named_and_the_others_are_kept(cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from ray import tune

    from sentdist.execution.sweep import run_sweep
    from sentdist.execution.trials import config_of

    values = tiny_values(
        tiny_encoder_dir,
        methods={"base": {}, "wild": {"objective": {"name": "info_nce", "temperature": 1e-30}, "select": False}},
        baseline=None,
        runtime=LIGHT,
    )
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    summary = run_sweep(plan, context, print_line=lambda line: None)
    (failure,) = summary.failures
    assert failure.name.startswith("wild")
    assert type(failure.error) is TrainingDiverged
    assert failure.error.remedy
    assert summary.built["scores"] == 1
    kept = tune.ExperimentAnalysis(str(Path(context.store.base) / "tune" / plan.recipe.name))  # what a user of Tune's opens
    by_key = {trial.key: trial for trial in plan.trials}
    assert {trial.config["trial"]: trial.status for trial in kept.trials} == {
        key: "ERROR" if key in {failure.key for failure in summary.failures} else "TERMINATED" for key in by_key
    }
    assert all(trial.config == config_of(by_key[trial.config["trial"]]) for trial in kept.trials)


@pytest.mark.usefixtures("no_board")
def test_a_mis_sized_request_is_refused_before_anything_starts(cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.execution.sweep import run_sweep

    values = tiny_values(tiny_encoder_dir, runtime={"workers": 4, "cpus_per_worker": 2})
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    with pytest.raises(ResourceError, match=r"4 × 2 CPUs = 8 CPUs, on 1 node.* with 2 CPUs"):
        run_sweep(plan, context)
    assert list(context.store.artifacts()) == []
    assert context.store.files.names("sweeps") == []
