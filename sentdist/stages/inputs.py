"""Where the inputs of a stage lie on this machine: artifacts of other stages, and pretrained checkpoints."""

from __future__ import annotations

from pathlib import Path

from sentdist.errors import ArtifactLost
from sentdist.learning.encoder.pretrained import find_checkpoint, load_tokenizer
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokenizing import Tokenizer
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.inputs_in_use import note_input


def folder_of(stage: Stage, context: Context) -> Path:
    """A local folder with the artifact of an input stage.

    Raises:
        ArtifactLost: the input is damaged, or was removed since.
    """
    artifact = context.store.get(stage)
    if artifact is None:
        raise ArtifactLost(
            where=f"{context.store.shown}/{stage.place}", found="nothing", expected="a finished input", remedy="Run the whole recipe."
        )
    folder = context.store.folder(artifact)
    note_input(context.store, artifact, folder)
    return folder


def load_encoder(stage: Train, context: Context) -> SentenceEncoder:
    """The encoder that a training starts from: that of an earlier stage, or the pretrained checkpoint."""
    regularizers = stage.regularizers
    start = None if stage.start is None else folder_of(stage.start, context)
    return SentenceEncoder.load(
        checkpoint_of(stage.encoder, context) if start is None else start,
        revision=hub_revision(stage.encoder, context) if start is None else None,
        pooling=stage.encoder.pooling,
        max_length=None,
        attention_dropout=regularizers.attention_dropout,
        hidden_dropout=regularizers.hidden_dropout,
        drophead=regularizers.drophead,
        initialization=stage.encoder.initialization if start is None else "pretrained",
        layers=stage.encoder.layers if start is None else None,
    )


def load_start_tokenizer(stage: Train, context: Context) -> Tokenizer:
    """The tokenizer of `load_encoder` alone."""
    if stage.start is not None:
        return load_tokenizer(folder_of(stage.start, context))
    return load_tokenizer(find_checkpoint(checkpoint_of(stage.encoder, context), revision=hub_revision(stage.encoder, context)))


def checkpoint_of(encoder: EncoderSpec, context: Context) -> str:
    """What `SentenceEncoder.load` understands: a packaged name, a folder, a hub id."""
    return dict(context.folders).get(encoder.revision, encoder.checkpoint)


def hub_revision(encoder: EncoderSpec, context: Context) -> str | None:
    """The commit to ask the hub for; None where the content is pinned in another way."""
    is_commit = "/" in encoder.checkpoint and encoder.revision not in dict(context.folders)
    return encoder.revision if is_commit else None
