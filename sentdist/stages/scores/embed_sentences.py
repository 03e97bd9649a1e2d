"""How the sentences of an evaluation become embeddings. torch is loaded only where this process embeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sentdist.plan.specs import EncoderSpec, LexicalSpec, Precision
from sentdist.plan.stages import Scores, Train
from sentdist.stages.context import Context
from sentdist.stages.inputs import checkpoint_of, folder_of, hub_revision

if TYPE_CHECKING:
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder


class Embed(Protocol):
    """Maps S sentences to (S, D) float32 embeddings."""

    def __call__(self, sentences: list[str], prompt: str = "") -> np.ndarray:
        """prompt: what stands before each of them. Raises EncoderError for one that leaves no token for a sentence."""
        ...


MakeEmbed = Callable[[Scores, Context], Embed]
OnProgress = Callable[[int, int], None]  # sentences done, of how many


def embed_here(stage: Scores, context: Context, *, on_progress: OnProgress | None = None) -> Embed:
    """What embeds sentences by the stage's encoder, in this process."""
    from sentdist.learning.encoder.encode import encode
    from sentdist.learning.encoder.prompted import check_room, tokens_not_pooled, tokens_of_prompt

    assert not isinstance(stage.encoder, LexicalSpec), "words alone have no embeddings"
    of, encoder = stage.encoder, frozen_encoder(stage.encoder, context, precision=stage.precision)

    def tokens_behind(prompt: str) -> int:
        if not prompt:
            return 0
        num_tokens, checkpoint = tokens_of_prompt(encoder.tokenizer, prompt), (of.encoder if isinstance(of, Train) else of).checkpoint
        check_room(prompt, num_tokens, longest=stage.max_length or encoder.max_length, checkpoint=checkpoint)
        return tokens_not_pooled(num_tokens, folder=_folder_of(of, context), pooling=encoder.pooling, checkpoint=checkpoint)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        return encode(
            encoder,
            [f"{prompt}{sentence}" for sentence in sentences] if prompt else sentences,
            behind=tokens_behind(prompt),
            max_length=stage.max_length,
            tokens_per_batch=context.runtime.tokens_per_batch,
            precision=stage.precision,
            on_progress=None if on_progress is None else lambda done: on_progress(done, len(sentences)),
        )

    return embed


def _folder_of(encoder: EncoderSpec | Train, context: Context) -> Path:
    from sentdist.learning.encoder.find_checkpoint import find_checkpoint

    if isinstance(encoder, Train):
        return folder_of(encoder, context)
    return find_checkpoint(checkpoint_of(encoder, context), revision=hub_revision(encoder, context))


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
