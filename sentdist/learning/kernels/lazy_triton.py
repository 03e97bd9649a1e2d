"""The kernels in Triton, imported where they are first asked for: Triton itself comes with torch for CUDA alone."""

from __future__ import annotations

from functools import cache

from sentdist.learning.kernels.interface import TritonKernels


@cache
def load_triton_kernels() -> TritonKernels:
    """Cached, for each layer asks in each step: an import statement takes a microsecond even then."""
    from sentdist.learning.kernels import triton_kernels

    return triton_kernels
