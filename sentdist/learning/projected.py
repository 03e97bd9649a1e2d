"""A dense layer in front of an objective and of nothing else: SimCSE's, which is dropped at test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sentdist.learning.encoder.batch import Batch
from sentdist.learning.encoder.pooling import PoolingHead
from sentdist.learning.heads import part_of
from sentdist.learning.objective import Objective, OwnRate
from sentdist.learning.relation_file import Relations


class Projected(nn.Module, Objective):
    """L(tanh(W h + b)): the objective L sees a projection of the embeddings h, while other terms and the evaluation see h itself.

    Alone, with pooling cls, this is pooling cls_mlp_train_only:
    the layer is trained and dropped at test (Gao et al. 2021, arXiv 2104.08821, unsupervised SimCSE).
    It stands in the objective so that auxiliary tasks can read what is evaluated. Units and reduction are those of L.
    """

    def __init__(self, objective: Objective, *, width: int, initializer_range: float = 0.02) -> None:
        super().__init__()
        self.head = PoolingHead(width, initializer_range=initializer_range)
        self.objective = objective
        self.reads_embeddings, self.keeps_heads = objective.reads_embeddings, objective.keeps_heads
        self.adds_to_embeddings = objective.adds_to_embeddings

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`."""
        return self.objective(self.head(embeddings), batch)

    def own_rates(self) -> Iterator[OwnRate]:
        yield from self.objective.own_rates()

    def start_from(self, folder: Path, *, where: str) -> None:
        self.objective.start_from(folder, where=where)

    def place_on(self, device: torch.device) -> None:
        self.objective.place_on(device)

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        self.objective.after_step(embeddings, batch)

    def extra_state(self) -> dict[str, Any]:
        return self.objective.extra_state()

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.objective.load_extra_state(state)

    def save_into(self, folder: Path, weights: dict[str, Tensor]) -> None:
        self.objective.save_into(folder, part_of(weights, "objective."))

    def relations(self) -> Relations | None:
        return self.objective.relations()
