"""Where the inputs of a stage lie on this machine: artifacts of other stages, and pretrained checkpoints. Without torch."""

from __future__ import annotations

from pathlib import Path

from sentdist.errors import ArtifactLost
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Stage
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


def checkpoint_of(encoder: EncoderSpec, context: Context) -> str:
    """What `SentenceEncoder.load` understands: a packaged name, a folder, a hub id."""
    return context.folders.get(encoder.revision, encoder.checkpoint)


def hub_revision(encoder: EncoderSpec, context: Context) -> str | None:
    """The commit to ask the hub for; None where the content is pinned in another way."""
    is_commit = "/" in encoder.checkpoint and encoder.revision not in context.folders
    return encoder.revision if is_commit else None
