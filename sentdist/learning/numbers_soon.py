"""Numbers that a GPU has yet to compute, on their way to the host while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class NumbersSoon:
    """Rows of numbers that are copied to the host as soon as a GPU has them.

    A number that is read the plain way waits for all that the GPU was given until then; this waits for what it was given before `of`.
    """

    _on_host: Tensor
    _arrival: torch.cuda.Event | None

    @staticmethod
    def of(rows: Sequence[Tensor]) -> NumbersSoon:
        """Begin to copy (N,) tensors of one device; nobody waits."""
        stacked = torch.stack(list(rows))
        on_host = stacked.to("cpu", non_blocking=True)  # into pinned memory, which torch then takes itself
        arrival = None
        if stacked.device.type == "cuda":
            arrival = torch.cuda.Event()
            arrival.record(torch.cuda.current_stream(stacked.device))
        return NumbersSoon(_on_host=on_host, _arrival=arrival)

    def read(self) -> list[list[float]]:
        """The rows; waits until they are there."""
        if self._arrival is not None:
            self._arrival.synchronize()
        rows: list[list[float]] = self._on_host.tolist()
        return rows
