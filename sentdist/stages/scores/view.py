"""The embeddings of an encoder as a view of a recipe reads them."""

from __future__ import annotations

import numpy as np

from sentdist.errors import RecipeError
from sentdist.evaluation.postprocess import postprocess
from sentdist.plan.objectives import AnyObjective
from sentdist.plan.specs import View
from sentdist.plan.view_checks import parts_of


def viewed(embeddings_SD: np.ndarray, view: View, *, where: str, objective: AnyObjective | None = None) -> np.ndarray:
    """The embeddings as a view reads them: some of the channels, with the mean or all correlation removed.
    objective: what the encoder was trained with, whose parts a view may name.

    Raises:
        RecipeError: channels that the embeddings do not have.
    """
    if view.channels is not None:
        parts = (None if objective is None else parts_of(objective, embeddings_SD.shape[1])) or {}
        first, last = parts[view.channels] if isinstance(view.channels, str) else view.channels
        if not 0 <= first < last <= embeddings_SD.shape[1]:
            raise RecipeError(
                where=f"{where}: view.channels",
                found=f"{first} to {last}",
                expected=f"two numbers from 0 to {embeddings_SD.shape[1]}, the lower one first",
                remedy="Correct the view.",
            )
        embeddings_SD = embeddings_SD[:, first:last]
    return postprocess(embeddings_SD, view.postprocess)
