"""Head and loss of regression on graded pairs (arXiv 2406.05326)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.objective import Objective, OwnRate, load_heads, split_columns

VECTORS_PER_FEATURE = {"uv": 2, "diff": 1, "uv_diff": 3}


class RegressionHead(nn.Module):
    """w · [u; v; |u − v|] + b: (B,) predictions from two embeddings (B, D), or (B, V) class logits.

    `features` "uv_diff" as in the paper, "uv" or "diff" as in its ablation (Table 5). No activation; evaluation uses cosines.
    Source: arXiv 2406.05326, Figure 1; the classifier is Sentence-BERT's (arXiv 1908.10084).
    """

    def __init__(self, width: int, *, features: str = "uv_diff", num_classes: int | None = None) -> None:
        super().__init__()
        self.features = features
        self.is_classifier = num_classes is not None
        self.linear = nn.Linear(VECTORS_PER_FEATURE[features] * width, num_classes or 1)

    def forward(self, u_BD: Tensor, v_BD: Tensor) -> Tensor:
        vectors = [u_BD, v_BD] if self.features in ("uv", "uv_diff") else []
        if self.features in ("diff", "uv_diff"):
            vectors.append((u_BD - v_BD).abs())
        outputs: Tensor = self.linear(torch.cat(vectors, dim=-1))
        return outputs if self.is_classifier else outputs.squeeze(-1)


class RegressionLoss(nn.Module, Objective):
    """Compare the head's prediction for a pair with its label: mean over this rank's B pairs.

    Args:
        loss: from the head's outputs and the labels (B,).
        learning_rate: of the head; None: the encoder's, as in the released code. The head starts random on a pretrained encoder, and one
            that learns too slowly distorts the embeddings.
        keeps_heads: start with the head of the encoder that training starts from.
    """

    def __init__(
        self, head: RegressionHead, loss: Callable[[Tensor, Tensor], Tensor], *, learning_rate: float | None, keeps_heads: bool
    ) -> None:
        super().__init__()
        self.head, self._loss = head, loss
        self.learning_rate, self.keeps_heads = learning_rate, keeps_heads

    def own_rates(self) -> Iterator[OwnRate]:
        yield OwnRate(parameters=tuple(self.head.parameters()), learning_rate=self.learning_rate)

    def start_from(self, folder: Path, *, where: str) -> None:
        if self.keeps_heads:
            load_heads(self, folder, where=f"{where}: keep_head")

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Return the scalar loss of the (2·B, D) embeddings of `batch.tokens`."""
        first_BD, second_BD = split_columns(embeddings, batch)
        assert batch.labels is not None, "the plan gives it graded pairs"
        outputs = self.head(first_BD, second_BD)
        return self._loss(outputs, batch.labels.to(outputs.device))
