"""Which tokens of its sentence a token sees: those before it alone, as a decoder's, or those of a window."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Band:
    """A token at place i of its sentence sees those from i - before to i + after. None: all on that side."""

    before: int | None
    after: int | None

    @property
    def is_whole_past(self) -> bool:
        """Whether a token sees itself and all before it, and nothing else."""
        return self.before is None and self.after == 0

    def hidden(self, length: int, device: torch.device) -> Tensor:
        """(L, L) bool, true where the token of a row does not see that of a column."""
        place = torch.arange(length, device=device)
        distance = place[None, :] - place[:, None]
        is_hidden = torch.zeros_like(distance, dtype=torch.bool)
        if self.after is not None:
            is_hidden |= distance > self.after
        if self.before is not None:
            is_hidden |= distance < -self.before
        return is_hidden


def band_of(*, is_causal: bool, window: int | None, longest: int) -> Band | None:
    """The band of a layer; None where every token of every sentence sees its whole sentence.

    window: as transformers counts it, a token itself included: of what is before it, and where the layer is not causal as many behind it.
    longest: tokens of the longest sentence; a window that holds it hides nothing.
    """
    reach = None if window is None or window >= longest else window - 1
    if is_causal:
        return Band(before=reach, after=0) if longest > 1 else None
    return None if reach is None else Band(before=reach, after=reach)
