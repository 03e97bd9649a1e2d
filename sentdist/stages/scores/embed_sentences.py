"""How the sentences of an evaluation become embeddings. torch is loaded only where this process embeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sentdist.plan.specs import EncoderSpec, LexicalSpec, Precision
from sentdist.plan.stages import Scores, Train
from sentdist.stages.context import Context
from sentdist.stages.inputs import checkpoint_of, folder_of, hub_revision

if TYPE_CHECKING:
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder

Embed = Callable[[list[str]], np.ndarray]  # S sentences to (S, D) float32
MakeEmbed = Callable[[Scores, Context], Embed]
OnProgress = Callable[[int, int], None]  # sentences done, of how many


def embed_here(stage: Scores, context: Context, *, on_progress: OnProgress | None = None) -> Embed:
    """What embeds sentences by the stage's encoder, in this process."""
    from sentdist.learning.encoder.encode import encode

    assert not isinstance(stage.encoder, LexicalSpec), "words alone have no embeddings"
    encoder = frozen_encoder(stage.encoder, context, precision=stage.precision)

    def embed(sentences: list[str]) -> np.ndarray:
        return encode(
            encoder,
            sentences,
            max_length=stage.max_length,
            tokens_per_batch=context.runtime.tokens_per_batch,
            precision=stage.precision,
            on_progress=None if on_progress is None else lambda done: on_progress(done, len(sentences)),
        )

    return embed


def frozen_encoder(encoder: EncoderSpec | Train, context: Context, *, precision: Precision) -> SentenceEncoder:
    """A trained or untouched encoder, dropout off, in a process that computes in this precision."""
    import torch

    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
    from sentdist.learning.precision import apply_matmul_precision
    from sentdist.stages.devices import device_of

    torch.manual_seed(0)  # an untouched checkpoint may lack the head that its pooling asks for; an untrained one has random weights
    if isinstance(encoder, Train):
        loaded = SentenceEncoder.load(folder_of(encoder, context), pooling=encoder.encoder.pooling)
    else:
        loaded = SentenceEncoder.load(
            checkpoint_of(encoder, context),
            revision=hub_revision(encoder, context),
            pooling=encoder.pooling,
            initialization=encoder.initialization,
            layers=encoder.layers,
        )
    device = device_of(context.runtime)
    apply_matmul_precision(device, precision)
    return loaded.to(device).eval()
