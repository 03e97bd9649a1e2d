"""Train on one rank: batches, steps, dev scores, early stopping, checkpoints, learning curve, best weights, model card."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from sentdist.errors import StoreError, named
from sentdist.learning.bank import BankReader
from sentdist.learning.checkpoint import DevScore, Progress, UnusableCheckpoint, defined
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.encoder.write_folder import language_of
from sentdist.learning.engine import Engine
from sentdist.learning.freed_memory import give_back_freed_memory, keep_freed_memory
from sentdist.learning.gather import mean_over_ranks, of_first_rank
from sentdist.learning.loop import StepReport, StepSeconds, train_steps
from sentdist.learning.objective import Objective, save_heads
from sentdist.learning.optimization import EarlyStopping, Learner, Optimization, encoder_weights, head_weights
from sentdist.learning.precision import apply_matmul_precision
from sentdist.learning.prefetch import Sender, SentBatch, made_ahead
from sentdist.objectives.objective_spec import LossInputs
from sentdist.recipe import specs
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.stages.context import Context, folder_of
from sentdist.stages.text_stages import targets_of
from sentdist.stages.train_setup import DevScorer, RankBatches, load_encoder, make_objective
from sentdist.store.searches import HISTORY_FILE


@dataclass(kw_only=True)
class Curve:
    """Points every `log_every` steps (means over them), and total seconds of each part of a step."""

    log_every: int
    history: list[dict[str, Json]] = field(default_factory=list)
    last_loss: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    num_sentences: int = 0
    _recent: list[StepReport] = field(default_factory=list)

    def add(self, report: StepReport) -> None:
        self.last_loss = report.loss
        self.num_sentences += report.num_sentences
        for part in ("data", "forward", "loss", "backward", "optimizer", "waiting"):
            self.seconds[part] = self.seconds.get(part, 0.0) + getattr(report.seconds, part)
        self._recent.append(report)
        if (report.step + 1) % self.log_every == 0 or report.step == 0:  # fixed places, so that a resumed curve has the same points
            self._point()

    def _point(self) -> None:
        last = self._recent[-1]
        took = sum(report.seconds.total for report in self._recent)
        self.history.append(
            {
                "step": last.step + 1,
                "loss": sum(report.loss for report in self._recent) / len(self._recent),
                "grad_norm": last.grad_norm,
                "lr": last.lr,
                "sentences_per_s": round(sum(report.num_sentences for report in self._recent) / took, 1) if took else None,
                "at": round(time.time(), 2),
            }
        )
        self._recent.clear()

    def since_last_point(self) -> str:
        """Return the steps after the last point, as text for a checkpoint."""
        return json.dumps([asdict(report) for report in self._recent])

    def go_on(self, since_last_point: str) -> None:
        """Restore the steps of `since_last_point` from a checkpoint."""
        recent = [StepReport(**one | {"seconds": StepSeconds(**one["seconds"])}) for one in json.loads(since_last_point)]
        self._recent[:] = recent

    def summary(self) -> dict[str, Json]:
        total = sum(self.seconds.values())
        parts: dict[str, Json] = {f"seconds.{part}": round(seconds, 2) for part, seconds in self.seconds.items()}
        return {"sentences_per_s": round(self.num_sentences / total, 1) if total else None, **parts}


def history_lines(history: Sequence[dict[str, Json]]) -> str:
    """Return the history as JSON lines."""
    return "".join(json.dumps(point) + "\n" for point in history)


@dataclass(frozen=True, kw_only=True)
class TrainSchedule:
    """The steps of a training."""

    num_steps: int  # of all epochs
    steps_in_epoch: int  # of the current epoch; epochs may differ in length
    dev_interval: int  # steps between two dev scores

    @staticmethod
    def of(stage: Train, num_rows: int) -> TrainSchedule:
        """Return the initial schedule of a training whose corpus has `num_rows` rows."""
        per_epoch = _steps_per_epoch(stage, num_rows)
        every = 1.0 if stage.selection is None else stage.selection.every_fraction
        return TrainSchedule(
            num_steps=per_epoch * stage.training.epochs, steps_in_epoch=per_epoch, dev_interval=max(1, round(per_epoch * every))
        )

    def has_dev_at(self, in_epoch: int) -> bool:
        """Return whether dev is scored after this many steps of an epoch: not in its last half interval, since its end is scored."""
        return in_epoch % self.dev_interval == 0 and in_epoch + self.dev_interval / 2 <= self.steps_in_epoch


def early_stopping(stage: Train, num_rows: int) -> EarlyStopping | None:
    """Return the initial state of early stopping for a corpus of `num_rows` rows; None if the training has no rule for it."""
    rule = stage.stopping
    if rule is None:
        return None
    is_by_step = rule.reading == "step"
    steps = 1 if is_by_step else max(1, round(_steps_per_epoch(stage, num_rows) * rule.interval_fraction))
    return EarlyStopping(patience=rule.patience, steps_per_interval=steps)


def _steps_per_epoch(stage: Train, num_rows: int) -> int:
    return max(1, stage.training.steps_per_epoch(num_rows))


MakeEngine = Callable[[Learner, Optimization], Engine]

BEST_FILE = "best.pt"
OBJECTIVE_FILE = "objective.pt"  # what an objective has beside parameters
RECENT_FILE = "recent.json"  # steps since the last point of the curve


class TrainSession:
    """One rank of one training. All methods are collective: every rank calls them, in the same order.

    The caller iterates over `events`, and reports, saves or stops between two of them.
    """

    def __init__(self, stage: Train, context: Context, *, make_engine: MakeEngine, bank: BankReader | None) -> None:
        self.stage = stage
        self.context = context
        self._began = time.perf_counter()
        torch.manual_seed(stage.seed)  # random heads start equal on all ranks
        self._encoder = load_encoder(stage, context)
        self._encoder.checked_length(stage.training.max_length)
        if context.runtime.recompute_layers:
            self._encoder.recompute_layers()
        self._batches = RankBatches(stage, context, tokenizer=self._encoder.tokenizer, bank=bank)
        self._objective = _objective_of(stage, context, encoder=self._encoder, bank=bank)
        self.schedule = TrainSchedule.of(stage, self._batches.num_rows)
        learner = Learner(self._encoder, self._objective, freeze_encoder=stage.training.freeze_encoder)
        optimization = _optimization(stage.training, self.schedule.num_steps)
        self._num_still_steps = min(1, optimization.num_warmup_steps)  # the first of a warm-up moves nothing
        self.engine = make_engine(learner, optimization)
        apply_matmul_precision(self._encoder.device, stage.training.precision)
        if self._encoder.device.type == "cpu":
            keep_freed_memory()
        self._sender = Sender(self._encoder.device)
        self._objective.place_on(self._encoder.device)
        torch.manual_seed(stage.seed * 1_000_003 + 1 + self.engine.rank)  # dropout differs from rank to rank
        self._dev: DevScorer | None = None
        if stage.selection is not None:
            self._dev = DevScorer(stage, stage.selection, context, encoder=self._encoder, objective=self._objective)
        self.progress = Progress(step=0, stopping=early_stopping(stage, self._batches.num_rows))
        self._place_in_epoch = 0  # of the batch that was drawn last
        self.votes = 0.0  # at the last event, see `events`
        self._is_ahead = False  # whether the engine has begun a step beyond `progress`
        self._is_held = False
        self._best: dict[str, Tensor] = {}
        self._curve = Curve(log_every=context.runtime.log_every)

    @property
    def history(self) -> list[dict[str, Json]]:
        """Points of the learning curve so far, on rank 0."""
        return self._curve.history

    def events(self, *, vote: Callable[[], float] = lambda: 0.0) -> Generator[StepReport | DevScore, None, None]:
        """Train from the current step to the end or an early stop; `progress` is up to date at each event.

        Args:
            vote: Called at each event; the sum of its numbers over ranks is `votes`.
        """
        if self._is_dev_due() and not self._is_scored():
            yield self._score_dev(vote)  # the checkpoint was taken between a step and its dev score
        if self._is_stopped():
            return
        start, micro_batch = self.progress.step, self.context.runtime.micro_batch
        with made_ahead(partial(self._sent, self.progress)) as sent:  # the thread always ends
            for report in train_steps(
                self.engine,
                self._objective,
                self._received(sent),
                start=start,
                micro_batch=micro_batch,
                vote=vote,
                is_read=self._is_read,
                is_read_late=self._is_point,
            ):
                self._advance(report)
                self.votes = report.votes
                yield report
                if self._is_dev_due():
                    yield self._score_dev(vote)
                if self._is_stopped():
                    return

    def hold(self) -> None:
        """Stop the engine after its current step, so that a checkpoint can be written at the next event. Collective."""
        self._is_held = True

    def has_come_to(self, share: float) -> bool:
        """Return whether a share of all steps is done and scored on dev."""
        return self.has_stepped_to(share) and self._is_scored()

    def has_stepped_to(self, share: float) -> bool:
        """Return whether a share of all steps is done."""
        return self.progress.step >= math.ceil(share * self.schedule.num_steps - 1e-9)

    def seconds_since(self, began: float) -> float:
        """Return the seconds of this training: of earlier attempts, and of this one since `time.perf_counter()` was `began`."""
        return round(self.progress.seconds + time.perf_counter() - began, 3)

    def save(self, folder: Path) -> None:
        """Write a checkpoint from which `load` resumes exactly; on a GPU up to rounding, since attention's derivative and others sum in no
        fixed order there.

        Raises:
            RuntimeError: the engine is ahead of the last event, see `hold`.
        """
        if self._is_ahead:
            raise RuntimeError("cannot save a step after which another one has begun")
        folder.mkdir(parents=True, exist_ok=True)
        self.engine.save(folder, progress=replace(self.progress, seconds=self.seconds_since(self._began)))
        if self.engine.rank == 0:  # last: an error here leaves no rank waiting for another
            torch.save(self._best, folder / BEST_FILE)
            (folder / HISTORY_FILE).write_text(history_lines(self.history))
            (folder / RECENT_FILE).write_text(self._curve.since_last_point())
            if state := self._objective.extra_state():
                torch.save(state, folder / OBJECTIVE_FILE)

    def load(self, folder: Path) -> None:
        """Resume from a checkpoint of this stage.

        Raises:
            UnusableCheckpoint: it is damaged, or of another engine; it may be partly loaded.
            OSError: it cannot be read, but may be intact.
        """
        try:
            self._load(folder)
        except (torch.OutOfMemoryError, torch.AcceleratorError, torch.distributed.DistError):
            raise  # RuntimeErrors unrelated to the checkpoint
        except StoreError as error:
            raise UnusableCheckpoint(f"{error.found}; this training has {error.expected}") from error
        except (RuntimeError, ValueError, KeyError, TypeError, EOFError, UnpicklingError) as error:
            raise UnusableCheckpoint(named(error)) from error

    def _load(self, folder: Path) -> None:
        self.progress = self.engine.load(folder)
        if self.progress.step_in_epoch:  # whether dev is due depends on the actual length of the epoch
            self.schedule = replace(self.schedule, steps_in_epoch=len(self._batches.epoch(self.progress.epoch)))
        if self._objective.extra_state():
            self._objective.load_extra_state(torch.load(folder / OBJECTIVE_FILE, map_location="cpu", weights_only=True))
        if self.engine.rank == 0:
            self._best = torch.load(folder / BEST_FILE, weights_only=True)
            self._curve.history[:] = [json.loads(line) for line in (folder / HISTORY_FILE).read_text().splitlines()]
            if (recent := folder / RECENT_FILE).is_file():  # not in checkpoints of earlier versions
                self._curve.go_on(recent.read_text())

    def finish(self, folder: Path) -> dict[str, Json]:
        """Write the chosen encoder and its history into `folder` (on rank 0), and return results for the record.

        The weights with the best dev score are chosen; without a selection, the last ones.
        """
        weights = self.engine.weights() if self.progress.best_step is None else self._best
        give_back_freed_memory()
        results = self._results()
        if self.engine.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            encoder = load_encoder(self.stage, self.context)
            encoder.load_state_dict(encoder_weights(weights))
            heads = head_weights(weights)
            save_heads(folder, heads, objective=self.stage.objective.name)
            self._objective.save_into(folder, heads)
            encoder.is_exported_normalized &= not self._objective.adds_to_embeddings
            has_own_files = any(source.own is not None for source in self.stage.corpus.sources)  # whose language is unknown
            start = self.stage.encoder.checkpoint if self.stage.start is None else self.stage.start.label
            encoder.save(folder, base_model=start, language=() if has_own_files else language_of(encoder.checkpoint.folder))
            (folder / HISTORY_FILE).write_text(history_lines(self.history))
        return results

    def _received(self, sent: Iterator[tuple[int, int, SentBatch]]) -> Iterator[Batch]:
        for self._place_in_epoch, steps_in_epoch, one in sent:
            self.schedule = replace(self.schedule, steps_in_epoch=steps_in_epoch)
            yield self._sender.receive(one)

    def _is_read(self, step: int) -> bool:
        """Whether the state after a step is needed: for a dev score, a checkpoint, the end of an epoch or a stop."""
        in_epoch, schedule = self._place_in_epoch + 1, self.schedule
        is_due = in_epoch == schedule.steps_in_epoch or schedule.has_dev_at(in_epoch)
        return is_due or self._is_held or self.progress.stopping is not None

    def _is_point(self, step: int) -> bool:
        """Whether the curve has a point after a step."""
        return (step + 1) % self.context.runtime.log_every == 0 or step == 0

    def _sent(self, progress: Progress) -> Iterator[tuple[int, int, SentBatch]]:
        """Batches from the current step, being sent, each with its place in its epoch and the steps of that; runs in a thread."""
        rank, world_size = self.engine.rank, self.engine.world_size
        for place, num_steps, one in self._batches.beginning_at(progress.epoch, progress.step_in_epoch, rank=rank, world_size=world_size):
            yield place, num_steps, self._sender.send(one)

    def _advance(self, report: StepReport) -> None:
        progress = self.progress
        is_epoch_over = progress.step_in_epoch + 1 >= self.schedule.steps_in_epoch
        self.progress = replace(
            progress,
            step=report.step + 1,
            epoch=progress.epoch + is_epoch_over,
            step_in_epoch=0 if is_epoch_over else progress.step_in_epoch + 1,
            stopping=None if progress.stopping is None else progress.stopping.after(report.loss),
        )
        self._is_ahead = not report.is_latest
        self._is_held = self._is_held and self._is_ahead
        self._curve.add(report)

    def _is_dev_due(self) -> bool:
        """Whether dev is scored at the current step; an epoch's end is step 0 of the next. A training that stops before its first dev score
        is scored where it stopped."""
        progress = self.progress
        is_first = not progress.history or progress.history[0].step == progress.step
        return (
            self._dev is not None
            and progress.step > 0
            and (progress.step_in_epoch == 0 or self.schedule.has_dev_at(progress.step_in_epoch) or (is_first and self._is_stopped()))
        )

    def _is_scored(self) -> bool:
        return bool(self.progress.history) and self.progress.history[-1].step == self.progress.step

    def _is_stopped(self) -> bool:
        return self.progress.stopping is not None and self.progress.stopping.is_over

    def _score_dev(self, vote: Callable[[], float]) -> DevScore:
        assert self._dev is not None and self.stage.selection is not None
        score = self._dev.score(self.engine.encode)
        shared = of_first_rank(float("-inf") if score is None else score, device=self._encoder.device)
        found = DevScore(step=self.progress.step, score=shared)
        if self._is_best(found):
            self._best = self.engine.weights()
            self.progress = replace(self.progress, best_score=found.score, best_step=found.step)
        self.progress = replace(self.progress, history=(*self.progress.history, found))
        self.history.append(
            {
                "step": found.step,
                "dev_score": None if score is None else shared,
                "task": self.stage.selection.name,
                "at": round(time.time(), 2),
            }
        )
        _, self.votes = mean_over_ranks(torch.zeros((), device=self._encoder.device), vote=vote())
        return found

    def _is_best(self, found: DevScore) -> bool:
        """Whether a score is a new best. An equal one counts only if the best is of weights that had not moved yet."""
        best, at = self.progress.best_score, self.progress.best_step
        if best is None or at is None or found.score > best:
            return True
        return found.score == best and at <= self._num_still_steps

    def _results(self) -> dict[str, Json]:
        progress = self.progress
        stopped_early = self._is_stopped()
        return {
            "num_steps": progress.step,
            "num_steps_planned": self.schedule.num_steps,
            "stopped_early": stopped_early,
            "stopping_step": progress.step if stopped_early else None,
            "best_step": progress.best_step,
            "best_dev_score": defined(progress.best_score),
            "final_loss": self._curve.last_loss,
            "num_parameters": sum(parameter.numel() for parameter in self._encoder.parameters()),
            **self._curve.summary(),
        }


def _objective_of(stage: Train, context: Context, *, encoder: SentenceEncoder, bank: BankReader | None) -> Objective:
    """The objective of a training, with the state of the training that it starts from."""
    inputs = LossInputs(
        rows=stage.corpus,
        width=encoder.width,
        encoder=encoder,
        bank=bank,
        targets=targets_of(stage.targets, context),
        precision=stage.training.precision,
        micro_batch=context.runtime.micro_batch,
    )
    objective = make_objective(stage.objective, inputs)
    if stage.start is not None:
        objective.start_from(folder_of(stage.start, context), where=stage.label)
    return objective


def _optimization(training: specs.Training, num_steps: int) -> Optimization:
    return Optimization(
        num_steps=num_steps,
        lr=training.learning_rate,
        warmup_fraction=training.warmup_fraction,
        schedule=training.schedule,
        schedule_stretch=training.schedule_stretch,
        weight_decay=training.weight_decay,
        clip_norm=training.clip_norm,
        layer_decay=training.layer_decay,
        precision=training.precision,
    )
