"""A plan as numbers for other programs: its trials, and each stage with its state and what is left of its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sentdist.errors import counted, duration
from sentdist.execution.board.events import StageEvent
from sentdist.files import disk_size
from sentdist.learning.bank_shape import bank_bytes
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.dotted import short_names
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Json, Stage, topological
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.unroll import Plan
from sentdist.plan.wording import value_text
from sentdist.stages.context import Context
from sentdist.stages.planning.device_forecast import Devices, Parameters, device_forecast, operations_of
from sentdist.stages.planning.worker_memory import EncoderSize, size_of
from sentdist.store.garbage import ENCODED_PER_TRAINED, Forecast

TELLS = 0.1  # of the work: what that took tells how long the rest takes
SILENCE_S = 20.0  # after which a line says what still runs
MOST_NAMED = 3  # stages in a line
ENDS = ("finished", "failed", "lost")


@dataclass(frozen=True, kw_only=True)
class RunningStage:
    """A stage that is being built. done: share of it, where it is known; said: its last figures, for people."""

    stage: str
    since: float
    done: float = 0.0
    said: str = ""


class SweepProgress:
    """Follows the events of the stages that a sweep has to build; others' events change nothing.

    work: what each of them costs, by key, in any unit. apart: what is said beside the label of a stage that others share. clock: seconds,
    for tests.
    """

    def __init__(
        self, work: Mapping[str, float], *, apart: Mapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = dict(work)
        self._apart = dict(apart or {})
        self._clock = clock
        self._began = self._last_line = clock()
        self._finished: set[str] = set()
        self._has_trained = self._is_training = False
        self.running: dict[str, RunningStage] = {}

    @property
    def total(self) -> int:
        """How many stages there are to build."""
        return len(self._work)

    @property
    def num_finished(self) -> int:
        """How many stages are built."""
        return len(self._finished)

    @property
    def now(self) -> float:
        """The time now, by the clock of `RunningStage.since`."""
        return self._clock()

    @property
    def share(self) -> float:
        """Which part of the work is done."""
        under_way = sum(self._work[key] * running.done for key, running in self.running.items())
        return (sum(self._work[key] for key in self._finished) + under_way) / (sum(self._work.values()) or 1.0)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end, at the speed so far; None before a training is finished, or is under way and a tenth of all is done:
        start-ups tell nothing of the rest."""
        if not self.share or not (self._has_trained or (self._is_training and self.share >= TELLS)):
            return None
        return (self.now - self._began) * (1 - self.share) / self.share

    @property
    def left(self) -> str:
        """`seconds_left` for people; "" where it is not known or nothing is left."""
        seconds = self.seconds_left
        return "" if seconds is None or self.num_finished == self.total else f"about {duration(seconds)} left"

    def line(self, event: StageEvent) -> str:
        """The event as a line: clock, how many stages are finished, stage, what happened."""
        if event.key in self._apart:
            event = replace(event, label=f"{event.label} ({self._apart[event.key]})")
        self._take(event)
        self._last_line = self._clock()
        left = f", {self.left}" if event.what in ("finished", "step") and self.left else ""
        clock = time.strftime("%H:%M:%S", time.localtime(event.at))
        return f"{clock}  {self._counted}  {event.line}{left}"

    def silence_line(self) -> str | None:
        """What still runs, when nothing was said for SILENCE_S; None where there is nothing to say."""
        now = self._clock()
        if now - self._last_line < SILENCE_S or self.num_finished == self.total:
            return None
        self._last_line = now
        stages = [f"{one.stage} ({', '.join(filter(None, (one.said, duration(now - one.since))))})" for one in self.running.values()]
        others = f" and {counted(len(stages) - MOST_NAMED, 'other stage')}" if stages[MOST_NAMED:] else ""
        said = f"still at work: {', '.join(stages[:MOST_NAMED])}{others}" if stages else "processes are being started; nothing runs yet"
        return f"{time.strftime('%H:%M:%S')}  {self._counted}  {said}"

    @property
    def _counted(self) -> str:
        width = len(str(self.total))
        return f"[{self.num_finished:>{width}}/{self.total}]"

    def _take(self, event: StageEvent) -> None:
        if event.key not in self._work:
            return
        if event.what in ENDS:
            self.running.pop(event.key, None)
            if event.what == "finished":
                self._finished.add(event.key)
                self._has_trained = self._has_trained or event.kind in ("train", "rung")
            return
        before = self.running.get(event.key) or RunningStage(stage=f"{event.kind} {event.label}", since=self._clock())
        if event.step is None or not event.num_steps:
            self.running[event.key] = before
            return
        self._is_training = self._is_training or event.kind == "train"
        said = f"step {event.step}/{event.num_steps}" + ("" if event.loss is None else f", loss {event.loss:.4f}")
        if event.what == "dev":
            said = before.said
        self.running[event.key] = RunningStage(stage=before.stage, since=before.since, done=event.step / event.num_steps, said=said)


Show = Callable[[SweepProgress], None]


