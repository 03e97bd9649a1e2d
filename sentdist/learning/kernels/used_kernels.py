"""Which kernels this process has used, for the records of what it computed. Loads neither torch nor Triton."""

from __future__ import annotations

import sys

from sentdist.learning.kernels import cpp_library

_TRITON_KERNELS = "sentdist.learning.kernels.triton_kernels"


def used_kernels() -> str | None:
    """The library in C++ by what changes with sources, compiler and processor, where it is loaded; behind it the kernels in Triton that
    have run. None where there are none."""
    in_triton = sys.modules.get(_TRITON_KERNELS)
    names = [cpp_library.loaded_name(), in_triton.used_names() if in_triton is not None else None]
    return "; ".join(name for name in names if name) or None
