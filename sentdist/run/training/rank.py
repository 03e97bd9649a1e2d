"""Run a training on one worker, alone or as a rank of a group."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from functools import partial
from typing import assert_never

import torch
import torch.distributed as dist

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.engine import TorchEngine
from sentdist.learning.freed_memory import let_freed_memory_go
from sentdist.learning.loop import StepReport
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Rung, Tokens, Train
from sentdist.run.banks.reader import bank_of
from sentdist.run.board.events import progress_event
from sentdist.run.board.losses import LeaveNotice
from sentdist.run.board.submissions import EventSink, Submission
from sentdist.run.demand import stage_demand
from sentdist.run.parallel.shards import build_over_ranks
from sentdist.run.prometheus import SENTENCES, add
from sentdist.run.reserved import use_reserved
from sentdist.run.training.checkpoints import RunningFolder, forget_running
from sentdist.run.training.resume import CheckpointClock, begin_or_resume, post_resumed, save_checkpoint
from sentdist.stages.banks import placed
from sentdist.stages.context import Context
from sentdist.stages.devices import device_of
from sentdist.stages.memory import explain_full_gpu
from sentdist.stages.rungs import events_until, from_rung, publish_training
from sentdist.stages.train import MakeEngine, TrainSession
from sentdist.stages.train_setup import Ranks, TokensBody, load_start_tokenizer, ranks_here, tokens_stage
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import Run


def engine_of(runtime: Runtime, device: str) -> MakeEngine:
    """Return a factory of the runtime's engine, which takes encoder and optimization."""
    match runtime.engine:
        case "torch":
            return partial(TorchEngine, device=device)
        case "deepspeed":  # it looks for a compiler as it is imported: only where it is used
            from sentdist.run.training.deepspeed_engine import DeepSpeedEngine

            return partial(DeepSpeedEngine, zero_stage=runtime.zero_stage, device=device)
    assert_never(runtime.engine)


class ProgressReporter:
    """Follows every event of a session; posts every tenth of the steps and every dev score."""

    def __init__(self, stage: Train | Rung, session: TrainSession, sink: EventSink, run: Run) -> None:
        self._stage = stage
        self._session = session
        self._sink = sink
        self._run = run

    def close(self) -> None:
        """End the tracking run, after success or failure."""
        self._run.close()

    def on_event(self, event: StepReport | DevScore) -> None:
        """Pass an event on; never raise and never wait."""
        self._run.follow(self._session.history)
        if isinstance(event, StepReport):
            add(SENTENCES, event.num_sentences, kind=self._stage.kind)
        progress = progress_event(self._stage, self._session, event)
        if progress is not None:
            self._sink.post(progress)


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
    forget_running(submission.context.store, stage)
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
            post_resumed(stage, session, first_sink, resumed.note)
        clock = CheckpointClock(context.runtime, rank=ranks.rank, is_leaving=notice.is_leaving)
        with ExitStack() as stack:
            reporter = stack.enter_context(closing(ProgressReporter(stage, session, sink, run))) if ranks.is_first else None
            for event in stack.enter_context(closing(events_until(stage, session, vote=clock.vote))):
                if reporter is not None:
                    reporter.on_event(event)
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
    missing = ranks.from_first(partial(_missing_tokens, stage, context))
    if missing is not None:
        build_over_ranks(missing, context, ranks, make_body=partial(_tokens_body, missing, stage, context))


def _missing_tokens(stage: Train, context: Context) -> Tokens | None:
    wanted = tokens_stage(stage, load_start_tokenizer(stage, context))
    return None if context.store.has(wanted) else wanted


def _tokens_body(wanted: Tokens, stage: Train, context: Context) -> TokensBody:
    return TokensBody(wanted, context, load_start_tokenizer(stage, context))


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
