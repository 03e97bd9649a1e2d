"""How each kind of stage is built on a cluster, and what is told of it before and after."""

from __future__ import annotations

import time

from sentdist.errors import ArtifactLost, SentdistError
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.heartbeats import Heartbeats
from sentdist.execution.board.stage_task import EventSink
from sentdist.execution.board.submission import Submission
from sentdist.execution.resources import Way, stage_demand
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.stages.context import Context
from sentdist.store.store import Artifact


def build_stage(stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    """The artifact of a stage whose inputs exist; runs where the board put it.

    Raises:
        ArtifactLost: an input is damaged; it was moved aside.
        SentdistError, Exception: what went wrong; told before it is raised.
    """
    found = submission.context.store.get(stage)
    if found is not None:  # built meanwhile, by another cluster or by an attempt that was lost before it could say so
        return found
    started = time.perf_counter()
    try:
        sink.post(StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="started", message=_start_message(stage, submission)))
        artifact = _build(stage, submission, sink)
    except ArtifactLost as loss:  # an input: whoever asked for this stage asks again, see `BoardClient.follow`
        sink.post(StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="lost", message=str(loss)))
        raise
    except Exception as error:
        if _may_be_a_peer(error, stage, submission, sink):
            raise
        submission.tracker.fail(stage.key, f"{type(error).__name__}: {error}")
        sink.post(StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="failed", message=f"{type(error).__name__}: {error}"))
        raise
    submission.tracker.finish(artifact.record)
    seconds = time.perf_counter() - started
    sink.post(StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="finished", seconds=seconds))
    return artifact


def _may_be_a_peer(error: Exception, stage: Stage, submission: Submission, sink: EventSink) -> bool:
    """Whether an error of a group is perhaps no more than that one of its workers is gone: the board decides whether another one tries."""
    is_shared = sink.order is not None and stage_demand(stage, submission.context.runtime).way != "task"
    return is_shared and not isinstance(error, SentdistError)


def _start_message(stage: Stage, submission: Submission) -> str | None:
    """What people should know before a stage is built; a bank that will find no room is refused here, before anything is embedded."""
    if not (isinstance(stage, Bank) and submission.context.runtime.bank_in_object_store):
        return None
    from sentdist.execution.banks.reader import placement_of

    return placement_of(stage, submission.context).line


def _build(stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    # torch and transformers take seconds to import, so each kind of stage imports its own body.
    context = submission.context
    way = stage_demand(stage, context.runtime).way
    match stage:
        case Train():
            return _train(stage, submission, sink, way)
        case Bank() | Targets() if way == "pool" and sink.order is not None:
            from sentdist.execution.training.member import shards_in_group

            return shards_in_group(stage, submission, sink)
        case Bank() | Targets() if way == "pool":
            from sentdist.execution.parallel.shards import build_over_workers

            return build_over_workers(stage, context, sink=sink)
    with Heartbeats(stage, sink):
        if not isinstance(stage, CorpusStage) or stage.is_generated:
            return _build_with_torch(stage, context)
        from sentdist.stages.corpora.build import build_corpus

        return build_corpus(stage, context)


def _build_with_torch(stage: Stage, context: Context) -> Artifact:
    from sentdist.execution.reserved import use_reserved
    from sentdist.stages.gpu_memory import full_gpu_told

    use_reserved(stage_demand(stage, context.runtime))
    with full_gpu_told(stage, context):
        match stage:
            case CorpusStage():
                from sentdist.stages.corpora.build import build_corpus

                return build_corpus(stage, context)
            case Bank() | Targets():
                from sentdist.stages.sharded import build_in_shards

                return build_in_shards(stage, context)
            case Scores():
                from sentdist.stages.scores.build import build_scores

                return build_scores(stage, context)
    raise TypeError(f"no body for the stage {stage.kind}")


def _train(stage: Train, submission: Submission, sink: EventSink, way: Way) -> Artifact:
    run = submission.tracker.begin(stage.key)
    if way == "group":
        from sentdist.execution.training.member import train_in_group

        return train_in_group(stage, submission, sink, run)
    from sentdist.execution.training.one_worker import train_in_task

    return train_in_task(stage, submission, sink, run)
