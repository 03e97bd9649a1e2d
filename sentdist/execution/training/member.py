"""A worker of a group that stays: builds one stage after another, alone or together with the others of its group."""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import replace

import ray
from ray.exceptions import RayActorError

from sentdist.errors import SentdistError
from sentdist.execution.board.attempts import may_be_a_lost_peer
from sentdist.execution.board.stage_task import EventSink, GroupMember
from sentdist.execution.board.submission import Submission
from sentdist.execution.board.worker_groups import Order
from sentdist.execution.parallel.shards import build_over_ranks
from sentdist.execution.resources import stage_demand
from sentdist.execution.training.rank import train_rank
from sentdist.learning.freed_memory import give_back_freed_memory, give_back_gpu_memory
from sentdist.learning.gather import held_group
from sentdist.plan.stages import Bank, Rung, Targets, Train
from sentdist.stages.gpu_memory import full_gpu_told
from sentdist.stages.inputs_in_use import inputs_watched
from sentdist.stages.ranks import ranks_here
from sentdist.stages.sharded import Sharded
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import NullRun


def build_orders(member: GroupMember) -> None:
    """Build what the board orders until it says that the group shall leave, or is gone itself.

    Raises:
        Exception: what a training of several workers met that is none of ours, such as a peer that is gone: the group is lost with it.
    """
    is_first = ranks_here().is_first
    number = 0
    with held_group(), suppress(RayActorError):  # the board is gone: whoever needs the work asks another one
        while (order := _next_order(member, number, is_first=is_first)) is not None:
            number = order.number
            sink = replace(member.sink, order=(member.name, number))
            if is_first:
                answer = _build(member, order, sink)
                ray.get(member.sink.board.finish.remote(member.name, number, answer))
            else:
                _follow(order, sink)
            _let_go()


def shards_in_group(stage: Sharded, submission: Submission, sink: EventSink) -> Artifact:
    """On the first worker: make the shards of a stage together with the others."""
    sink.call_group()
    artifact = build_over_ranks(stage, submission.context, ranks_here(), sink=sink)
    assert artifact is not None, "the first worker commits"
    return artifact


def _build(member: GroupMember, order: Order, sink: EventSink) -> Artifact | Exception:
    """What the first worker says of an order. An error that may be a peer's end is not an answer."""
    try:
        return member.body(order.stage, order.submission, sink)
    except Exception as error:
        if may_be_a_lost_peer(error, stage_demand(order.stage, order.submission.context.runtime)):
            raise
        return error


def _follow(order: Order, sink: EventSink) -> None:
    """What the other workers do for an order that the first one has begun.
    What a person must fix all of them raise at the same step, and the first one says it; but a GPU may be full for one of them alone."""
    stage, context = order.stage, order.submission.context
    with full_gpu_told(stage, context), suppress(SentdistError), inputs_watched():
        match stage:
            case Train() | Rung():
                train_rank(stage, context, sink, NullRun())
            case Bank() | Targets():
                build_over_ranks(stage, context, ranks_here(), sink=sink)
            case _:
                raise TypeError(f"{stage.kind} is built by one process")


def _next_order(member: GroupMember, after: int, *, is_first: bool) -> Order | None:
    order: Order | None = ray.get(member.sink.board.next_order.remote(member.name, after, is_first=is_first))
    return order


def _let_go() -> None:
    """Give back what a stage leaves behind: nothing of it may be held while the next one runs, or while the group waits."""
    gc.collect()
    give_back_freed_memory()
    give_back_gpu_memory()
