"""Build, on a resident worker or on each rank of a worker group, stage after stage as the board orders.

Torch is imported where it is used: that takes seconds, and a corpus, for which all others wait, needs none.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import SentdistError, explain_disk_errors, named
from sentdist.learning.freed_memory import give_back_freed_memory, give_back_gpu_memory
from sentdist.machine import collect_rarely, pass_over_libraries
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Bank, Rung, Targets, Train
from sentdist.run.checkpoints import forget_finished
from sentdist.run.events import StageEvent
from sentdist.run.losses import end_of, may_be_a_lost_peer
from sentdist.run.resources import Demand, stage_demand, use_reserved
from sentdist.run.submissions import EventSink, GroupMember, Submission
from sentdist.run.workers import Order
from sentdist.stages.context import Context, inputs_watched
from sentdist.stages.local import build_in_process
from sentdist.stages.sharded import Sharded
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import Run as TrackedRun

TRIES, PAUSE_S = 60, 2.0  # calls to an unreachable board, and seconds between them; then the group counts as lost
OTHERS_TELL_S = 60.0  # time within which the first worker reports an error that all workers should have met


def build_orders(member: GroupMember) -> None:
    """Build what the board orders until it sends the group away or has died.

    Raises:
        Exception: not a SentdistError, for example a lost peer: the group is lost.
        SentdistError: a worker other than the first met it alone; the first one waits for this worker.
        ActorUnavailableError: the board stays unreachable: the group is lost.
    """
    collect_rarely()
    if member.demand.way == "task":
        _build_all(member, is_first=True)
        return
    from sentdist.learning.gather import held_group
    from sentdist.stages.train_setup import ranks_here

    with held_group():
        _build_all(member, is_first=ranks_here().is_first)


def _build_all(member: GroupMember, *, is_first: bool) -> None:
    number, known_modules, met = 0, 0, None
    board = member.sink.board
    with _bank_stays(member.demand), _until_the_board_is_gone():
        while (order := _next_order(board, member.name, number, met, is_first=is_first)) is not None:
            number = order.number
            sink = replace(member.sink, order=(member.name, number))
            if is_first:
                answer = _build(member, order, sink)
                _answer(board.finish, member.name, number, answer)
            else:
                met = _follow(order, sink)
            _let_go()
            known_modules = pass_over_libraries(known_modules)


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
            artifact = _build_by_kind(stage, submission, sink)
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


def _build_by_kind(stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    # torch, transformers and Ray Train take seconds to import: each only where it is used.
    context = submission.context
    demand = stage_demand(stage, context.runtime)
    match stage:
        case Train() | Rung():
            from sentdist.run.rank import train_as_first_rank

            return train_as_first_rank(stage, submission, sink, submission.tracker.begin(stage.whole.key))
        case Bank() | Targets() if demand.way == "group":
            return shards_in_group(stage, submission, sink)
    assert demand.way == "task", f"no worker group builds stages of kind {stage.kind}"
    if isinstance(stage, CorpusStage) and not stage.uses_gpu:
        return build_in_process(stage, context)
    from sentdist.stages.fit import explain_full_gpu

    use_reserved(demand)
    with explain_full_gpu(stage, context):
        return build_in_process(stage, context)


def shards_in_group(stage: Sharded, submission: Submission, sink: EventSink) -> Artifact:
    """Make the shards of a stage with all workers of a group; called on the first one."""
    sink.call_group()
    artifact = _build_shards(stage, submission.context)
    assert artifact is not None, "the first worker commits"
    return artifact


def _build_shards(stage: Sharded, context: Context) -> Artifact | None:
    from sentdist.run.rank import build_over_ranks, worker_body
    from sentdist.stages.train_setup import ranks_here

    return build_over_ranks(stage, context, ranks_here(), make_body=partial(worker_body, stage, context))


def _build(member: GroupMember, order: Order, sink: EventSink) -> Artifact | Exception:
    """The first worker's answer to an order: an artifact or an error. An error that may mean a lost worker is raised instead."""
    try:
        return member.body(order.stage, order.submission, sink)
    except Exception as error:
        if may_be_a_lost_peer(error, stage_demand(order.stage, order.submission.context.runtime)):
            raise
        return error


def _next_order(board: Any, name: str, after: int, met: SentdistError | None, *, is_first: bool) -> Order | None:
    """The board's next order; None if the group must leave.

    met: the error that ended the last order on this worker. If the first worker met it too, it reports it, and the board sends the group
    away. Otherwise it waits for this worker in a collective, up to half an hour: so this one raises its error after OTHERS_TELL_S.
    """
    within_s = None if met is None else OTHERS_TELL_S
    try:
        order: Order | None = _answer(board.next_order, name, after, within_s=within_s, is_first=is_first)
    except GetTimeoutError:
        assert met is not None, "only a wait after an error has a timeout"
        raise met from None
    return order


def _follow(order: Order, sink: EventSink) -> SentdistError | None:
    """Do a worker's part of an order that the first one has begun. An error that the user must fix is met by all workers at the same
    step; the first one reports it to the board, here it is returned.

    Raises:
        SentdistError: this worker alone met it, for example a full GPU or a changed input; the group is lost.
    """
    from sentdist.run.rank import train_rank
    from sentdist.stages.fit import explain_full_gpu

    stage, context = order.stage, order.submission.context
    with explain_full_gpu(stage, context), inputs_watched():
        try:
            match stage:
                case Train() | Rung():
                    train_rank(stage, context, sink, TrackedRun())
                case Bank() | Targets():
                    _build_shards(stage, context)
                case _:
                    raise TypeError(f"{stage.kind} is built by one process")
        except SentdistError as error:
            return error
    return None


@contextmanager
def _until_the_board_is_gone() -> Iterator[None]:
    """Leave quietly when the board has died: jobs that need the work start another board."""
    try:
        yield
    except ActorUnavailableError:
        raise
    except RayActorError:
        return


def _answer(question: Any, *args: object, within_s: float | None = None, **options: object) -> Any:
    """The board's answer; the call is repeated when the connection breaks, which numbered calls allow.

    Raises:
        GetTimeoutError: no answer within `within_s` seconds; None waits forever.
    """
    for _ in range(TRIES - 1):
        try:
            return ray.get(question.remote(*args, **options), timeout=within_s)
        except ActorUnavailableError:
            time.sleep(PAUSE_S)
    return ray.get(question.remote(*args, **options), timeout=within_s)


def _bank_stays(demand: Demand) -> AbstractContextManager[None]:
    if not demand.num_gpus:
        return nullcontext()
    from sentdist.learning.device_bank import bank_stays

    return bank_stays()


def _let_go() -> None:
    """Free what a stage leaves, before the next one runs and while the group waits."""
    gc.collect()
    gc.collect()  # an engine of DeepSpeed removes its hooks in the first pass; only the second can free it
    give_back_freed_memory()
    give_back_gpu_memory()
