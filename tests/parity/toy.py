"""A toy encoder of a few hundred parameters with batches for it: small enough that 20 steps take milliseconds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.learning.bank import HostBank
from sentdist.learning.encoder.tokens import Batch, TokenBatch, collate
from sentdist.learning.gather import local_rows

NUM_SENTENCES = 60
WIDTH = 8


class ToyEncoder(nn.Module):
    """Mean of token vectors, a layer norm, a dense layer with dropout. All its parameters have gradients well above rounding noise."""

    def __init__(self, *, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokens = nn.Embedding(50, WIDTH)
            self.norm = nn.LayerNorm(WIDTH)
            self.dense = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: TokenBatch) -> Tensor:
        sentence_of_token = torch.repeat_interleave(torch.tensor(tokens.lengths, device=tokens.token_ids.device))
        vectors_TD = self.tokens(tokens.token_ids)
        sums_SD = vectors_TD.new_zeros(tokens.num_sentences, vectors_TD.shape[1]).index_add(0, sentence_of_token, vectors_TD)
        means_SD = sums_SD / torch.tensor(tokens.lengths, device=sums_SD.device)[:, None]
        return torch.tanh(self.dense(self.dropout(self.norm(means_SD))))


class ToyBank(HostBank):
    """A bank of N random encoders, held in memory."""

    def __init__(self, num_encoders: int, *, seed: int = 7) -> None:
        self.table = torch.randn(num_encoders, NUM_SENTENCES, WIDTH, generator=torch.Generator().manual_seed(seed))

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        return self.table[:, torch.from_numpy(np.asarray(sentence_ids).ravel())]


def toy_batches(num_steps: int, *, rank: int = 0, world_size: int = 1, num_rows: int = 8, num_columns: int = 3) -> list[Batch]:
    """This rank's share of `num_steps` global batches of `num_rows` rows, the same rows for every world size,
    with labels 0 … 5 and two relations."""
    random = np.random.default_rng(3)
    sentences = [random.integers(0, 50, size=length).tolist() for length in random.integers(1, 9, size=NUM_SENTENCES)]
    rows = local_rows(num_rows, rank=rank, world_size=world_size)
    batches = []
    for _ in range(num_steps):
        ids_CM = random.permutation(NUM_SENTENCES)[: num_columns * num_rows].reshape(num_columns, num_rows)
        tokens = collate([sentences[i] for i in ids_CM[:, rows.start : rows.stop].ravel()])
        labels_M, relations_M = ids_CM[0] % 6, ids_CM[0] % 2
        batches.append(
            Batch(
                tokens=tokens,
                num_columns=num_columns,
                first_row=rows.start,
                sentence_ids=ids_CM,
                labels=torch.tensor(labels_M[rows.start : rows.stop], dtype=torch.float32),
                relations=torch.tensor(relations_M[rows.start : rows.stop]),
            )
        )
    return batches
