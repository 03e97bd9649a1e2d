"""Has torch raise at whatever waits for the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch


@contextmanager
def refusing() -> Iterator[None]:
    """Inside, torch raises at whatever waits for the GPU."""
    try:
        refuse_waiting("error")
        yield
    finally:
        refuse_waiting("default")


def refuse_waiting(mode: Literal["error", "default"]) -> None:
    """torch warns, the first time in a process, that this is a prototype; the mode is set all the same, for all tests that follow."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode(mode)
