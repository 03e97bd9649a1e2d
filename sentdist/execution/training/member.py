"""A worker of a group that stays: builds one stage after another, alone or together with the others of its group."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import ray
import torch
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from sentdist.errors import SentdistError
from sentdist.execution.board.attempts import may_be_a_lost_peer
from sentdist.execution.board.event_sink import EventSink, GroupMember
from sentdist.execution.board.submission import Submission
from sentdist.execution.board.worker_groups import Order
from sentdist.execution.demand import Demand, stage_demand
from sentdist.execution.parallel.shards import build_over_ranks, worker_body
from sentdist.execution.training.rank import train_rank
from sentdist.gc_thresholds import pass_over_libraries
from sentdist.learning.device_bank import bank_stays
from sentdist.learning.freed_memory import give_back_freed_memory, give_back_gpu_memory, keep_gpu_memory_whole
from sentdist.learning.gather import held_group
from sentdist.plan.stages import Bank, Rung, Targets, Train
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import explain_full_gpu
from sentdist.stages.inputs_in_use import inputs_watched
from sentdist.stages.ranks import ranks_here
from sentdist.stages.sharded import Sharded
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import NullRun

TRIES, PAUSE_S = 60, 2.0  # how often a question is put to a board that is out of reach; then the group counts as lost
OTHERS_TELL_S = 60.0  # after an error that all workers should have met, the first one tells the board of it within so long


def build_orders(member: GroupMember) -> None:
    """Build what the board orders until it says that the group shall leave, or is gone itself.

    Raises:
        Exception: what a training of several workers met that is none of ours, such as a peer that is gone: the group is lost with it.
        SentdistError: what a worker met that is not the first, and the first one does not tell of: it waits for this one.
        ActorUnavailableError: the board stays out of reach: the group is lost, too.
    """
    is_first = ranks_here().is_first
    number, known_modules, met = 0, 0, None
    board, device = member.sink.board, _device(member.demand)
    with held_group(), bank_stays(), _until_the_board_is_gone():
        while (order := _next_order(board, member.name, number, met, is_first=is_first, device=device)) is not None:
            number = order.number
            sink = replace(member.sink, order=(member.name, number))
            if is_first:
                answer = _build(member, order, sink)
                _answer(board.finish, member.name, number, answer)
            else:
                met = _follow(order, sink)
            _let_go()
            known_modules = pass_over_libraries(known_modules)


def shards_in_group(stage: Sharded, submission: Submission, sink: EventSink) -> Artifact:
    """Called on the first worker of a group: make the shards of a stage together with the other workers."""
    sink.call_group()
    artifact = _build_shards(stage, submission.context, sink)
    assert artifact is not None, "the first worker commits"
    return artifact


def _build_shards(stage: Sharded, context: Context, sink: EventSink) -> Artifact | None:
    return build_over_ranks(stage, context, ranks_here(), make_body=partial(worker_body, stage, context), sink=sink)


def _build(member: GroupMember, order: Order, sink: EventSink) -> Artifact | Exception:
    """What the first worker answers to an order: an artifact or an error. An error that may only mean that another worker is gone is
    raised instead."""
    try:
        return member.body(order.stage, order.submission, sink)
    except Exception as error:
        if may_be_a_lost_peer(error, stage_demand(order.stage, order.submission.context.runtime)):
            raise
        return error


def _next_order(board: Any, name: str, after: int, met: SentdistError | None, *, is_first: bool, device: str) -> Order | None:
    """What the board orders next; None: the group shall leave.

    met: the error that ended the last order on this worker. If the first worker met it too, it tells the board, which sends the group away.
    If it does not, it waits for this worker in a collective, up to half an hour: so this one raises its error after OTHERS_TELL_S.
    """
    within_s = None if met is None else OTHERS_TELL_S
    try:
        order: Order | None = _answer(board.next_order, name, after, within_s=within_s, is_first=is_first, device=device)
    except GetTimeoutError:
        assert met is not None, "only after an error there is an end to waiting"
        raise met from None
    return order


def _follow(order: Order, sink: EventSink) -> SentdistError | None:
    """What the other workers do for an order that the first one has begun. An error that a person must fix is met by all workers at the
    same step; the first one tells the board, here it is returned.

    Raises:
        SentdistError: what this one alone met, as a GPU that is full or an input that was changed under it; the group is lost with it.
    """
    stage, context = order.stage, order.submission.context
    with explain_full_gpu(stage, context), inputs_watched():
        try:
            match stage:
                case Train() | Rung():
                    train_rank(stage, context, sink, NullRun())
                case Bank() | Targets():
                    _build_shards(stage, context, sink)
                case _:
                    raise TypeError(f"{stage.kind} is built by one process")
        except SentdistError as error:
            return error
    return None


def _device(demand: Demand) -> str:
    """What kind of GPU this process computes on; "": a CPU, which are taken for equally fast."""
    if demand.num_gpus:
        keep_gpu_memory_whole()  # before torch is asked anything of the GPU
    return torch.cuda.get_device_name() if demand.num_gpus and torch.cuda.is_available() else ""


@contextmanager
def _until_the_board_is_gone() -> Iterator[None]:
    """Leave quietly when the board has died: whoever needs the work asks another board."""
    try:
        yield
    except ActorUnavailableError:
        raise
    except RayActorError:
        return


def _answer(question: Any, *args: object, within_s: float | None = None, **options: object) -> Any:
    """The board's answer, asked for again when the connection breaks: questions are numbered, so the board may be asked twice.

    Raises:
        GetTimeoutError: there is none within so many seconds; None waits forever.
    """
    for _ in range(TRIES - 1):
        try:
            return ray.get(question.remote(*args, **options), timeout=within_s)
        except ActorUnavailableError:
            time.sleep(PAUSE_S)
    return ray.get(question.remote(*args, **options), timeout=within_s)


def _let_go() -> None:
    """Give back what a stage leaves behind: nothing of it may be held while the next one runs, or while the group waits."""
    gc.collect()
    gc.collect()  # an engine of DeepSpeed takes its hooks out as it goes, and only then nothing holds it
    give_back_freed_memory()
    give_back_gpu_memory()
