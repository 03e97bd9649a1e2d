"""A worker uses no more of its node than it has reserved. Nothing here imports Ray Train, which workers of pools never need."""

from __future__ import annotations

import torch

from sentdist.errors import ResourceError
from sentdist.execution.resources import Demand
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.stages.devices import why_unusable


def use_reserved(demand: Demand) -> None:
    """Let torch use no more than this worker has reserved: its CPUs, not all of the node's, and its share of a GPU's memory.

    Raises:
        ResourceError: it has reserved a GPU that torch cannot use.
    """
    torch.set_num_threads(max(1, int(demand.num_cpus)))
    if not demand.num_gpus:
        return
    keep_gpu_memory_whole()  # before torch is asked anything of the GPU
    if why := why_unusable():
        raise ResourceError(
            where="runtime.gpus_per_worker",
            found=f"a node with a GPU that torch cannot use ({why})",
            expected="a torch for CUDA and a driver that is new enough for it",
            remedy="Look at `nvidia-smi` and install torch for CUDA on that node, or set runtime.gpus_per_worker=0.",
        )
    # Also of a whole one: a process that stays may have served a stage with a part of it before.
    torch.cuda.set_per_process_memory_fraction(min(1.0, demand.num_gpus))
