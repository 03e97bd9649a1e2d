"""What a driver prints of a sweep: a line for each event, a line after a silence, and a summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

from sentdist.errors import SweepStopped, counted, duration, named
from sentdist.recipe.dotted import short_names
from sentdist.recipe.stage import Json, Stage, topological
from sentdist.recipe.stages import STAGES, Train
from sentdist.recipe.unroll import Plan
from sentdist.recipe.wording import value_text
from sentdist.run.events import StageEvent
from sentdist.stages.context import Context
from sentdist.stages.fit import size_of
from sentdist.store.garbage import ENCODED_PER_TRAINED
from sentdist.store.store import ArtifactStore
from sentdist.text import without_secrets

TELLS = 0.1  # share of the work after which the remaining time can be estimated
SILENCE_S = 20.0  # without a line; then a line tells what still runs
MOST_NAMED = 3  # stages in a line
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
        idle = "nothing runs: processes are being started, or wait for free CPUs or GPUs (`ray status`)"
        said = f"still at work: {', '.join(stages[:MOST_NAMED])}{others}" if stages else idle
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


def check_space(plan: Plan, context: Context, missing: Set[str]) -> None:
    """Check that the store can be written and has room for the encoders that are missing; a complete store may be read-only.

    Raises:
        StoreError: it cannot, or has not.
    """
    if missing:
        encoders = (stage.encoder for stage in plan.stages if isinstance(stage, Train) and stage.key in missing)
        context.store.check_writable(needed_bytes=WEIGHT_BYTES * sum(size_of(encoder, context).num_parameters for encoder in encoders))


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """How a trial ended; `error` is None if it has scores."""

    key: str
    name: str
    error: BaseException | None = None

    @property
    def message(self) -> str:
        """Type and text of the error."""
        return "" if self.error is None else named(self.error)


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    """Summary of a sweep. Counts are by kind of stage."""

    name: str
    num_trials: int
    mentioned: Counter[str]  # stages that the trials need, counted for each trial
    found: Counter[str]  # stages that the store already contained
    built: Counter[str]  # stages added meanwhile
    failures: tuple[TrialOutcome, ...]  # trials without scores
    seconds: float

    @property
    def lines(self) -> list[str]:
        """Lines to print: counts, then one line for each cause of failures."""
        kinds = [kind for kind in STAGES if self.mentioned[kind]]
        counts = [f"{kind} {self.mentioned[kind]} mentioned, {self.found[kind]} found, {self.built[kind]} built" for kind in kinds]
        done = self.num_trials - len(self.failures)
        lines = [f"{self.name}: {done} of {counted(self.num_trials, 'trial')} with scores, {self.seconds:.0f} s; " + "; ".join(counts)]
        failed = [failure for failure in self.failures if not isinstance(failure.error, SweepStopped)]
        for message in dict.fromkeys(failure.message for failure in failed):
            names = [failure.name for failure in failed if failure.message == message]
            others = f" and {counted(len(names) - 1, 'other trial')}" if names[1:] else ""
            lines.append(f"FAILED  {names[0]}{others}: {message}")
        if failed:
            lines.append("Everything else is kept. Remove the cause and submit again: only what is missing is built.")
        if self.was_stopped:
            left = counted(len(self.failures) - len(failed), "trial")
            lines.append(
                f"STOPPED by `sentdist stop`, {left} before the end. What is finished is kept; submitted again, trainings go on from their "
                "last checkpoints."
            )
        return lines

    @property
    def was_stopped(self) -> bool:
        """True if the sweep was stopped before it had all scores."""
        return any(isinstance(failure.error, SweepStopped) for failure in self.failures)

    @property
    def is_reportable(self) -> bool:
        """True if the sweep was not stopped and a trial has scores."""
        return not self.was_stopped and len(self.failures) < self.num_trials

    @classmethod
    def of(cls, plan: Plan, store: ArtifactStore, before: Set[str], outcomes: Mapping[str, TrialOutcome], seconds: float) -> SweepSummary:
        """Return the summary. before: keys of the stages in the store at the start. outcomes: how trials ended, by key."""
        built = store.get_all(stage for stage in plan.stages if stage.key not in before)
        kinds = {stage.key: stage.kind for stage in plan.stages}
        mentioned: Counter[str] = Counter()
        for key, times in plan.mentions.items():
            mentioned[kinds[key]] += times
        return cls(
            name=plan.recipe.name,
            num_trials=len(plan.trials),
            mentioned=mentioned,
            found=_count(plan.stages, before),
            built=_count(plan.stages, built.keys()),
            failures=tuple(outcome for outcome in outcomes.values() if outcome.error is not None),
            seconds=seconds,
        )


def _count(stages: Iterable[Stage], keys: Set[str]) -> Counter[str]:
    return Counter(stage.kind for stage in stages if stage.key in keys)


def overlaps_not_counted(error: BaseException) -> str:
    """Return the line for a failed comparison of training data with tests, which trials and scores do not need."""
    return f"Test items in training data could not be counted: {without_secrets(str(error))}"
