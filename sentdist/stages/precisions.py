"""In which precision stages compute, held against the devices that there are."""

from __future__ import annotations

from collections.abc import Iterable

from sentdist.errors import ResourceError
from sentdist.plan.runtime import Runtime
from sentdist.plan.stage import Stage


def check_precisions(stages: Iterable[Stage], runtime: Runtime, *, old_gpu: str | None = None) -> None:
    """Hold what is to be built against the devices that were decided.

    old_gpu: the kind of a GPU older than Ampere that may be used; None: there is none.

    Raises:
        ResourceError: a stage computes in TensorFloat-32, and no GPU is used; or in that or bfloat16, and a GPU that may be used has none.
    """
    for stage in stages:
        precision = stage.precision_used
        where = f"{stage.kind} {stage.label}: precision={precision}"
        if precision == "tf32" and not runtime.gpus_per_worker:
            raise ResourceError(
                where=where,
                found="a computation on CPUs",
                expected="an NVIDIA GPU with TensorFloat-32 (Ampere or later)",
                remedy="Use fp32, which is the same everywhere, or bf16.",
            )
        if precision in ("tf32", "bf16") and runtime.gpus_per_worker and old_gpu:
            raise ResourceError(
                where=where,
                found=f"a GPU ({old_gpu}) without such products",
                expected="NVIDIA GPUs that have them (Ampere or later)",
                remedy="Use fp32, which is the same everywhere, or leave these GPUs out: runtime.gpu_type names the "
                "kind to use, on a cluster.",
            )
