"""The encoder and the tokenizer that a training starts from."""

from __future__ import annotations

from pathlib import Path

from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.pretrained import load_tokenizer
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokenizing import Tokenizer
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.inputs import checkpoint_of, folder_of, hub_revision


def load_encoder(stage: Train, context: Context) -> SentenceEncoder:
    """The encoder that a training starts from: that of an earlier stage, or the pretrained checkpoint."""
    regularizers = stage.regularizers
    start = None if stage.start is None else folder_of(stage.start, context)
    return SentenceEncoder.load(
        checkpoint_of(stage.encoder, context) if start is None else start,
        revision=hub_revision(stage.encoder, context) if start is None else None,
        pooling=stage.encoder.pooling,
        attention_dropout=regularizers.attention_dropout,
        hidden_dropout=regularizers.hidden_dropout,
        drophead=regularizers.drophead,
        initialization=stage.encoder.initialization if start is None else "pretrained",
        layers=stage.encoder.layers if start is None else None,
    )


def load_start_tokenizer(stage: Train, context: Context) -> Tokenizer:
    """The tokenizer of `load_encoder` alone."""
    return load_tokenizer(start_folder(stage, context))


def start_folder(stage: Train, context: Context) -> Path:
    """Where what `load_encoder` loads lies."""
    if stage.start is not None:
        return folder_of(stage.start, context)
    return find_checkpoint(checkpoint_of(stage.encoder, context), revision=hub_revision(stage.encoder, context))
