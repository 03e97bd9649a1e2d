"""Relation vectors and loss of RSE (arXiv 2212.08802)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.grad_cache import mean_over_blocks
from sentdist.learning.objective import Objective, OwnRate, anchors_and_candidates
from sentdist.learning.relation_file import Relations, read_relations, write_relations

INITIAL_STD = 0.02


class RelationTable(nn.Module):
    """One vector of the encoder's width for each relation, drawn from N(0, 0.02²).

    As in the released code, whose library's initializer replaces an embedding's N(0, 1); the encoder's outputs lie in (−1, 1).
    """

    def __init__(self, num_relations: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(num_relations, width)
        nn.init.normal_(self.vectors.weight, std=INITIAL_STD)

    def forward(self, relations_B: Tensor) -> Tensor:
        """Return the (B, D) vectors of (B,) relation numbers."""
        vectors_BD: Tensor = self.vectors(relations_B)
        return vectors_BD


class Relational(nn.Module, Objective):
    """RSE: `relational_info_nce` with the relation of each row in `batch.relations` and a table trained with the encoder.

    Args:
        relations: names, in the order of their numbers.
        learning_rate: of the table (released code: 1e-2). No weight decay, as in the released code.
        keeps_relations: start with the vectors of the encoder that training starts from.
        pooling: of the trained encoder; None if the embeddings come from elsewhere.
    """

    adds_to_embeddings = True

    def __init__(
        self,
        loss: Callable[..., Tensor],
        *,
        relations: tuple[str, ...],
        width: int,
        learning_rate: float,
        keeps_relations: bool,
        pooling: str | None,
    ) -> None:
        super().__init__()
        self._loss = loss
        self.names, self.learning_rate, self.keeps_relations, self.pooling = relations, learning_rate, keeps_relations, pooling
        self.table = RelationTable(len(relations), width)

    def own_rates(self) -> Iterator[OwnRate]:
        yield OwnRate(parameters=tuple(self.table.parameters()), learning_rate=self.learning_rate, weight_decay=0.0)

    def start_from(self, folder: Path, *, where: str) -> None:
        """Match relations by name; those that the start does not know keep their random vectors."""
        if not self.keeps_relations:
            return
        before = read_relations(folder)
        with torch.no_grad():
            for name, vector_D in zip(before.names, before.vectors, strict=True):
                if name in self.names:
                    self.table.vectors.weight[self.names.index(name)] = torch.from_numpy(vector_D)

    def save_into(self, folder: Path, weights: dict[str, Tensor]) -> None:
        vectors_KD = weights["table.vectors.weight"].detach().float().cpu().numpy()
        write_relations(folder, Relations(names=self.names, vectors=vectors_KD, pooling=self.pooling))

    def relations(self) -> Relations:
        with torch.no_grad():
            vectors_KD = self.table(torch.arange(len(self.names), device=next(self.table.parameters()).device))
        return Relations(names=self.names, vectors=vectors_KD.float().cpu().numpy())

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Return the scalar loss of the (C·B, D) embeddings of `batch.tokens`."""
        assert batch.relations is not None, "the plan gives it a corpus with relations"
        heads_BD, candidates_MD = anchors_and_candidates(embeddings, batch)
        relations_BD = self.table(batch.relations)

        def of_block(first: int, last: int) -> Tensor:
            return self._loss(heads_BD[first:last], relations_BD[first:last], candidates_MD, first_row=batch.first_row + first)

        return mean_over_blocks(of_block, num_rows=len(heads_BD), num_columns=len(candidates_MD), device=embeddings.device)
