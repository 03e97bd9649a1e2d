"""Build stages in this process, one after another: for `--local`, and as reference for results on Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import ArtifactLost, SentdistError, StoreError, explain_disk_errors
from sentdist.learning.device_bank import bank_stays
from sentdist.learning.freed_memory import give_back_gpu_memory
from sentdist.recipe.stage import Stage, topological
from sentdist.recipe.stages import Bank, Rung, Scores, Targets, Train
from sentdist.stages.context import Context, inputs_watched
from sentdist.stages.fit import explain_full_gpu
from sentdist.store.store import Artifact

if TYPE_CHECKING:
    from sentdist.stages.rungs import Listener


def build_in_process(stage: Stage, context: Context) -> Artifact:
    """Build and commit a stage that is not a training.

    Raises:
        TypeError: a kind of stage that is not built here.
    """
    # torch and transformers take seconds to import, so each kind of stage imports its own body.
    match stage:
        case CorpusStage():
            from sentdist.stages.text_stages import build_corpus_stage

            return build_corpus_stage(stage, context)
        case Bank() | Targets():
            from sentdist.stages.sharded import body_of, build_in_shards

            return build_in_shards(stage, context, body=body_of(stage, context))
        case Scores():
            from sentdist.stages.scores import build_scores

            return build_scores(stage, context)
    raise TypeError(f"no body for the stage {stage.kind}")


log = logging.getLogger(__name__)


@bank_stays()
def build_all(stages: Sequence[Stage], context: Context, *, listen: Listener | None = None) -> list[Artifact]:
    """Build the stages that the store lacks, inputs before their users; return the artifacts of all, in order.

    Artifacts found damaged on use are built again.

    Args:
        listen: Called with each step, dev score and finished artifact.
    """
    for _ in stages:  # each damaged artifact is moved aside, so the next round builds it again
        try:
            return [build_here(stage, context, listen=listen) for stage in stages]
        except ArtifactLost as loss:
            log.warning("%s", loss)
    return [build_here(stage, context, listen=listen) for stage in stages]


@bank_stays()
def build_past_failures(
    stages: Sequence[Stage],
    context: Context,
    *,
    listen: Listener | None = None,
    failed: Callable[[Stage, SentdistError], None] | None = None,
) -> dict[str, SentdistError]:
    """Build as `build_all`, but skip only the stages that need a failed one; return the errors by key of failed and skipped stages.

    Args:
        failed: Called at once with each failed stage.

    Raises:
        SentdistError: the store or a disk fails, and with it all further stages.
    """
    errors: dict[str, SentdistError] = {}
    for stage in stages:
        lacking = next((errors[needed.key] for needed in stage.inputs if needed.key in errors), None)
        if lacking is not None:
            errors[stage.key] = lacking
            continue
        try:
            try:
                build_here(stage, context, listen=listen)
            except ArtifactLost as loss:
                log.warning("%s", loss)
                build_all(topological((stage,)), context, listen=listen)
        except SentdistError as error:
            if isinstance(error, StoreError):
                raise
            errors[stage.key] = error
            if failed is not None:
                failed(stage, error)
    return errors


def build_here(stage: Stage, context: Context, *, listen: Listener | None = None) -> Artifact:
    """Return the artifact of one stage, built in this process unless the store has it; its inputs must exist."""
    found = context.store.get(stage)
    if found is not None:
        return found
    with explain_full_gpu(stage, context), explain_disk_errors(f"{stage.kind} {stage.label}"), inputs_watched():
        if isinstance(stage, Train | Rung):
            from sentdist.stages.rungs import train_here  # torch takes seconds, and corpora need none

            artifact = train_here(stage, context, listen=listen)
        else:
            artifact = build_in_process(stage, context)
    give_back_gpu_memory()  # the next stage may run in another process
    if listen is not None:
        listen(stage, None, artifact)
    return artifact
