"""Do the work of one worker, alone or as a rank of a group: train with checkpoints, or make a share of a stage's shards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import assert_never

import torch
import torch.distributed as dist

from sentdist.learning.checkpoint import DevScore, UnusableCheckpoint
from sentdist.learning.engine import TorchEngine
from sentdist.learning.freed_memory import let_freed_memory_go
from sentdist.learning.loop import StepReport
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Rung, Tokens, Train
from sentdist.run.bank_reader import bank_of
from sentdist.run.checkpoints import RunningFolder, forget_finished
from sentdist.run.events import SENTENCES, StageEvent, What, add, progress_event
from sentdist.run.losses import LeaveNotice
from sentdist.run.resources import rows_per_part, stage_demand, use_reserved
from sentdist.run.submissions import EventSink, Submission
from sentdist.stages.context import Context, lost_input
from sentdist.stages.fit import device_of, explain_full_gpu
from sentdist.stages.rungs import events_until, from_rung, publish_training
from sentdist.stages.sharded import (
    Sharded,
    ShardedBody,
    body_of,
    num_shards,
    publish,
    shard_name,
    shard_rows,
    staged_shards,
    write_shard,
)
from sentdist.stages.train import MakeEngine, TrainSession
from sentdist.stages.train_setup import Ranks, TokensBody, load_start_tokenizer, placed, ranks_here, tokens_stage
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import Run


def engine_of(runtime: Runtime, device: str) -> MakeEngine:
    """Return a factory of the runtime's engine, which takes encoder and optimization."""
    match runtime.engine:
        case "torch":
            return partial(TorchEngine, device=device)
        case "deepspeed":  # it looks for a compiler as it is imported: only where it is used
            from sentdist.run.deepspeed_engine import DeepSpeedEngine

            return partial(DeepSpeedEngine, zero_stage=runtime.zero_stage, device=device)
    assert_never(runtime.engine)


def report(event: StepReport | DevScore, stage: Train | Rung, session: TrainSession, sink: EventSink, run: Run) -> None:
    """Follow an event of a session: its curve, the number of sentences, every tenth of the steps and every dev score. Never waits."""
    run.follow(session.history)
    if isinstance(event, StepReport):
        add(SENTENCES, event.num_sentences, kind=stage.kind)
    progress = progress_event(stage, session, event)
    if progress is not None:
        sink.post(progress)


def train_as_first_rank(stage: Train | Rung, submission: Submission, sink: EventSink, run: Run) -> Artifact:
    """Train as the first worker, together with any others, from the last checkpoint if there is one.

    The board repeats the call if this process or the group is lost.

    Raises:
        SentdistError: an error that the user must fix; in a group, raised on all workers at the same step.
        Exception: an error that ends the process or the group.
    """
    if sink.order is not None:
        sink.call_group()
    with explain_full_gpu(stage, submission.context):
        artifact = train_rank(stage, submission.context, sink, run)
    assert artifact is not None, "the first worker commits"
    forget_finished(submission.context.store, {stage.key})
    return artifact


def train_rank(stage: Train | Rung, context: Context, sink: EventSink, run: Run) -> Artifact | None:
    """Train on one worker to the end; the first one reports, commits and returns the artifact, the others return None."""
    started = time.perf_counter()
    ranks = ranks_here()
    with ranks.errors_on_all():  # one host of a cluster may have a GPU that its torch cannot use
        use_reserved(stage_demand(stage, context.runtime))
    with ExitStack() as at_end, LeaveNotice() as notice:
        at_end.callback(let_freed_memory_go)  # which the session keeps
        _make_tokens(stage.whole, context, ranks)
        running = RunningFolder(context.store, stage, ranks)
        first_sink = sink if ranks.is_first else None
        make = partial(_start_session, stage.whole, context, ranks)
        resumed = from_rung(begin_or_resume(make, running, stage, first_sink), stage, context, make=make, ranks=ranks)
        session = resumed.session
        if first_sink is not None and (resumed.note or (resumed.step and resumed.step == session.progress.step)):
            first_sink.post(_event(stage, session, "resumed", message=resumed.note))
        clock = CheckpointClock(context.runtime, rank=ranks.rank, is_leaving=notice.is_leaving)
        with ExitStack() as stack:
            stack.callback(run.close)
            for event in stack.enter_context(closing(events_until(stage, session, vote=clock.vote))):
                if ranks.is_first:
                    report(event, stage, session, sink, run)
                if clock.is_due(event, votes=session.votes):
                    save_checkpoint(session, running, stage, first_sink)
                    clock.restart()
                elif clock.is_owed:
                    session.hold()
        return publish_training(resumed, stage, context, ranks, started=started)


