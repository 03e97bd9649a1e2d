"""Import the Triton kernels on first use: Triton comes only with torch for CUDA."""

from __future__ import annotations

from functools import cache

from sentdist.learning.kernels.interface import TritonKernels


@cache
def load_triton_kernels() -> TritonKernels:
    """Return the module; cached, since each layer asks in each step and an import statement takes a microsecond even then."""
    from sentdist.learning.kernels import triton_kernels

    return triton_kernels
