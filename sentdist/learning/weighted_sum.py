"""Several objectives over one batch, added up with weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sentdist.learning.encoder.batch import Batch
from sentdist.learning.heads import load_heads, part_of
from sentdist.learning.objective import Objective, OwnRate, check_finite
from sentdist.learning.relation_file import Relations


class WeightedSum(nn.Module, Objective):
    """Σ_t w_t · L_t: what none of the papers has, their methods together. Units and reduction are those of the terms.

    terms: (weight, objective) in the order of the recipe; those with parameters are submodules, named by their place.
    RecipeError for a weight that is not finite.
    """

    def __init__(self, terms: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        for number, (weight, _) in enumerate(terms):
            check_finite(weight, where=f"sum.terms[{number}].weight", remedy="1 counts the term as it is.")
        self._weights = tuple(weight for weight, _ in terms)
        self._objectives = tuple(objective for _, objective in terms)
        modules = {str(number): objective for number, (_, objective) in enumerate(terms) if isinstance(objective, nn.Module)}
        self.terms = nn.ModuleDict(modules)
        self.reads_embeddings = any(objective.reads_embeddings for objective in self._objectives)
        self.keeps_heads = any(objective.keeps_heads for objective in self._objectives)
        self.adds_to_embeddings = any(objective.adds_to_embeddings for objective in self._objectives)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`."""
        losses = [weight * objective(embeddings, batch) for weight, objective in zip(self._weights, self._objectives, strict=True)]
        return torch.stack(losses).sum()

    def own_rates(self) -> Iterator[OwnRate]:
        for objective in self._objectives:
            yield from objective.own_rates()

    def start_from(self, folder: Path, *, where: str) -> None:
        """Where one term keeps its head, all keep theirs."""
        if self.keeps_heads:
            load_heads(self, folder, where=f"{where}: keep_head")
        for objective in self._objectives:
            if not objective.keeps_heads:
                objective.start_from(folder, where=where)

    def place_on(self, device: torch.device) -> None:
        for objective in self._objectives:
            objective.place_on(device)

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        for objective in self._objectives:
            objective.after_step(embeddings, batch)

    def extra_state(self) -> dict[str, Any]:
        states = {str(number): objective.extra_state() for number, objective in enumerate(self._objectives)}
        return {number: state for number, state in states.items() if state}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        for number, part in state.items():
            self._objectives[int(number)].load_extra_state(part)

    def save_into(self, folder: Path, weights: dict[str, Tensor]) -> None:
        for number, objective in enumerate(self._objectives):
            objective.save_into(folder, part_of(weights, f"terms.{number}."))

    def relations(self) -> Relations | None:
        return next((found for objective in self._objectives if (found := objective.relations()) is not None), None)
