"""TensorFloat-32 and bfloat16 are refused before any work starts where nothing computes in them."""

from __future__ import annotations

import pytest

from sentdist.errors import ResourceError
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import STAGES
from sentdist.stages.gpu_memory import check_precisions
from tests.support.planning import RECIPES, shipped_plan


def test_every_kind_of_stage_that_has_a_precision_is_asked_for_it() -> None:
    stages = {type(stage): stage for stage in shipped_plan(RECIPES / "demo.yaml").stages}
    having = {kind for kind in STAGES.values() if "precision" in kind.model_fields or "training" in kind.model_fields}
    assert having >= {kind for kind, stage in stages.items() if stage.precision_used is not None}
    assert all(stages[kind].precision_used == "fp32" for kind in having & set(stages))
    assert {kind.__name__ for kind in having} == {"Train", "Bank", "Scores", "Encoded"}


def test_a_sweep_in_tf32_is_refused_on_cpus_and_goes_on_with_gpus() -> None:
    stages = shipped_plan(RECIPES / "demo.yaml", "training.precision=tf32").stages
    with pytest.raises(ResourceError, match=r"(?s)precision=tf32.*on CPUs.*Use fp32"):
        check_precisions(stages, Runtime().with_gpus(0.0))
    check_precisions(stages, Runtime().with_gpus(1.0))
    check_precisions(shipped_plan(RECIPES / "demo.yaml").stages, Runtime().with_gpus(0.0))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_sweep_is_refused_where_a_gpu_is_too_old_for_its_precision(precision: str) -> None:
    stages = shipped_plan(RECIPES / "demo.yaml", f"training.precision={precision}").stages
    with pytest.raises(ResourceError, match=rf"(?s)precision={precision}: found a GPU \(T4\) without such products.*Use fp32"):
        check_precisions(stages, Runtime().with_gpus(1.0), old_gpu="T4")
    check_precisions(shipped_plan(RECIPES / "demo.yaml").stages, Runtime().with_gpus(1.0), old_gpu="T4")
    if precision == "bf16":
        check_precisions(stages, Runtime().with_gpus(0.0), old_gpu="T4")
