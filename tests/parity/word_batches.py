"""Batches of short sentences for a real, if tiny, encoder."""

from __future__ import annotations

import numpy as np

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.gather import local_rows
from tests.support.tiny_encoders import WORDS as VOCABULARY

NUM_SENTENCES = 60
WORDS = (*VOCABULARY[:10], "eats", "runs", "sleeps", "in", "under", "near", "not", "today")  # golden losses are drawn from these


def word_batches(encoder: SentenceEncoder, num_steps: int, *, rank: int = 0, world_size: int = 1, num_rows: int = 8) -> list[Batch]:
    """This rank's share of `num_steps` global batches of triplets, 3 to 12 words a sentence; the same rows for every world size."""
    random = np.random.default_rng(11)
    sentences = [" ".join(random.choice(WORDS, size=random.integers(3, 13))) for _ in range(NUM_SENTENCES)]
    rows = local_rows(num_rows, rank=rank, world_size=world_size)
    batches = []
    for _ in range(num_steps):
        ids_CM = random.permutation(NUM_SENTENCES)[: 3 * num_rows].reshape(3, num_rows)
        tokens = encoder.tokenize([sentences[i] for i in ids_CM[:, rows.start : rows.stop].ravel()])
        batches.append(Batch(tokens=tokens, num_columns=3, first_row=rows.start, sentence_ids=ids_CM))
    return batches
