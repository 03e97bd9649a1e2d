"""Nothing holds a resource while it waits for another: said of every kind of stage,
and tried in every order that a cluster could choose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from sentdist.execution.capacity import pools_at_once
from sentdist.execution.demand import Demand, stage_demand
from sentdist.plan.corpora import CORPORA
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage
from sentdist.plan.stages import STAGES, Rung, Train
from sentdist.plan.unroll import unroll
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_data import tiny_values, write_data

EXECUTION = Path(__file__).parents[2] / "sentdist" / "execution"
NOT_ASKED_FOR = {"overlap", "encoded", "tokens"}  # made where they are needed, in a process that is there already
RUNTIMES = [
    Runtime(engine="torch"),
    Runtime(engine="torch", workers=2),
    Runtime(workers=2, zero_stage=2),
    Runtime(workers=3, gpus_per_worker=1),
    Runtime(engine="torch", workers=(1, 3)),
    Runtime(engine="torch", workers=1, gpus_per_worker=0.5),
]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    """One stage of each kind that a board is asked for."""
    values = tiny_values(Path("minilm-l6")) | {"targets": {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12}}
    values["evaluation"] = {"tasks": ["stsb"], "probes": {}}
    recipe = recipe_from_values(values, where="tiny")
    plan = unroll(recipe, FileResolver(data_root=write_data(tmp_path_factory.mktemp("data"))))
    found: dict[str, Stage] = {stage.kind: stage for stage in plan.stages}
    found["rung"] = Rung(of=next(stage for stage in plan.stages if isinstance(stage, Train)), share=0.5)
    return found | {kind.kind: kind.model_construct() for kind in CORPORA}


def test_every_kind_of_stage_says_what_it_reserves(stages: dict[str, Stage]) -> None:
    assert set(stages) == set(STAGES) - NOT_ASKED_FOR
    with pytest.raises(TypeError, match="nobody said"):
        stage_demand(STAGES["overlap"].model_construct(), Runtime())


@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_whoever_waits_for_workers_reserves_nothing(runtime: Runtime, stages: dict[str, Stage]) -> None:
    for kind, stage in stages.items():
        demand = stage_demand(stage, runtime)
        if demand.way == "task":
            assert (demand.workers, demand.builder_cpus, demand.builder_gpus) == (1, demand.num_cpus, demand.num_gpus), kind
        else:
            assert (demand.builder_cpus, demand.builder_gpus) == (0, 0), kind
            assert demand.stays or pools_at_once(trainings_at_once=1, workers=runtime.most_workers) >= 1, f"no room is made for {kind}"
        assert 1 <= demand.enough <= demand.workers


def test_processes_reserve_what_a_demand_says_or_nothing() -> None:
    """Wherever a process is asked for, with `num_cpus=` or in a dictionary of options."""
    for path in EXECUTION.rglob("*.py"):
        for value in _reservations(ast.parse(path.read_text())):
            is_nothing = isinstance(value, ast.Constant) and value.value == 0
            is_demand = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "demand"
            assert is_nothing or is_demand or path.name in ("demand.py", "capacity.py"), f"{path.name}:{value.lineno} reserves by itself"


def _reservations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) != "ray.init":  # which says what a cluster has
            yield from (keyword.value for keyword in node.keywords if keyword.arg in ("num_cpus", "num_gpus"))
        if isinstance(node, ast.Dict):
            names = {"num_cpus", "num_gpus"}
            yield from (
                value for name, value in zip(node.keys, node.values, strict=True) if isinstance(name, ast.Constant) and name.value in names
            )


@dataclass(frozen=True)
class Job:
    """A stage on its way, in units of one worker's reservation. holds: what it has. begun: its own process runs."""

    demand: Demand
    wanted: int  # workers that it takes in all
    at_a_time: int  # of them in one step
    builder: int  # what its own process holds while it waits for workers
    holds: int = 0
    begun: bool = False
    over: bool = False

    @staticmethod
    def of(demand: Demand, units: int) -> Job:
        """On a cluster of so many units, which is what a group that changes goes by."""
        wanted = min(demand.workers, units) if demand.change else demand.workers
        return Job(demand, wanted=wanted, at_a_time=wanted if demand.way == "group" else 1, builder=int(demand.builder_cpus > 0))

    def steps(self, free: int) -> Iterator[Job]:
        """What may become of it next while so many units are free."""
        if self.over:
            return
        if not self.begun:
            if self.builder <= free:
                yield replace(self, begun=True, holds=self.builder)
            return
        if self.holds < self.wanted and self.at_a_time <= free:
            yield replace(self, holds=self.holds + self.at_a_time)
        if self.holds >= self.demand.enough:
            yield replace(self, over=True, holds=0)


def stuck(jobs: tuple[Job, ...], units: int) -> tuple[Job, ...] | None:
    """A state that jobs can come to on so many units and that none of them can leave; None if there is no such state."""
    seen, open_states = {jobs}, [jobs]
    while open_states:
        state = open_states.pop()
        free = units - sum(job.holds for job in state)
        after = [(*state[:place], step, *state[place + 1 :]) for place, job in enumerate(state) for step in job.steps(free)]
        if not after and not all(job.over for job in state):
            return state
        fresh = set(after) - seen
        seen |= fresh
        open_states.extend(fresh)
    return None


@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_any_three_stages_at_once_end_on_the_smallest_cluster_that_carries_one(runtime: Runtime, stages: dict[str, Stage]) -> None:
    demands = {stage_demand(stage, runtime) for stage in stages.values()}
    demands |= {replace(demand, num_gpus=0.0) for demand in demands}
    smallest = max(demand.enough for demand in demands)
    for some in combinations_with_replacement(sorted(demands, key=str), 3):
        found = stuck(tuple(Job.of(demand, smallest) for demand in some), smallest)
        assert found is None, found


def test_the_search_finds_what_used_to_hang() -> None:
    pool = Demand(way="pool", workers=2, num_cpus=1.0, num_gpus=0.0)
    assert stuck((Job.of(pool, 1), Job.of(pool, 1)), 1) is None
    # Ray Data: workers that wait for a task which reads their input and wants a CPU too, so that no one worker is enough
    reads = replace(pool, way="group")
    assert stuck((replace(Job.of(reads, 2), at_a_time=1), replace(Job.of(reads, 2), at_a_time=1)), 2) is not None
    # a driver that reserves a unit itself while it waits
    assert stuck((replace(Job.of(pool, 2), builder=1, demand=reads), replace(Job.of(pool, 2), builder=1, demand=reads)), 2) is not None
