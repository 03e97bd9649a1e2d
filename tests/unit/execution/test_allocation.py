"""What a cluster, or this process, is asked before anything is built: devices, precisions, what takes no effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sentdist.errors import ResourceError
from sentdist.execution import build_recipe as local_sweep
from sentdist.execution import sweep
from sentdist.execution.cluster.nodes import ClusterNodes, Node
from sentdist.execution.searching import on_cluster
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe


def demo(tmp_path: Path, *settings: str) -> tuple[Plan, Context]:
    plan = shipped_plan(RECIPES / "demo.yaml", *settings)
    return plan, Context(store=ArtifactStore(tmp_path / "store"), runtime=plan.recipe.runtime)


@pytest.mark.parametrize(
    ("settings", "kind", "refused"),
    [
        (["training.precision=bf16"], "T4", r"precision=bf16: found a GPU \(T4\)"),
        (["training.precision=bf16"], None, None),
        (["training.precision=bf16", "runtime.device=cpu"], "T4", None),
    ],
)
def test_what_would_end_on_a_gpu_is_refused_before_it_starts(
    settings: list[str], kind: str | None, refused: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = tuple(Node(cpus=8, gpus=1, old_gpu=name) for name in (None, kind))
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=nodes))
    plan, context = demo(tmp_path, *settings)
    to_build = frozenset(stage.key for stage in plan.stages)
    if refused is None:
        sweep.allocate(plan, context, to_build)
        return
    with pytest.raises(ResourceError, match=refused):
        sweep.allocate(plan, context, to_build)


def test_gpus_of_another_kind_than_is_asked_for_are_reported_as_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tuple(Node(cpus=8, gpus=gpus, gpu_types=(kind,)) for gpus, kind in ((2, "H100"), (3, "T4")))
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=nodes))
    for settings, line in (
        (["runtime.gpu_type=H100"], "on 2 GPU(s); idle: 3 of another kind (runtime.gpu_type=H100)"),
        ([], "on 5 GPU(s)"),
    ):
        plan, context = demo(tmp_path, *settings)
        assert sweep.allocate(plan, context, frozenset(stage.key for stage in plan.stages)).devices == line


@pytest.mark.parametrize(("gib", "enough"), [(80, True), (4, False)])
def test_a_worker_has_as_much_of_a_gpu_as_it_takes_by_estimate(
    gib: int, enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be stopped there by the bound of its part."""
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=(Node(cpus=16, gpus=1, gpu_bytes=gib * 2**30),)))
    plan, context = demo(tmp_path, "runtime.gpus_per_worker=0.1")
    found = sweep.allocate(plan, context, frozenset(stage.key for stage in plan.stages))
    share = found.context.runtime.gpus_per_worker
    _, takes = sweep._largest_worker(plan, found.context, frozenset(stage.key for stage in plan.stages))
    assert (share == 0.1) == enough and share * gib * 2**30 >= takes
    assert any("A worker takes about" in note for note in found.notes) != enough


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["seeds=[0]"], "on 1 GPU(s); idle: 7 (bound by the recipe: 1 of its stages at once)"),
        (["seeds=[0]", "runtime.workers=4"], "on 4 GPU(s); idle: 4 (bound by the recipe: 1 of its stages at once)"),
        (["seeds=[0,1,2]"], "on 3 GPU(s); idle: 5 (bound by the recipe: 3 of its stages at once)"),
        (["seeds=[0,1,2,3,4,5,6,7]"], "on 8 GPU(s)"),
        (["seeds=[0,1,2,3,4,5,6,7]", "runtime.max_concurrent_trials=3"], "on 3 GPU(s); idle: 5 (bound by runtime.max_concurrent_trials=3)"),
        (
            ["seeds=[0,1,2,3]", "runtime.max_concurrent_trials=1", "runtime.workers=2"],
            "on 2 GPU(s); idle: 6 (bound by runtime.max_concurrent_trials=1)",
        ),
        (["seeds=[0,1,2]", "runtime.max_concurrent_trials=3"], "on 3 GPU(s); idle: 5 (bound by the recipe: 3 of its stages at once)"),
        (["seeds=[0,1,2,3,4,5,6,7]", "runtime.max_concurrent_trials=1", "runtime.workers=8"], "on 8 GPU(s)"),
    ],
)
def test_gpus_for_which_a_recipe_has_no_work_are_reported(
    settings: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training and its scores follow one another, so one seed keeps one GPU busy, whatever the cluster has."""
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=(Node(cpus=16, gpus=8),)))
    monkeypatch.setattr(sweep, "begin_sweep", Mock(side_effect=InterruptedError))
    allocated: list[sweep.ClusterAllocation] = []
    allocate = sweep.allocate
    monkeypatch.setattr(sweep, "allocate", lambda *given, **named: allocated.append(allocate(*given, **named)) or allocated[0])
    plan, context = demo(tmp_path, *settings)
    plan = replace(plan, trials=tuple(trial for trial in plan.trials if trial.method == "fine_tuned"))
    with pytest.raises(InterruptedError):
        sweep.run_sweep(plan, context)
    assert [one.devices for one in allocated] == [line]


def test_a_trial_that_builds_several_stages_at_once_keeps_as_many_gpus_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RCL's entropy encoders, here two, for one trial at a time."""
    plan = plan_of(small_recipe(runtime={"engine": "torch", "max_concurrent_trials": 1}))
    keys = frozenset(stage.key for stage in plan.stages)
    assert sweep.stages_at_once(plan.trials, keys)[0] == max(len(_banks(trial)) for trial in plan.trials) == 2
    assert sweep.stages_at_once(plan.trials, frozenset()) == [0] * len(plan.trials), "what is there is not built"
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=(Node(cpus=16, gpus=8),)))
    context = Context(store=ArtifactStore(tmp_path / "store"), runtime=plan.recipe.runtime)
    line = sweep.allocate(plan, context, keys, work=sweep._work_of(plan, plan.trials, keys)).devices
    assert line == "on 2 GPU(s); idle: 6 (bound by runtime.max_concurrent_trials=1)"


