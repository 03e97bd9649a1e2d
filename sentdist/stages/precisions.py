"""In which precision stages compute, held against the devices that there are."""

from __future__ import annotations

from collections.abc import Iterable

from sentdist.errors import ResourceError
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.runtime import Runtime
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Bank, Encoded, Overlap, Rung, Scores, Targets, Tokens, Train


def check_precisions(stages: Iterable[Stage], runtime: Runtime) -> None:
    """Hold what is to be built against the devices that were decided.

    Raises:
        ResourceError: a stage computes in TensorFloat-32, and no GPU is used.
    """
    wanting = next((stage for stage in stages if precision_of(stage) == "tf32"), None)
    if wanting is not None and not runtime.gpus_per_worker:
        raise ResourceError(
            where=f"{wanting.kind} {wanting.label}: precision=tf32",
            found="a computation on CPUs",
            expected="an NVIDIA GPU with TensorFloat-32 (Ampere or later)",
            remedy="Use fp32, which is the same everywhere, or bf16.",
        )


def precision_of(stage: Stage) -> str | None:
    """In which the stage computes; None for one that multiplies nothing."""
    match stage:
        case (Train() as train) | Rung(of=train):
            return train.training.precision
        case Bank() | Scores() | Encoded():
            return stage.precision
        case CorpusStage() | Targets() | Overlap() | Tokens():
            return None
    raise TypeError(f"nobody said in which precision the stage {stage.kind} computes")