def progress_of(plan: Plan, missing: frozenset[str], *, clock: Callable[[], float] = time.monotonic) -> SweepProgress:
    """The progress of a plan of which nothing is built yet. missing: keys of the stages that are to be built."""
    to_build = [stage for stage in plan.stages if stage.key in missing]
    return SweepProgress({stage.key: _cost(stage, plan) for stage in to_build}, apart=_distinguishing_words(plan, to_build), clock=clock)


def _distinguishing_words(plan: Plan, stages: Iterable[Stage]) -> dict[str, str]:
    """Words that distinguish stages of one kind and label: the grid values of the trials that need each, as far as they differ between the
    stages; where these are no different, the first letters of the keys."""
    alike: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        alike.setdefault((stage.kind, stage.label), []).append(stage.key)
    groups = [keys for keys in alike.values() if keys[1:]]
    if not groups:
        return {}
    settled: dict[str, dict[str, Json]] = {}
    for trial in plan.trials:
        params = dict(trial.params)
        for stage in topological((trial.scores,)):
            known = settled.setdefault(stage.key, params)
            settled[stage.key] = {path: value for path, value in known.items() if path in params and params[path] == value}
    found: dict[str, str] = {}
    for keys in groups:
        texts = {key: {path: value_text(value) for path, value in settled[key].items()} for key in keys}
        differing = [path for path in texts[keys[0]] if len({texts[key].get(path) for key in keys}) > 1]
        names = short_names([differing])
        words = {key: ", ".join(f"{names[path]}={texts[key][path]}" for path in differing if path in texts[key]) for key in keys}
        found |= words if len(set(words.values())) == len(keys) and all(words.values()) else {key: key[:8] for key in keys}
    return found


def _cost(stage: Stage, plan: Plan) -> float:
    """The work of a stage, counted in sentences that pass the encoder; a corpus counts one, for it takes a moment."""
    sentences = stage.num_sentences(plan.rows) or 1
    return sentences * (ENCODED_PER_TRAINED if isinstance(stage, Train) else 1.0)


WEIGHT_BYTES = 4  # float32
CHECKPOINT_BYTES = 16  # of each parameter: weight, AdamW's two moments, and the best weight so far
CHECKPOINTS = 3  # of each training at work: two are kept while a third is written
SENTENCE_BYTES = 190  # of a corpus, with its index and its tokens
SMALL_STAGE_BYTES = 2_000_000  # scores with their items, a card, a tokenizer


@dataclass(frozen=True, kw_only=True)
class DiskEstimate:
    """Bytes that a plan writes. encoders: their weights, whose size is known. checkpoints: of trainings at work, gone when they end.
    others: banks and corpora, whose sentences may repeat."""

    encoders: int
    checkpoints: int
    others: int

    @property
    def least(self) -> int:
        return self.encoders + self.checkpoints

    @property
    def likely(self) -> int:
        return self.least + self.others

    def line(self, free: int | None) -> str:
        """The estimate as a sentence, beside what is free (None where a store does not say)."""
        kept = f"It adds about {disk_size(self.encoders + self.others)} to the store"
        meanwhile = f" and, while it trains, up to {disk_size(self.checkpoints)} of checkpoints" if self.checkpoints else ""
        beside = "" if free is None else f"; {disk_size(free)} free{': too little' if self.likely > free else ''}"
        return f"{kept}{meanwhile}{beside}."

    def warning(self, free: int | None) -> str | None:
        """What to say before work starts that may not fit."""
        if free is None or self.likely <= free:
            return None
        return f"{self.line(free)} It may stop on the way: what is finished is kept, and submitted again it goes on."


def disk_estimate(plan: Plan, context: Context, missing: frozenset[str], *, at_once: int = 1) -> DiskEstimate:
    """What the stages with these keys write. at_once: trainings that are at work, and keep checkpoints, at the same time."""
    stages = [stage for stage in plan.stages if stage.key in missing]
    sizes = encoder_sizes(stages, context)
    parameters = sorted((sizes[stage.encoder].num_parameters for stage in stages if isinstance(stage, Train)), reverse=True)
    return DiskEstimate(
        encoders=WEIGHT_BYTES * sum(parameters),
        checkpoints=CHECKPOINT_BYTES * CHECKPOINTS * sum(parameters[:at_once]),
        others=sum(bytes_beside_weights(stage, plan, sizes) for stage in stages),
    )


def encoder_sizes(stages: Iterable[Stage], context: Context) -> dict[EncoderSpec, EncoderSize]:
    """The sizes of the encoders that these stages train, or fill banks with."""
    encoders = {stage.encoder if isinstance(stage, Train) else stage.encoder.encoder for stage in stages if isinstance(stage, Train | Bank)}
    return {encoder: size_of(encoder, context) for encoder in encoders}


def bytes_of(stage: Stage, plan: Plan, sizes: Mapping[EncoderSpec, EncoderSize]) -> int:
    """What a stage leaves in the store. sizes: as `encoder_sizes`."""
    weights = WEIGHT_BYTES * sizes[stage.encoder].num_parameters if isinstance(stage, Train) else 0
    return weights + bytes_beside_weights(stage, plan, sizes)


