"""Giving memory back that the C library keeps after tensors of ever-changing sizes were freed."""

from __future__ import annotations

import ctypes


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
