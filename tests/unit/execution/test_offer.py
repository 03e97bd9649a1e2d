"""What a cluster, or this process, is asked before anything is built: devices, precisions, what takes no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import ResourceError
from sentdist.execution import sweep
from sentdist.execution.cluster.growth import Growth
from sentdist.execution.resources import Node
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES, shipped_plan


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
    monkeypatch.setattr(sweep, "cluster_growth", lambda: Growth(living=nodes))
    plan, context = demo(tmp_path, *settings)
    to_build = frozenset(stage.key for stage in plan.stages)
    if refused is None:
        sweep.offered_to(plan, context, to_build)
        return
    with pytest.raises(ResourceError, match=refused):
        sweep.offered_to(plan, context, to_build)