def search_disk_estimate(planned: PlannedSearch, context: Context, left: Mapping[str, int], *, at_once: int = 1) -> DiskEstimate:
    """What a search writes: its finalists as a plan does, and the encoder of each trial that comes to its end, by expectation.

    left: trials of each method that are still to be begun, as far as there is an end of them; of rungs nothing stays.
    """
    finalists = planned.plan([(method, planned.first(method)) for method in planned.methods])
    missing = frozenset(stage.key for stage in finalists.stages) - context.store.get_all(finalists.stages).keys()
    estimate = disk_estimate(finalists, context, missing, at_once=at_once)
    halving = planned.search.halving
    ends = 1.0 if halving is None else halving.keep ** (len(halving.rungs) - 1)
    trials = 0.0
    for method, number in left.items():
        encoder = planned.train(method, planned.first(method)).encoder
        num_parameters = size_of(encoder, context).num_parameters
        trials += number * (SMALL_STAGE_BYTES + ends * WEIGHT_BYTES * num_parameters)
    return replace(estimate, others=estimate.others + round(trials))


def bytes_beside_weights(stage: Stage, plan: Plan, sizes: Mapping[EncoderSpec, EncoderSize]) -> int:
    """What a stage writes beside an encoder's weights and checkpoints. sizes: of the encoders of banks."""
    match stage:
        case Bank():
            return bank_bytes(stage.num_sentences(plan.rows), sizes[stage.encoder.encoder].width, stage.dtype)
        case CorpusStage():
            return plan.rows[stage.key] * stage.num_columns * SENTENCE_BYTES
        case Train() | Targets() | Scores():
            return SMALL_STAGE_BYTES
    raise TypeError(f"nobody said what the stage {stage.kind} writes")


BUILT, MISSING = "built", "missing"


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """name: as tables call it. key: of its scores. state: whether the store has these."""

    name: str
    method: str
    seed: int | None
    fold: int | None
    params: Mapping[str, Json]
    key: str
    state: str


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """inputs: keys of the stages that it reads. mentions: trials that need it. sentences: that it trains on or encodes, at most.

    seconds, gpu_hours, bytes: what is left, so 0 where it is built. seconds: by the speed of earlier runs in this store; None: it has none,
    or nobody forecasts that kind. gpu_hours: on the GPUs that were named; None: none was.
    """

    key: str
    kind: str
    place: str
    state: str
    inputs: tuple[str, ...]
    mentions: int
    sentences: int
    seconds: float | None
    gpu_hours: float | None
    bytes: int


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """seconds, gpu_hours, bytes: of all stages; None as of one. checkpoint_bytes: while it trains. free_bytes: None where the store does
    not say. gpus: those that were named; seconds_on_gpus: if all are at work."""

    recipe: str
    trials: tuple[PlannedTrial, ...]
    stages: tuple[PlannedStage, ...]
    seconds: float | None
    gpus: str | None
    gpu_hours: float | None
    seconds_on_gpus: float | None
    bytes: int
    checkpoint_bytes: int
    free_bytes: int | None


def plan_facts(plan: Plan, context: Context, ahead: Forecast, devices: Devices | None, parameters: Parameters) -> PlanFacts:
    """What a plan held against its store comes to. devices: None forecasts no GPUs. parameters: of an encoder."""
    missing = frozenset(stage.key for stage in plan.stages) - ahead.finished
    speeds = {kind.kind: kind.sentences_per_s for kind in ahead.kinds}
    sizes = encoder_sizes(plan.stages, context)

    def planned(stage: Stage) -> PlannedStage:
        is_left, sentences, speed = stage.key in missing, stage.num_sentences(plan.rows), speeds[stage.kind]
        return PlannedStage(
            key=stage.key,
            kind=stage.kind,
            place=stage.place,
            state=MISSING if is_left else BUILT,
            inputs=tuple(one.key for one in stage.inputs),
            mentions=plan.mentions[stage.key],
            sentences=sentences,
            seconds=0.0 if not is_left else None if speed is None else sentences / speed,
            gpu_hours=None if devices is None else devices.hours(operations_of(stage, plan, parameters) if is_left else 0.0),
            bytes=bytes_of(stage, plan, sizes) if is_left else 0,
        )

    trials = (
        PlannedTrial(
            name=one.name,
            method=one.method,
            seed=one.seed,
            fold=one.fold,
            params=dict(one.params),
            key=one.key,
            state=MISSING if one.key in missing else BUILT,
        )
        for one in plan.trials
    )
    whole = None if devices is None else device_forecast(plan, devices, parameters, missing=missing)
    written = disk_estimate(plan, context, missing)
    return PlanFacts(
        recipe=plan.recipe.name,
        trials=tuple(trials),
        stages=tuple(map(planned, plan.stages)),
        seconds=ahead.seconds,
        gpus=None if devices is None else f"{devices.count}x{devices.name}",
        gpu_hours=None if whole is None else whole.gpu_hours,
        seconds_on_gpus=None if whole is None else whole.seconds,
        bytes=written.encoders + written.others,
        checkpoint_bytes=written.checkpoints,
        free_bytes=context.store.free_bytes(),
    )
