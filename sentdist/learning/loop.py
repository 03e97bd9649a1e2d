"""The training loop, and the report of each step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from sentdist.errors import TrainingDiverged
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import Engine, diverged_gradient
from sentdist.learning.gather import by_share, largest_share, seconds_waited
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.objective import Objective
from sentdist.learning.prefetch import begin_to_host


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """Wall-clock seconds of a step on this rank by part; waiting for other ranks counts only as `waiting`.

    On a GPU the host runs ahead: pending device work appears where the host first needs a result, in `waiting` or `optimizer`.
    """

    data: float
    forward: float
    loss: float
    backward: float
    optimizer: float
    waiting: float

    @property
    def total(self) -> float:
        return self.data + self.forward + self.loss + self.backward + self.optimizer + self.waiting


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """Result of one optimizer step."""

    step: int  # its number, from 0
    loss: float  # nats, mean over the anchors of all ranks
    grad_norm: float  # L2, of the averaged gradient, before clipping
    lr: float
    num_sentences: int  # of the global batch, all columns
    seconds: StepSeconds
    votes: float = 0.0  # see `train_steps`
    is_latest: bool = True  # no later step has begun: only then is the engine's state that of this step


def train_steps(
    engine: Engine,
    objective: Objective,
    batches: Iterable[Batch],
    *,
    start: int = 0,
    micro_batch: int | None = None,
    vote: Callable[[], float] = lambda: 0.0,
    is_read: Callable[[int], bool] = lambda step: True,
    is_read_late: Callable[[int], bool] = lambda step: False,
) -> Iterator[StepReport]:
    """Train one step per batch and yield its report.

    The loop does not log, checkpoint or evaluate: the caller decides what to do between two steps, and stops early by ceasing to iterate.
    Every rank must draw equally often.

    Args:
        micro_batch: sentences whose activations are held at a time; None: all (see grad_cache.py).
        vote: returns a number at each step; the report has its sum over ranks, from the collective of the loss.
        is_read: whether the caller needs the state after this step. An engine that runs ahead of a GPU is waited for only after such steps:
            the reports of earlier ones come with theirs; before that do not save, score or stop.
        is_read_late: of the other steps, those whose numbers are needed: their report, with earlier ones, comes once the next step has
            begun,
            so that the GPU has work while the host waits. The caller may then change what `is_read` returns for that next step.
    Raises:
        TrainingDiverged: on all ranks, if a loss or gradient is not finite on any; the optimizer is not touched.
    """
    clock = _Clock()
    unread: list[_Unread] = []
    on_their_way: Callable[[], Tensor] | None = None  # copy of all unread facts
    for step, batch in enumerate(batches, start=start):
        data = clock.lap()
        embeddings = _embed(engine, objective, batch, micro_batch=micro_batch)
        forward = clock.lap()
        local_loss = by_share(objective(embeddings, batch), batch.num_rows, of=batch.num_rows_of_all)
        loss_seconds = clock.lap()
        engine.backward(local_loss)
        backward = clock.lap()
        lr, own_vote = engine.lr, vote()
        facts = engine.step_unread(local_loss, vote=own_vote)
        is_ahead = facts is not None
        if facts is None:
            facts = _step_and_read(engine, step, local_loss, embeddings, batch, vote=own_vote)
        objective.after_step(embeddings.detach(), batch)
        seconds = StepSeconds(
            data=data, forward=forward, loss=loss_seconds, backward=backward, optimizer=clock.lap(), waiting=clock.take_waiting()
        )
        latest = _Unread(step=step, batch=batch.left_on_host(), facts=facts, lr=lr, seconds=seconds)
        if on_their_way is not None:
            yield from _reports(unread, on_their_way, clock, is_latest=False)
            unread, on_their_way = [], None
        unread.append(latest)
        if not is_ahead or is_read(step):
            yield from _reports(unread, partial(_facts_of, unread), clock)
            unread = []
        elif is_read_late(step):
            on_their_way = begin_to_host(_facts_of(unread))
    if unread:
        yield from _reports(unread, on_their_way or partial(_facts_of, unread), clock)


def _embed(engine: Engine, objective: Objective, batch: Batch, *, micro_batch: int | None) -> Tensor:
    """Return the (C·B, D) embeddings of a batch; of one sentence if the loss reads none, since engines need a pass through them at each
    step.
    """
    if not objective.reads_embeddings:
        return encode_in_micro_batches(engine.encode, batch.tokens.take([0]), micro_batch=micro_batch, most=1)
    most = batch.num_columns * largest_share(batch.num_rows_of_all)
    return encode_in_micro_batches(engine.encode, batch.tokens, micro_batch=micro_batch, most=most)


def _step_and_read(engine: Engine, step: int, local_loss: Tensor, embeddings: Tensor, batch: Batch, *, vote: float) -> Tensor:
    """Like `Engine.step_unread`, but read the loss before the optimizer step, and the gradient before it moves anything."""
    loss, votes = engine.global_mean(local_loss, vote=vote)
    if not math.isfinite(loss):
        raise _diverged(step, loss, batch, f"{float(local_loss.detach())} on this one ({_non_finite(embeddings, batch)})")
    try:
        grad_norm = engine.step()
    except TrainingDiverged as error:
        raise _in_step(step, error) from error
    return torch.tensor([loss, votes, grad_norm], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class _Unread:
    """A step whose outcome the host has not read yet: a GPU may still compute it."""

    step: int
    batch: Batch  # without its tensors on the device
    facts: Tensor  # see `Engine.step_unread`
    lr: float
    seconds: StepSeconds


def _facts_of(unread: list[_Unread]) -> Tensor:
    return torch.stack([one.facts for one in unread])


def _reports(unread: list[_Unread], facts_of_all: Callable[[], Tensor], clock: _Clock, *, is_latest: bool = True) -> Iterator[StepReport]:
    """Yield the reports of some steps; the time waited for the device counts for the last. is_latest: of the last of them."""
    facts = facts_of_all().tolist()
    waited = clock.lap()
    for one, (loss, votes, grad_norm) in zip(unread, facts, strict=True):
        if not math.isfinite(loss):
            raise _diverged(one.step, loss, one.batch, "without details, since it was read late")
        if not math.isfinite(grad_norm):
            raise _in_step(one.step, diverged_gradient(grad_norm))
        is_last = one is unread[-1]
        seconds = replace(one.seconds, optimizer=one.seconds.optimizer + waited) if is_last else one.seconds
        yield StepReport(
            step=one.step,
            loss=loss,
            grad_norm=grad_norm,
            lr=one.lr,
            num_sentences=one.batch.sentence_ids.size,
            votes=votes,
            seconds=seconds,
            is_latest=is_latest and is_last,
        )
    clock.lap()  # the caller's time between two steps is not counted
    clock.take_waiting()


class _Clock:
    """Measures laps without the time waited for other ranks, which it sums separately."""

    def __init__(self) -> None:
        self._at, self._waited, self._waiting = time.perf_counter(), seconds_waited(), 0.0

    def lap(self) -> float:
        """Return the seconds since the last lap, less those waited."""
        now, waited = time.perf_counter(), seconds_waited()
        seconds = now - self._at - (waited - self._waited)
        self._waiting += waited - self._waited
        self._at, self._waited = now, waited
        return seconds

    def take_waiting(self) -> float:
        """Return the seconds waited in the laps since the last call."""
        waiting, self._waiting = self._waiting, 0.0
        return waiting


def _in_step(step: int, error: TrainingDiverged) -> TrainingDiverged:
    return error.with_context(where=f"step {step}, {error.where}")


def _non_finite(embeddings: Tensor, batch: Batch) -> str:
    """Name the sentences whose embeddings are not finite."""
    bad = torch.nonzero(~torch.isfinite(embeddings.detach()).all(dim=1)).flatten().tolist()
    columns_and_rows = [divmod(place, batch.num_rows) for place in bad]
    ids = [int(batch.sentence_ids[column, batch.first_row + row]) for column, row in columns_and_rows[:8]]
    return f"{len(bad)} embeddings not finite, sentences {ids}" if bad else "all embeddings here finite"


def _diverged(step: int, loss: float, batch: Batch, here: str) -> TrainingDiverged:
    rows = f"rows {batch.first_row} to {batch.first_row + batch.num_rows - 1} of the batch"
    return TrainingDiverged(
        where=f"step {step}, {rows}",
        found=f"loss {loss} over all workers, {here}",
        expected="a finite loss",
        remedy="The optimizer was not touched. Check these rows; resume from the last checkpoint with a smaller learning rate or in fp32.",
    )
