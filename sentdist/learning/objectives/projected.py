"""A dense layer in front of an objective and of nothing else: SimCSE's, which is dropped at test."""

from __future__ import annotations

from torch import Tensor, nn

from sentdist.learning.batch import Batch
from sentdist.learning.objectives.objective import Objective
from sentdist.learning.pooling import PoolingHead


class Projected(nn.Module):
    """L(tanh(W h + b)): the objective L sees a projection of the embeddings h, while other terms and the evaluation see h itself.

    Alone, with pooling cls, this is pooling cls_mlp_train_only: the layer is trained and dropped at test (Gao et al. 2021, arXiv 2104.08821,
    unsupervised SimCSE). It stands in the objective so that auxiliary tasks can read what is evaluated. Units and reduction are those of L.
    """

    def __init__(self, objective: Objective, *, width: int, initializer_range: float = 0.02) -> None:
        super().__init__()
        self.head = PoolingHead(width, initializer_range=initializer_range)
        self.objective = objective

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`."""
        return self.objective(self.head(embeddings), batch)
