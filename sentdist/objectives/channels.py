"""Split an embedding into channels for tags and channels for words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentdist.objectives.objective_spec import Mismatch

if TYPE_CHECKING:
    from torch import Tensor

TAG_SHARE = 128 / 768  # of the channels, as the poster splits RoBERTa-base's 768


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Number of channels for tags, which come first, and for words."""

    pos: int
    bow: int

    @classmethod
    def of(cls, width: int, sizes: tuple[int, int] | None = None) -> Channels:
        """Return `sizes` (tags, words), or by default 128 : 640 of `width`, rounded; RecipeError if they do not add up to `width`."""
        if sizes is None:
            tags = max(1, round(width * TAG_SHARE))
            sizes = tags, width - tags
        mismatch = mismatch_of_channels(sizes, width)
        if mismatch is not None:
            raise mismatch.refused(f"auxiliary.{mismatch.where}")
        return cls(pos=sizes[0], bow=sizes[1])

    def split(self, embeddings_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Return (S, pos) and (S, bow) views."""
        pos_SD, bow_SD = embeddings_SD.split([self.pos, self.bow], dim=-1)
        return pos_SD, bow_SD


def mismatch_of_channels(sizes: tuple[int, int], width: int) -> Mismatch | None:
    """Return why the channel sizes do not fit the encoder's width; None if they do."""
    if sum(sizes) == width and min(sizes) >= 1:
        return None
    fitting = Channels.of(width) if width > 1 else None
    return Mismatch(
        found=f"{sizes[0]} + {sizes[1]} = {sum(sizes)}",
        expected=f"two numbers above 0 that add up to the encoder's width, {width}",
        remedy=f"Write [{fitting.pos}, {fitting.bow}], or leave channels out." if fitting else "Use a wider encoder.",
        where="channels",
    )
