"""The kernels of a GPU, imported where they are first asked for: Triton comes with them, which only torch for CUDA brings."""

from __future__ import annotations

from functools import cache

from sentdist.learning.kernels.values import GpuKernels


@cache
def gpu_kernels() -> GpuKernels:
    """Cached, for each layer asks in each step: an import statement takes a microsecond even then."""
    from sentdist.learning.kernels import gpu_calls

    return gpu_calls
