"""Choose the device of a process, GPU or CPU, and report GPUs that stay idle."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from sentdist.errors import ResourceError, counted
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.learning.precision import old_gpu
from sentdist.recipe.sections import Runtime


def device_of(runtime: Runtime) -> torch.device:
    """Return the device of a process with this runtime, whose number of GPUs is decided."""
    return torch.device("cuda" if runtime.gpus_per_worker and torch.cuda.is_available() else "cpu")


def old_gpu_here(runtime: Runtime) -> str | None:
    """Return the name of this process's GPU if it is older than Ampere, else None."""
    return old_gpu(torch.device("cuda")) if runtime.gpus_per_worker else None


def why_unusable() -> str | None:
    """Return why torch can use no GPU here, with the versions of torch and CUDA; None if it can use the current one."""
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
    return 0 if why_unusable() else torch.cuda.device_count()


def left_out_here(runtime: Runtime) -> str:
    """Return a note on settings of a recipe for a Ray cluster that a single process ignores; "" if there are none."""
    asked = [f"runtime.workers={runtime.most_workers}"] if runtime.most_workers > 1 else []
    asked += [f"runtime.zero_stage={runtime.zero_stage}"] if runtime.zero_stage else []
    width = f"; one worker with the whole state: {' and '.join(asked)} {'are' if asked[1:] else 'is'} for a Ray cluster" if asked else ""
    return width + (f"; runtime.gpu_type={runtime.gpu_type} is for a Ray cluster" if runtime.gpu_type else "")


def _num_there(dev: Path = Path("/dev")) -> int:
    """GPUs of NVIDIA's driver, usable by torch or not."""
    return sum(path.name[6:].isdigit() for path in dev.glob("nvidia*"))


def _left_idle(why: str, num_there: int) -> str:
    if not num_there:
        return ""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return f"; idle: {counted(num_there, 'GPU')}, hidden by CUDA_VISIBLE_DEVICES"
    return f"; idle: {counted(num_there, 'GPU')} that torch cannot use ({why}): `sentdist doctor` says what to do"


def on_this_machine(runtime: Runtime) -> tuple[Runtime, str]:
    """Return the runtime with its device decided for this process, and a note: the device used, idle GPUs and why.

    A fraction of a GPU counts as a whole one: one process does not share it or limit its memory.

    Raises:
        ResourceError: `device` asks for a GPU, and torch can use none.
    """
    asked = runtime.gpus_asked
    if asked != 0:
        keep_gpu_memory_whole()  # before torch first uses the GPU
    why = why_unusable()
    num_gpus = 0 if why else torch.cuda.device_count()
    if why:
        if runtime.device == "cuda":
            raise ResourceError(
                where="runtime.device=cuda", found=f"no GPU that torch can use ({why})", expected="at least one",
                remedy="`sentdist doctor` says what is missing; or set runtime.device=auto.",
            )  # fmt: skip
        return runtime.with_gpus(0.0), "on the CPU" + (": torch can use no GPU here" if asked else "") + _left_idle(why, _num_there())
    if asked == 0:
        return runtime, f"on the CPU, as runtime.device or runtime.gpus_per_worker asks; idle: {counted(num_gpus, 'GPU')}"
    idle = f"; idle: {counted(num_gpus - 1, 'other GPU')} (one process uses one; a Ray cluster uses all)" if num_gpus > 1 else ""
    return runtime.with_gpus(1.0), f"on {torch.cuda.get_device_name(0)}{idle}"
