"""How far a sweep is: stages that are finished, what runs, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sentdist.errors import counted, duration
from sentdist.execution.board.events import StageEvent
from sentdist.plan.dotted import short_names
from sentdist.plan.stage import Json, Stage, topological
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.plan.wording import value_text
from sentdist.store.forecast import ENCODED_PER_TRAINED

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
