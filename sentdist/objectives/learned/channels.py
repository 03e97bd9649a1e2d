"""Which channels of an embedding stand for tags and which for words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sentdist.errors import RecipeError
from sentdist.learning.encoder.batch import Batch
from sentdist.objectives.auxiliary import channel_sizes


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Which part of an embedding of width D stands for what: first the tags' channels, then the words'."""

    pos: int
    bow: int

    @classmethod
    def of(cls, width: int, sizes: tuple[int, int] | None = None) -> Channels:
        """The channels of an encoder of `width`: `sizes` (tags, words), or 128 : 640 of it, rounded;
        RecipeError unless they add up to the width."""
        sizes = channel_sizes(width, sizes)
        if min(sizes) < 1 or sum(sizes) != width:
            fitting = cls.of(width) if width > 1 else None
            raise RecipeError(
                where="auxiliary.channels",
                found=f"{sizes[0]} + {sizes[1]} = {sum(sizes)}",
                expected=f"two numbers above 0 that add up to the encoder's width, {width}",
                remedy=f"Write [{fitting.pos}, {fitting.bow}], or leave channels out." if fitting else "Take a wider encoder.",
            )
        return cls(pos=sizes[0], bow=sizes[1])

    def split(self, embeddings_SD: Tensor) -> tuple[Tensor, Tensor]:
        """(S, pos) and (S, bow) views."""
        pos_SD, bow_SD = embeddings_SD.split([self.pos, self.bow], dim=-1)
        return pos_SD, bow_SD


def local_ids(batch: Batch) -> np.ndarray:
    """(C·B,) ids of the sentences of `batch.tokens`, in their order."""
    return batch.sentence_ids[:, batch.first_row : batch.first_row + batch.num_rows].ravel()
