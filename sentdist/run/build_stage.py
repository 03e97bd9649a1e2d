"""Build a stage of any kind on a cluster, and post its events."""

from __future__ import annotations

import time

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import explain_disk_errors, named
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Bank, Rung, Targets, Train
from sentdist.run.checkpoints import forget_finished
from sentdist.run.events import StageEvent
from sentdist.run.losses import end_of, may_be_a_lost_peer
from sentdist.run.resources import stage_demand
from sentdist.run.submissions import EventSink, Submission
from sentdist.stages.context import inputs_watched
from sentdist.stages.local import build_in_process
from sentdist.store.store import Artifact


def build_stage(stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    """Build a stage whose inputs exist, in the process that the board chose, and return its artifact.

    Raises:
        ArtifactLost: an input is damaged and was moved aside.
        Exception: the stage failed; posted as an event before it is raised.
    """
    found = submission.context.store.get(stage)
    if found is not None:  # built meanwhile, by another cluster or by an attempt that was lost before it could report
        if isinstance(stage, Train | Rung):
            forget_finished(submission.context.store, {stage.key})
        return found
    started = time.perf_counter()
    try:
        sink.post(StageEvent.of(stage, "started"))
        with explain_disk_errors(f"{stage.kind} {stage.label}"), inputs_watched():
            artifact = _build(stage, submission, sink)
    except Exception as error:
        if sink.order is not None and may_be_a_lost_peer(error, stage_demand(stage, submission.context.runtime)):
            raise
        event = end_of(stage, error)
        if event.what == "failed":
            submission.tracker.fail(stage.key, named(error))
        sink.post(event)
        raise
    submission.tracker.finish(artifact.record)
    seconds = time.perf_counter() - started
    sink.post(StageEvent.of(stage, "finished", seconds=seconds))
    return artifact


def _build(stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    # torch, transformers and Ray Train take seconds to import: each only where it is used.
    context = submission.context
    demand = stage_demand(stage, context.runtime)
    match stage:
        case Train() | Rung():
            from sentdist.run.rank import train_as_first_rank

            return train_as_first_rank(stage, submission, sink, submission.tracker.begin(stage.whole.key))
        case Bank() | Targets() if demand.way == "group":
            from sentdist.run.orders import shards_in_group

            return shards_in_group(stage, submission, sink)
    assert demand.way == "task", f"no worker group builds stages of kind {stage.kind}"
    if isinstance(stage, CorpusStage) and not stage.uses_gpu:
        return build_in_process(stage, context)
    from sentdist.run.reserved import use_reserved
    from sentdist.stages.fit import explain_full_gpu

    use_reserved(demand)
    with explain_full_gpu(stage, context):
        return build_in_process(stage, context)
