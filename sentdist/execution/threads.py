"""Processor threads of a worker; apart from what imports Ray Train, which workers of pools never need."""

from __future__ import annotations

import torch

from sentdist.plan.runtime import Runtime


def use_threads(runtime: Runtime) -> None:
    """Give torch the CPUs that this worker has reserved; on its own it would take all of the node's."""
    torch.set_num_threads(max(1, int(runtime.cpus_per_worker)))
