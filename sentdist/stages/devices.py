"""Choose the device of a process, GPU or CPU, and check that it has the precisions of its stages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sentdist.errors import ResourceError, counted
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage

if TYPE_CHECKING:  # seconds to import: drivers do without
    import torch


def device_of(runtime: Runtime) -> torch.device:
    """Return the device of a process with this runtime, whose number of GPUs is decided."""
    import torch

    return torch.device("cuda" if runtime.gpus_per_worker and torch.cuda.is_available() else "cpu")


def old_gpu_here(runtime: Runtime) -> str | None:
    """Return the name of this process's GPU if it is older than Ampere, else None."""
    import torch

    from sentdist.learning.precision import old_gpu

    return old_gpu(torch.device("cuda")) if runtime.gpus_per_worker else None


def why_unusable() -> str | None:
    """Return why torch can use no GPU here, with the versions of torch and CUDA; None if it can use the current one."""
    import torch

    built = f"torch {torch.__version__}, " + (f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA")
    if not torch.cuda.is_available():
        return built
    oldest = min((int(name[3:].rstrip("af")) for name in torch.cuda.get_arch_list() if name.startswith("sm_")), default=0)
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor < oldest:
        needed = f"{oldest // 10}.{oldest % 10}"
        return f"{built} and GPUs of compute capability {needed} or newer; {torch.cuda.get_device_name()} has {major}.{minor}"
    return None


def usable_gpus() -> int:
    """Return the number of GPUs that torch can use here."""
    import torch

    return 0 if why_unusable() else torch.cuda.device_count()


def left_out_here(runtime: Runtime) -> str:
    """Return a note on settings of a recipe for a Ray cluster that a single process ignores; "" if there are none."""
    ignored = [f"runtime.workers={runtime.most_workers}"] if runtime.most_workers > 1 else []
    ignored += [f"runtime.zero_stage={runtime.zero_stage}"] if runtime.zero_stage else []
    ignored += [f"runtime.gpu_type={runtime.gpu_type}"] if runtime.gpu_type else []
    return f"; for a Ray cluster only: {', '.join(ignored)}" if ignored else ""


def on_this_machine(runtime: Runtime) -> tuple[Runtime, str]:
    """Return the runtime with its device decided for this process, and a note: the device used, or why no GPU.

    A fraction of a GPU counts as a whole one: one process does not share it or limit its memory.

    Raises:
        ResourceError: `device` asks for a GPU, and torch can use none.
    """
    import torch

    from sentdist.learning.freed_memory import keep_gpu_memory_whole

    asked = runtime.gpus_asked
    if asked != 0:
        keep_gpu_memory_whole()  # before torch first uses the GPU
    why = why_unusable()
    if why and runtime.device == "cuda":
        raise ResourceError(
            where="runtime.device=cuda", found=f"no GPU that torch can use ({why})", expected="at least one",
            remedy="`sentdist doctor` says what is missing; or set runtime.device=auto.",
        )  # fmt: skip
    if why:
        return runtime.with_gpus(0.0), "on the CPU" + (f": torch can use no GPU here ({why})" if asked else "")
    if asked == 0:
        return runtime, "on the CPU, as runtime.device or runtime.gpus_per_worker asks"
    num_idle = torch.cuda.device_count() - 1
    idle = f"; idle: {counted(num_idle, 'other GPU')} (one process uses one; a Ray cluster uses all)" if num_idle else ""
    return runtime.with_gpus(1.0), f"on {torch.cuda.get_device_name(0)}{idle}"


def check_precisions(stages: Iterable[Stage], runtime: Runtime, *, old_gpu: str | None = None) -> None:
    """Check that the chosen devices support the precision of every stage.

    Args:
        old_gpu: Kind of a GPU older than Ampere that may be used; None: there is none.

    Raises:
        ResourceError: TensorFloat-32 without a GPU; or TensorFloat-32 or bfloat16 with a GPU that lacks it.
    """
    for stage in stages:
        precision = stage.precision_used
        on_gpu = bool(runtime.gpus_per_worker)
        if (precision == "tf32" and not on_gpu) or (precision in ("tf32", "bf16") and on_gpu and old_gpu):
            raise ResourceError(
                where=f"{stage.kind} {stage.label}: precision={precision}",
                found=f"a GPU ({old_gpu}) without this precision" if on_gpu else "a computation on CPUs",
                expected="NVIDIA GPUs that have it (Ampere or later)",
                remedy="Use fp32, which all devices have, or name a newer kind in runtime.gpu_type.",
            )
