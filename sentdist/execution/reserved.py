"""A worker uses no more of its node than it has reserved. Nothing here imports Ray Train, which workers of pools never need."""

from __future__ import annotations

import socket

import torch

from sentdist.errors import ResourceError
from sentdist.execution.demand import Demand
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.learning.precision import flush_subnormals
from sentdist.stages.devices import why_unusable

# A process keeps so much on a GPU beside what torch allocates: CUDA's context and kernels. About as much as is reported of A100 and H100;
# not measured here.
CONTEXT_BYTES = 0.6 * 2**30


def use_reserved(demand: Demand) -> None:
    """Let torch use no more than this worker has reserved: its CPUs, not all of the node's, and its share of a GPU's memory. Called before
    it computes anything.

    Raises:
        ResourceError: it has reserved a GPU that torch cannot use.
    """
    torch.set_num_threads(max(1, int(demand.num_cpus)))
    flush_subnormals()
    if not demand.num_gpus:
        return
    check_gpu()
    # Also of a whole one: a process that stays may have served a stage with a part of it before.
    torch.cuda.set_per_process_memory_fraction(_bound(demand.num_gpus))


def check_gpu() -> None:
    """Refuse to go on in a process that has reserved a GPU and cannot use it.

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
    """The part of a GPU's memory that torch may allocate in a process that has `num_gpus` of it. Parts of several processes fit on the GPU
    together, with what CUDA keeps there for each process and torch does not count. A whole GPU is shared with nobody."""
    if num_gpus >= 1:
        return 1.0
    return max(num_gpus / 2, num_gpus - CONTEXT_BYTES / torch.cuda.get_device_properties().total_memory)
