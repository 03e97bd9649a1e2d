"""The random state of the GPU that this process computes on; a process uses one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor


def device_random_state() -> Tensor | None:
    """The state of the GPU's default generator, from which dropout draws there; None where nothing was computed on a GPU yet."""
    return torch.cuda.get_rng_state() if torch.cuda.is_available() and torch.cuda.is_initialized() else None


def set_device_random_state(state: Tensor | None) -> None:
    """Restore what `device_random_state` gave; nothing to do for None, and where there is no GPU."""
    if state is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state)


def drawn_again() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a forward pass and of its recomputation, for `torch.utils.checkpoint`: both draw the same on the GPU.

    torch itself keeps the state of those GPUs only that hold a tensor among the arguments: none for a function and sentences on the host.
    """
    return nullcontext(), _with_state(device_random_state())


@contextmanager
def _with_state(state: Tensor | None) -> Iterator[None]:
    after = device_random_state()
    set_device_random_state(state)
    try:
        yield
    finally:
        set_device_random_state(after)
