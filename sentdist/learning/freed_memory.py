"""Freed memory that is not given back: the C library, and torch on a GPU, keep it where the sizes of tensors change all the time."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # as malloc.h has them
# mallopt(3): what glibc comes to by itself in a process that frees large pieces. It no longer does once any of the three was set.
_ADAPTED = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 32 * 2**20, _TRIM_THRESHOLD: 64 * 2**20}


def keep_gpu_memory_whole() -> None:
    """Have torch keep a GPU's memory as one piece that grows; else steps of different sizes leave pieces that fit no later step.

    Call it before this process asks torch anything about a GPU: torch reads the setting only then. A setting of the user's own stays.
    """
    os.environ.update(allocator_environment(os.environ))


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make torch do so in a process that is started with them; none where the user has set one of his own."""
    has_chosen = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & environment.keys()
    return {} if has_chosen else {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def keep_freed_memory() -> None:
    """From now on keep what is freed in this process, until `let_freed_memory_go`, where the C library can (glibc).

    Else each step of a training on a CPU gives its large tensors back to the system and gets them again, zeroed, page by page: 90,000 pages
    a step of MiniLM at batch 64, 12 % of its time in bf16 (2 cores AMD EPYC). The peak is the same.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def let_freed_memory_go() -> None:
    """Keep freed memory no longer than the C library does by itself, and return what is free now."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _ADAPTED.items():
            mallopt(parameter, value)
    give_back_freed_memory()


def give_back_freed_memory() -> None:
    """Return freed heap pages to the system where the C library can (glibc); elsewhere nothing happens.

    Sentences without padding make every step's tensors of another size,
    and glibc serves those below 32 MiB from one heap that then only grows:
    a worker that had trained three encoders one after another held 4.2 GiB, of which 3.4 were such a heap.
    Five steps of MiniLM at batch 64 leave 1.7 GiB, 1.0 after this.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def give_back_gpu_memory() -> None:
    """Return to the GPU what torch keeps there for this process and nothing uses any more; where no GPU was used, nothing happens."""
    torch = sys.modules.get("torch")  # who has not loaded it has used no GPU
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        gc.collect()  # what only cycles hold
        torch.cuda.empty_cache()
