"""Control when freed memory returns to the system: the C library and torch on a GPU keep it while tensor sizes vary."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # as malloc.h has them
# mallopt(3): the values that glibc adapts to in a process that frees large pieces. It stops adapting once any of the three was set.
_ADAPTED = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 32 * 2**20, _TRIM_THRESHOLD: 64 * 2**20}


def keep_gpu_memory_whole() -> None:
    """Let torch keep a GPU's memory as one growing segment; otherwise steps of different sizes leave fragments that fit no later step.

    Call it before this process asks torch about a GPU: torch reads the setting only then. The user's own setting stays.
    """
    os.environ.update(allocator_environment(os.environ))


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have this effect in a new process; none if the user has set one."""
    has_chosen = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & environment.keys()
    return {} if has_chosen else {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def keep_freed_memory() -> None:
    """Keep freed memory in this process until `let_freed_memory_go`, if the C library supports it (glibc).

    Otherwise each training step on a CPU returns its large tensors to the system and gets them again, zeroed, page by page: 90,000 pages
    a step of MiniLM at batch 64, 12 % of its time in bf16 (2 cores AMD EPYC). The peak is the same.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def let_freed_memory_go() -> None:
    """Restore the C library's defaults and return the memory that is free now."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _ADAPTED.items():
            mallopt(parameter, value)
    give_back_freed_memory()


def give_back_freed_memory() -> None:
    """Return freed heap pages to the system if the C library supports it (glibc).

    Sentences without padding give tensors of another size in every step, and glibc serves those below 32 MiB from one heap that only grows:
    a worker that had trained three encoders in turn held 4.2 GiB, 3.4 of them in this heap.
    Five steps of MiniLM at batch 64 leave 1.7 GiB, 1.0 after this.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def give_back_gpu_memory() -> None:
    """Return torch's unused cached memory to the GPU; does nothing if this process has not used one."""
    torch = sys.modules.get("torch")  # not loaded: no GPU was used
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        gc.collect()  # tensors in reference cycles
        torch.cuda.empty_cache()
