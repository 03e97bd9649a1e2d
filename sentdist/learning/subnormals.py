"""Numbers below 1.2e-38, with which a CPU computes a hundred times as long as with others; a GPU does not.

Trainings come to them: where a corpus does not show a word for 740 steps, AdamW's mean of its gradients has sunk so far. There it stays,
for a tenth less than the smallest numbers is rounded back to them: they are in the optimizer's way for the rest of the training. And the
gradient of a very sharp softmax is made of them. They move a weight by less than 1e-33 a step, so zeros take their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def flush_subnormals() -> None:
    """From now on have them be 0 in this thread, and in those of torch that compute for it, where none has begun yet."""
    torch.set_flush_denormal(True)


@contextmanager
def subnormals_flushed() -> Iterator[None]:
    """Inside, as after `flush_subnormals`; then this thread computes with them again if it did."""
    did_flush = bool(torch.tensor(1e-42) * 1.0 == 0.0)
    flush_subnormals()
    try:
        yield
    finally:
        torch.set_flush_denormal(did_flush)