def _banks(trial: Any) -> tuple[Any, ...]:
    return getattr(trial.scores.encoder, "banks", ())


@pytest.mark.parametrize(
    ("at_once", "settings", "line"),
    [
        (None, {}, "on 8 GPU(s)"),
        (3, {}, "on 6 GPU(s); idle: 2 (bound by 3 trials at once)"),
        (None, {"max_concurrent_trials": 1}, "on 2 GPU(s); idle: 6 (bound by runtime.max_concurrent_trials=1)"),
    ],
)
def test_a_search_tells_the_same_of_its_trials(
    at_once: int | None, settings: dict[str, Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(small_recipe(runtime={"engine": "torch"} | settings))
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=(Node(cpus=16, gpus=8),)))
    context = Context(store=ArtifactStore(tmp_path / "store"), runtime=plan.recipe.runtime)
    keys = frozenset(stage.key for stage in plan.stages)
    assert sweep.allocate(plan, context, keys, work=on_cluster._work_of(plan, at_once)).devices == line


@pytest.mark.parametrize(
    ("settings", "said"), [(["runtime.engine=deepspeed", "runtime.workers=2", "runtime.zero_stage=2"], True), ([], False)]
)
def test_what_takes_no_effect_in_one_process_is_reported(
    settings: list[str], said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--local` passed over both without a word."""

    def nothing(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    for name in ("begin_sweep", "build_past_failures", "build_overlaps"):
        monkeypatch.setattr(local_sweep, name, nothing)
    lines: list[str] = []
    local_sweep.build_locally(*demo(tmp_path, "runtime.device=cpu", *settings), print_line=lines.append)
    reported = "runtime.workers=2 and runtime.zero_stage=2 are for a Ray cluster"
    assert any(reported in line for line in lines) is said, lines
    assert said or not any("Ray cluster" in line for line in lines)