def _make_tokens(stage: Train, context: Context, ranks: Ranks) -> None:
    """Make missing tokens of the corpus on all ranks together (one session would make all alone); all ranks raise the error of one."""
    if ranks.world_size == 1:
        return
    wanted = ranks.from_first(lambda: tokens_stage(stage, load_start_tokenizer(stage, context)))
    if not ranks.from_first(lambda: context.store.has(wanted)):
        build_over_ranks(wanted, context, ranks, make_body=lambda: TokensBody(wanted, context, load_start_tokenizer(stage, context)))


def _start_session(stage: Train, context: Context, ranks: Ranks) -> TrainSession:
    """Start a session on every worker, or raise the error of one on all."""
    with ranks.errors_on_all():
        device = _device(context.runtime)
        bank = placed(bank_of(stage, context), stage, context, torch.device(device))
        return TrainSession(stage, context, make_engine=engine_of(context.runtime, device), bank=bank)


def _device(runtime: Runtime) -> str:
    if not dist.is_initialized():
        return str(device_of(runtime))
    from ray.train.torch import get_device  # takes seconds; not needed without Ray Train

    return str(get_device())


def begin_or_resume(make: Callable[[], TrainSession], running: RunningFolder, stage: Train | Rung, sink: EventSink | None) -> TrainSession:
    """Return a session resumed from the newest usable checkpoint, or a new one; the same on every rank.

    Args:
        sink: on the first rank only; gets events on the checkpoint used, and why and where others were moved.
    """
    session, is_fresh = make(), True

    def load(folder: Path) -> str | None:
        nonlocal session, is_fresh
        if not is_fresh:  # an earlier checkpoint was loaded in part
            session = make()
        is_fresh = False
        try:
            session.load(folder)
        except UnusableCheckpoint as error:
            return str(error)
        return None

    step, notes = running.resume(load)
    if step is None and not is_fresh:
        session = make()
    if sink is not None and (notes or step is not None):
        event = _event(stage, session, "resumed")
        begins = "starts over: no checkpoint is usable" if step is None else event.what_happened
        sink.post(replace(event, message="; ".join([*notes, begins])))  # one event: Ray may deliver two in any order
    return session


def save_checkpoint(session: TrainSession, running: RunningFolder, stage: Train | Rung, sink: EventSink | None) -> None:
    """Write a checkpoint. If it cannot be written, report that and go on with the one before.

    Raises:
        ArtifactLost: a rank saw that an input was changed meanwhile; raised on all ranks. Earlier checkpoints are of the intact input.
    """
    with running.ranks.errors_on_all():
        if (loss := lost_input()) is not None:
            raise loss
    problem = running.save(session.save, step=session.progress.step)
    if problem is not None and sink is not None:
        message = f"its checkpoint could not be written ({problem}); the training goes on, the checkpoint before it stays"
        sink.post(_event(stage, session, "checkpoint", message=message))


def _event(stage: Train | Rung, session: TrainSession, what: What, message: str | None = None) -> StageEvent:
    may_change = what == "resumed" and session.context.runtime.workers_may_change
    return StageEvent.of(
        stage, what, message=message, step=session.progress.step, num_steps=session.schedule.num_steps,
        num_workers=session.engine.world_size if may_change else None,
    )  # fmt: skip


