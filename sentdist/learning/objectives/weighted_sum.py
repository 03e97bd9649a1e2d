"""Several objectives over one batch, added up with weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sentdist.learning.batch import Batch
from sentdist.learning.objectives.objective import Objective, check_finite


class WeightedSum(nn.Module):
    """Σ_t w_t · L_t: what none of the papers has, their methods together. Units and reduction are those of the terms.

    terms: (weight, objective) in the order of the recipe; those with parameters are submodules, named by their place. RecipeError for a weight
    that is not finite.
    """

    def __init__(self, terms: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        for number, (weight, _) in enumerate(terms):
            check_finite(weight, where=f"sum.terms[{number}].weight", remedy="1 counts the term as it is.")
        self._weights = tuple(weight for weight, _ in terms)
        self._objectives = tuple(objective for _, objective in terms)
        modules = {str(number): objective for number, (_, objective) in enumerate(terms) if isinstance(objective, nn.Module)}
        self.terms = nn.ModuleDict(modules)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`."""
        losses = [weight * objective(embeddings, batch) for weight, objective in zip(self._weights, self._objectives, strict=True)]
        return torch.stack(losses).sum()
