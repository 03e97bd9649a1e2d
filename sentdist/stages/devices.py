"""Where one process computes: on a GPU, or on the CPU."""

from __future__ import annotations

import torch

from sentdist.errors import ResourceError, counted
from sentdist.plan.runtime import Runtime


def device_of(runtime: Runtime) -> torch.device:
    """The device of a process with this runtime, in which the number of GPUs is decided."""
    return torch.device("cuda" if runtime.gpus_per_worker and torch.cuda.is_available() else "cpu")


def on_this_machine(runtime: Runtime) -> tuple[Runtime, str]:
    """The runtime with its device decided for work in this process, and what to say of it: what is used, what lies idle and why.

    Raises:
        ResourceError: a GPU is asked for by `device`, and torch can use none.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    asked = runtime.gpus_asked
    if not num_gpus:
        if runtime.device == "cuda":
            raise ResourceError(
                where="runtime.device=cuda",
                found=f"no GPU that torch {torch.__version__} can use",
                expected="at least one",
                remedy="`sentdist doctor` says what is missing; or set runtime.device=auto.",
            )
        return runtime.with_gpus(0.0), "on the CPU" + (": torch can use no GPU here" if asked else "")
    if asked == 0:
        return runtime, f"on the CPU, as runtime.device or runtime.gpus_per_worker asks; idle: {counted(num_gpus, 'GPU')}"
    idle = f"; idle: {counted(num_gpus - 1, 'other GPU')} (one process uses one; a Ray cluster uses all)" if num_gpus > 1 else ""
    return runtime.with_gpus(1.0 if asked is None else min(asked, 1.0)), f"on {torch.cuda.get_device_name(0)}{idle}"