# A dev score is worth a checkpoint, but on fast trainings (a score a second) writing 270 MB each time would cost more than training.
SCORE_FRACTION = 0.1


class CheckpointClock:
    """Decides when a checkpoint is due: every `checkpoint_every_s` seconds, at a dev score after a tenth of that, and once when a host is
    about to leave; if the engine has begun another step by then, after that step.

    The first rank's clock decides, but any rank with a leaving host makes one due. All ranks get the sum of their `vote`s with the
    events of a session, so that they decide alike without an additional collective.
    """

    def __init__(self, runtime: Runtime, *, rank: int = 0, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._every_s = runtime.checkpoint_every_s
        self._look_every = runtime.log_every  # steps between two looks at the clock
        self._is_first = rank == 0
        self._is_leaving = is_leaving
        self._has_hurried = False
        self._since = time.monotonic()
        self.is_owed = False  # whether one was due when none could be written, because the engine was ahead

    def restart(self) -> None:
        """Note that a checkpoint was written."""
        self._since = time.monotonic()
        self._has_hurried = self._has_hurried or self._is_leaving()

    def vote(self) -> float:
        """Return this rank's vote: seconds since the last checkpoint on the first rank, 0 on others; infinity while its host is about to
        leave and no checkpoint was written since the notice."""
        if self._is_leaving() and not self._has_hurried:
            return math.inf
        return time.monotonic() - self._since if self._is_first else 0.0

    def is_due(self, event: StepReport | DevScore, *, votes: float) -> bool:
        """Return True if a checkpoint must be written now. votes: sum over all ranks at this event."""
        if isinstance(event, DevScore):
            return votes >= self._every_s * SCORE_FRACTION
        is_due = self.is_owed or ((event.step + 1) % self._look_every == 0 and votes >= self._every_s)
        self.is_owed = is_due and not event.is_latest
        return is_due and event.is_latest


def build_over_ranks(stage: Sharded | Tokens, context: Context, ranks: Ranks, *, make_body: Callable[[], ShardedBody]) -> Artifact | None:
    """Make every shard of a stage on the ranks of a running group, each its share; the first rank commits the artifact and returns it.

    Args:
        make_body: returns the stage's body on a rank.

    Raises:
        SentdistError: one rank raised it; all ranks raise it.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        folder = ranks.from_first(lambda: stack.enter_context(staged_shards(context.store)))
        with ranks.errors_on_all():
            body = make_body()
        per_shard = rows_per_part(body.num_rows, context.runtime)
        for first in range(0, num := num_shards(body.num_rows, per_shard), ranks.world_size):
            # Ranks meet after each shard: a longer wait than the timeout of the process group (half an hour) fails the stage.
            shard, content = first + ranks.rank, None
            with ranks.errors_on_all():
                if shard < num:
                    with explain_full_gpu(stage, context):
                        content = _make(body, shard, per_shard, folder if context.store.is_shared else None)
            if not context.store.is_shared:
                _write_received(folder, body, {first + rank: one for rank, one in enumerate(ranks.gather(content))})
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started) if ranks.is_first else None


def _make(body: ShardedBody, shard: int, per_shard: int, folder: Path | None) -> bytes | None:
    """Write a shard into the folder that all ranks see; return its content if there is none."""
    if folder is not None:
        write_shard(body, shard, per_shard, folder)
        return None
    buffer = BytesIO()
    body.write(shard_rows(shard, body.num_rows, per_shard), buffer)
    return buffer.getvalue()


def _write_received(folder: Path, body: ShardedBody, contents: Mapping[int, object]) -> None:
    for shard, content in contents.items():
        if isinstance(content, bytes):
            (folder / shard_name(shard, body)).write_bytes(content)


def worker_body(stage: Sharded, context: Context) -> ShardedBody:
    """Return the body of a stage on a worker, limited to its reserved CPUs and GPU share."""
    use_reserved(stage_demand(stage, context.runtime))
    return body_of(stage, context)
