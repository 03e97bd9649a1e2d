"""Follow a plan's progress, estimate its disk use, and report its trials and stages as numbers for other programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import counted, duration
from sentdist.files import disk_size
from sentdist.learning.bank_shape import bank_bytes
from sentdist.recipe.dotted import short_names
from sentdist.recipe.specs import EncoderSpec
from sentdist.recipe.stage import Json, Stage, topological
from sentdist.recipe.stages import Bank, Scores, Targets, Train
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan
from sentdist.recipe.wording import value_text
from sentdist.run.events import StageEvent
from sentdist.stages.context import Context
from sentdist.stages.memory import EncoderSize, size_of
from sentdist.store.garbage import ENCODED_PER_TRAINED, Forecast

TELLS = 0.1  # share of the work after which the remaining time can be estimated
SILENCE_S = 20.0  # without a line; then a line tells what still runs
MOST_NAMED = 3  # stages in a line
NOTHING_RUNS = "nothing runs: processes are being started, or wait for free CPUs or GPUs (`ray status`)"
ENDS = ("finished", "failed", "lost", "retry")


@dataclass(frozen=True, kw_only=True)
class RunningStage:
    """A stage that is being built. done: share of its work, 0 if unknown; said: its last figures, as a phrase."""

    stage: str
    since: float
    done: float = 0.0
    said: str = ""


class SweepProgress:
    """Follows the events of the stages that a sweep has to build; it ignores events of others.

    Args:
        work: cost of each stage, by key, in any unit.
        apart: words that distinguish stages with the same label, by key.
        clock: returns seconds; replaced in tests.
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
        """Number of stages to build."""
        return len(self._work)

    @property
    def num_finished(self) -> int:
        """Number of stages built."""
        return len(self._finished)

    @property
    def now(self) -> float:
        """Current time, by the clock of `RunningStage.since`."""
        return self._clock()

    @property
    def share(self) -> float:
        """Share of the work that is done, 0 to 1."""
        under_way = sum(self._work[key] * running.done for key, running in self.running.items())
        return (sum(self._work[key] for key in self._finished) + under_way) / (sum(self._work.values()) or 1.0)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the speed so far; None until a training has finished, or one runs and a tenth of all work is done."""
        if not self.share or not (self._has_trained or (self._is_training and self.share >= TELLS)):
            return None
        return (self.now - self._began) * (1 - self.share) / self.share

    @property
    def left(self) -> str:
        """`seconds_left` as a phrase; "" if unknown or nothing is left."""
        seconds = self.seconds_left
        return "" if seconds is None or self.num_finished == self.total else f"about {duration(seconds)} left"

    def line(self, event: StageEvent) -> str:
        """Take an event and return it as a line: clock, number of finished stages, stage, what happened."""
        if event.key in self._apart:
            event = replace(event, label=f"{event.label} ({self._apart[event.key]})")
        self._take(event)
        self._last_line = self._clock()
        left = f", {self.left}" if event.what in ("finished", "step") and self.left else ""
        clock = time.strftime("%H:%M:%S", time.localtime(event.at))
        return f"{clock}  {self._counted}  {event.line}{left}"

    def silence_line(self) -> str | None:
        """Return a line on running stages if there was no line for SILENCE_S, else None."""
        now = self._clock()
        if now - self._last_line < SILENCE_S or self.num_finished == self.total:
            return None
        self._last_line = now
        stages = [f"{one.stage} ({', '.join(filter(None, (one.said, duration(now - one.since))))})" for one in self.running.values()]
        others = f" and {counted(len(stages) - MOST_NAMED, 'other stage')}" if stages[MOST_NAMED:] else ""
        said = f"still at work: {', '.join(stages[:MOST_NAMED])}{others}" if stages else NOTHING_RUNS
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
    """Return the progress of a plan before it is built. missing: keys of the stages to build."""
    to_build = [stage for stage in plan.stages if stage.key in missing]
    return SweepProgress({stage.key: _cost(stage, plan) for stage in to_build}, apart=_distinguishing_words(plan, to_build), clock=clock)


def _distinguishing_words(plan: Plan, stages: Iterable[Stage]) -> dict[str, str]:
    """Words that distinguish stages of one kind and label: the differing grid values of their trials, or the first characters of keys."""
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
    """The work of a stage in sentences that pass the encoder; a corpus, which takes a moment, counts one."""
    sentences = stage.num_sentences(plan.rows) or 1
    return sentences * (ENCODED_PER_TRAINED if isinstance(stage, Train) else 1.0)


WEIGHT_BYTES = 4  # float32
CHECKPOINT_BYTES = 16  # of each parameter: weight, AdamW's two moments, and the best weight so far
CHECKPOINTS = 3  # of each running training: two are kept while a third is written
SENTENCE_BYTES = 190  # of a corpus, with its index and its tokens
SMALL_STAGE_BYTES = 2_000_000  # scores with their items, a card, a tokenizer


@dataclass(frozen=True, kw_only=True)
class DiskEstimate:
    """Bytes that a plan writes."""

    encoders: int  # weights of encoders, whose size is known
    checkpoints: int  # checkpoints of running trainings, removed when they end
    others: int  # banks and corpora; an upper bound, since their sentences may repeat

    @property
    def least(self) -> int:
        return self.encoders + self.checkpoints

    @property
    def likely(self) -> int:
        return self.least + self.others

    def line(self, free: int | None) -> str:
        """Return the estimate as a sentence. free: free bytes; None if the store does not report them."""
        kept = f"It adds about {disk_size(self.encoders + self.others)} to the store"
        meanwhile = f" and, while it trains, up to {disk_size(self.checkpoints)} of checkpoints" if self.checkpoints else ""
        beside = "" if free is None else f"; {disk_size(free)} free{': too little' if self.likely > free else ''}"
        return f"{kept}{meanwhile}{beside}."

    def warning(self, free: int | None) -> str | None:
        """Return a warning if the estimate exceeds the free bytes, else None."""
        if free is None or self.likely <= free:
            return None
        return f"{self.line(free)} It may stop on the way: what is finished is kept, and submitted again it goes on."


def disk_estimate(plan: Plan, context: Context, missing: frozenset[str], *, at_once: int = 1) -> DiskEstimate:
    """Estimate what the stages with these keys write. at_once: trainings that run, and keep checkpoints, at the same time."""
    stages = [stage for stage in plan.stages if stage.key in missing]
    sizes = encoder_sizes(stages, context)
    parameters = sorted((sizes[stage.encoder].num_parameters for stage in stages if isinstance(stage, Train)), reverse=True)
    return DiskEstimate(
        encoders=WEIGHT_BYTES * sum(parameters),
        checkpoints=CHECKPOINT_BYTES * CHECKPOINTS * sum(parameters[:at_once]),
        others=sum(bytes_beside_weights(stage, plan, sizes) for stage in stages),
    )


def encoder_sizes(stages: Iterable[Stage], context: Context) -> dict[EncoderSpec, EncoderSize]:
    """Return the sizes of the encoders that these stages train or fill banks with."""
    encoders = {stage.encoder if isinstance(stage, Train) else stage.encoder.encoder for stage in stages if isinstance(stage, Train | Bank)}
    return {encoder: size_of(encoder, context) for encoder in encoders}


def bytes_of(stage: Stage, plan: Plan, sizes: Mapping[EncoderSpec, EncoderSize]) -> int:
    """Return the bytes that a stage leaves in the store. sizes: from `encoder_sizes`."""
    weights = WEIGHT_BYTES * sizes[stage.encoder].num_parameters if isinstance(stage, Train) else 0
    return weights + bytes_beside_weights(stage, plan, sizes)


def search_disk_estimate(planned: PlannedSearch, context: Context, left: Mapping[str, int], *, at_once: int = 1) -> DiskEstimate:
    """Estimate what a search writes: its finalists, and the encoders of the expected number of trials that are not pruned.

    Args:
        left: number of trials of each method still to begin, if there is a limit; rungs leave nothing.
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
    """Return the bytes that a stage writes besides weights and checkpoints of encoders. sizes: from `encoder_sizes`.

    Raises:
        TypeError: the size of this kind of stage is not defined.
    """
    match stage:
        case Bank():
            return bank_bytes(stage.num_sentences(plan.rows), sizes[stage.encoder.encoder].width, stage.dtype)
        case CorpusStage():
            return plan.rows[stage.key] * stage.num_columns * SENTENCE_BYTES
        case Train() | Targets() | Scores():
            return SMALL_STAGE_BYTES
    raise TypeError(f"the size of {stage.kind} stages is not implemented")


