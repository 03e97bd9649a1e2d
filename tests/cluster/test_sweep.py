"""Whole sweeps on a real cluster: the grid of the paper, submitted again, grown by a seed, killed half-way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import ResourceError
from sentdist.recipe.evaluation import overlaps_of
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.run.events import IN_FLIGHT, SENTENCES, STAGES
from tests.support.prometheus import rows
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
PHIS = [0.01, 0.02, 0.03]
LIGHT: Json = {"engine": "torch", "bank_in_object_store": False, "max_failures": 0}


def grid_values(encoder: Path, **changes: Json) -> dict[str, Json]:
    """The paper's grid with three φ in place of five and one batch size, on the tiny encoder: only rcl is reported."""
    methods = tiny_values(encoder)["methods"]
    assert isinstance(methods, dict)
    values: dict[str, Json] = {
        "name": "grid",
        "methods": {name: methods[name] for name in ("entropy", "rcl")},
        "baseline": None,
        "sweep": {"methods.rcl.phis": [PHIS[:number] for number in range(1, 4)]},
        "runtime": LIGHT,
    }
    return tiny_values(encoder, **(values | changes))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"), num_rows=16)


@pytest.fixture(scope="module")
def grid(cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The grid's plan, its store after the first submission, and the summary of that."""
    from sentdist.run.sweep import run_sweep

    plan, context = tiny_plan(grid_values(tiny_encoder_dir), data=data, store=tmp_path_factory.mktemp("store"))
    lines: list[str] = []
    return plan, context, run_sweep(plan, context, print_line=lines.append), lines


def trained(plan: Plan, objective: str) -> list[Train]:
    return [stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == objective]


@pytest.fixture
def no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that asks the cluster for its board fails at once."""
    from sentdist.run import sweep

    def refuse(*_: object) -> None:
        raise AssertionError("a board was asked for")

    monkeypatch.setattr(sweep, "BoardClient", refuse)


DRIVER = """
import json, os, sys
sys.path.insert(0, {root!r})
import ray
from pathlib import Path
from tests.support.tiny_data import tiny_plan
from sentdist.run.sweep import run_sweep
ray.init(address={address!r}, logging_level="ERROR", log_to_driver=False)
plan, context = tiny_plan(json.loads({values!r}), data=Path({data!r}), store={store!r})
run_sweep(plan, context, print_line=lambda line: print(line, flush=True))
"""


def test_the_papers_grid_builds_3_entropy_encoders_not_6(grid: Any) -> None:
    """Prometheus learns of them from the node's own port, under the names that the dashboard of cluster/monitoring asks for."""
    plan, context, summary, lines = grid
    assert not summary.failures, summary.lines
    assert len(plan.trials) == 3
    assert sum(plan.mentions[stage.key] for stage in trained(plan, "entropy")) == 6
    built = Counter(record["fields"]["objective"]["name"] for record in (a.record.stage for a in context.store.artifacts("train")))
    assert built == {"entropy": 3, "rcl": 3}
    assert summary.mentioned == {"corpus": 3, "train": 9, "bank": 6, "scores": 3}
    assert summary.built == {"corpus": 1, "train": 6, "bank": 3, "scores": 3}
    assert all(any(trial.name in line and "stsb" in line for line in lines) for trial in plan.trials)

    def finished() -> dict[str, float]:
        return {labels["kind"]: value for labels, value in rows(STAGES) if labels["what"] == "finished"}

    wait_for(lambda: all(finished().get(kind, 0) >= number for kind, number in summary.built.items()), what=f"{summary.built} reported")
    assert sum(value for _, value in rows(SENTENCES)) > 0 and rows(IN_FLIGHT)


@pytest.mark.usefixtures("no_board")
def test_submitting_again_builds_nothing_and_a_mis_sized_request_is_refused_before_anything_starts(
    grid: Any, data: Path, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    from sentdist.run.sweep import run_sweep

    plan, context, first, _ = grid
    left = Path(context.store.base) / "running" / trained(plan, "rcl")[0].key  # as if its host was lost right after it was published
    left.mkdir(parents=True)
    again = run_sweep(plan, context, print_line=lambda line: None)
    assert again.found == first.built and not +again.built and not left.exists()
    assert again.seconds < first.seconds / 4  # neither a board nor Tune: only the store is read
    values = tiny_values(tiny_encoder_dir, runtime={"workers": 4, "cpus_per_worker": 2})
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    with pytest.raises(ResourceError, match=r"4 workers with 2 CPUs each, on 1 node.* with 2 CPUs"):
        run_sweep(plan, context)
    assert list(context.store.artifacts()) == [] and context.store.files.names("sweeps") == []


def test_one_more_seed_builds_only_what_is_new(grid: Any, data: Path, tiny_encoder_dir: Path) -> None:
    from sentdist.run.sweep import run_sweep

    _, context, _, _ = grid
    wanted = grid_values(tiny_encoder_dir, seeds=[0, 1], sweep={"methods.rcl.phis": [PHIS[:1]]})
    plan, context = tiny_plan(wanted, data=data, store=context.store.root)
    more = run_sweep(plan, context, print_line=lambda line: None)
    assert not more.failures, more.lines
    assert more.found == {"corpus": 1, "train": 2, "bank": 1, "scores": 1}
    assert more.built == {"train": 2, "bank": 1, "scores": 1}


def test_a_killed_driver_loses_no_finished_stage(cluster: Any, data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.run.sweep import run_sweep

    values = grid_values(tiny_encoder_dir, sweep={"methods.rcl.phis": [PHIS[:1], PHIS[:2]]})
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    given = {"values": json.dumps(values), "data": str(data), "store": str(tmp_path / "store")}
    script = DRIVER.format(root=str(Path(__file__).parents[2]), address=cluster.address, **given)
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
