"""Limit a worker to its reserved CPUs and GPU memory. Nothing here imports Ray Train, which workers of pools do not need."""

from __future__ import annotations

import socket

import torch

from sentdist.errors import ResourceError
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.learning.precision import flush_subnormals
from sentdist.run.resources import Demand
from sentdist.stages.fit import why_unusable

# Memory of CUDA's context and kernels on a GPU, which torch does not count: about as reported for A100 and H100; not measured here.
CONTEXT_BYTES = 0.6 * 2**30


def use_reserved(demand: Demand) -> None:
    """Limit torch to the CPUs and the share of GPU memory that this worker has reserved. Call it before any computation.

    Raises:
        ResourceError: torch cannot use the reserved GPU.
    """
    torch.set_num_threads(max(1, int(demand.num_cpus)))
    flush_subnormals()
    if not demand.num_gpus:
        return
    check_gpu()
    # Also for a whole GPU: a process that stays may have built a stage with a fraction before.
    torch.cuda.set_per_process_memory_fraction(_bound(demand.num_gpus))


def check_gpu() -> None:
    """Check that torch can use the reserved GPU.

    Raises:
        ResourceError: torch cannot use it.
    """
    keep_gpu_memory_whole()  # before torch is asked anything of the GPU
    if why := why_unusable():
        raise ResourceError(
            where="runtime.gpus_per_worker",
            found=f"a node with a GPU that torch cannot use ({socket.gethostname()}: {why})",
            expected="a torch for CUDA and a driver that is new enough for it",
            remedy="Look at `nvidia-smi` and install torch for CUDA on that node, or set runtime.gpus_per_worker=0.",
        )


def _bound(num_gpus: float) -> float:
    """The fraction of GPU memory that torch may allocate: those of several processes and their CUDA contexts fit on the GPU together."""
    if num_gpus >= 1:
        return 1.0
    return max(num_gpus / 2, num_gpus - CONTEXT_BYTES / torch.cuda.get_device_properties().total_memory)