BUILT, MISSING = "built", "missing"


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A trial in numbers. name: as in tables. key: key of its scores. state: whether the store has them."""

    name: str
    method: str
    seed: int | None
    fold: int | None
    params: Mapping[str, Json]
    key: str
    state: str


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """A stage in numbers; those on its remaining work are 0 if it is built."""

    key: str
    kind: str
    place: str
    state: str
    inputs: tuple[str, ...]  # keys of the stages that it reads
    mentions: int  # number of trials that need it
    sentences: int  # upper bound of the sentences that it trains on or encodes
    seconds: float | None  # remaining time at the speed of earlier runs in this store; None without them, or if the kind has no forecast
    bytes: int  # bytes still to write


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """A plan in numbers; `seconds` and `bytes` are sums over its stages."""

    recipe: str
    trials: tuple[PlannedTrial, ...]
    stages: tuple[PlannedStage, ...]
    seconds: float | None
    bytes: int
    checkpoint_bytes: int  # bytes of checkpoints during training
    free_bytes: int | None  # free bytes of the store; None if it does not report them


def plan_facts(plan: Plan, context: Context, ahead: Forecast) -> PlanFacts:
    """Compare a plan with its store and return the numbers."""
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
    written = disk_estimate(plan, context, missing)
    return PlanFacts(
        recipe=plan.recipe.name,
        trials=tuple(trials),
        stages=tuple(map(planned, plan.stages)),
        seconds=ahead.seconds,
        bytes=written.encoders + written.others,
        checkpoint_bytes=written.checkpoints,
        free_bytes=context.store.free_bytes(),
    )
