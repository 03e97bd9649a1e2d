"""The training loop, and the report of each step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from sentdist.errors import TrainingDiverged
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import Engine, LateOutcomes
from sentdist.learning.gather import by_share, largest_share, seconds_waited
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.objective import Objective


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
            begun, so that the GPU has work while the host waits. The caller may then change what `is_read` returns for that next step.
    Raises:
        TrainingDiverged: on all ranks, if a loss or gradient is not finite on any; parameters and optimizer have stayed since.
    """
    clock, outcomes = _Clock(), LateOutcomes[_Step]()
    for step, batch in enumerate(batches, start=start):
        data = clock.lap()
        embeddings = _embed(engine, objective, batch, micro_batch=micro_batch)
        forward = clock.lap()
        loss = by_share(objective(embeddings, batch), batch.num_rows, of=batch.num_rows_of_all)
        loss_seconds = clock.lap()
        engine.backward(loss)
        backward = clock.lap()
        lr, outcome = engine.lr, engine.step(loss, vote=vote())
        objective.after_step(embeddings.detach(), batch)
        seconds = StepSeconds(
            data=data, forward=forward, loss=loss_seconds, backward=backward, optimizer=clock.lap(), waiting=clock.take_waiting()
        )
        if outcomes.is_coming:
            yield from _reports(outcomes, clock, is_latest=False)
        outcomes.add(_Step(step=step, batch=batch.left_on_host(), lr=lr, seconds=seconds), outcome)
        if not engine.runs_ahead or is_read(step):
            yield from _reports(outcomes, clock)
        elif is_read_late(step):
            outcomes.begin_reading()
    yield from _reports(outcomes, clock)


def _embed(engine: Engine, objective: Objective, batch: Batch, *, micro_batch: int | None) -> Tensor:
    """Return the (C·B, D) embeddings of a batch; of one sentence if the loss reads none, since engines need a pass through them at each
    step.
    """
    if not objective.reads_embeddings:
        return encode_in_micro_batches(engine.encode, batch.tokens.take([0]), micro_batch=micro_batch, most=1)
    most = batch.num_columns * largest_share(batch.num_rows_of_all)
    return encode_in_micro_batches(engine.encode, batch.tokens, micro_batch=micro_batch, most=most)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What the report of a step has besides its outcome."""

    step: int
    batch: Batch  # without its tensors on the device
    lr: float
    seconds: StepSeconds


def _reports(outcomes: LateOutcomes[_Step], clock: _Clock, *, is_latest: bool = True) -> Iterator[StepReport]:
    """Yield the reports of the steps so far; the time waited for the device counts for the last. is_latest: of the last of them."""
    found = outcomes.read()
    waited = clock.lap()
    for one, (loss, votes, grad_norm) in found:
        _check_finite(one, loss, grad_norm)
        is_last = one is found[-1][0]
        yield StepReport(
            step=one.step,
            loss=loss,
            grad_norm=grad_norm,
            lr=one.lr,
            num_sentences=one.batch.sentence_ids.size,
            votes=votes,
            seconds=replace(one.seconds, optimizer=one.seconds.optimizer + waited) if is_last else one.seconds,
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


def _check_finite(one: _Step, loss: float, grad_norm: float) -> None:
    rows = f"rows {one.batch.first_row} to {one.batch.first_row + one.batch.num_rows - 1} of the batch"
    for where, name, value in ((rows, "loss over all workers", loss), ("gradient", "norm", grad_norm)):
        if not math.isfinite(value):
            raise TrainingDiverged(
                where=f"step {one.step}, {where}",
                found=f"{name} {value}",
                expected="a finite number",
                remedy="The optimizer was not touched. Check these rows; resume from the last checkpoint with a smaller learning rate, "
                "a warm-up or fp32.",
            )
