"""Summarize a sweep: how its trials ended, and how many stages were found and built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from sentdist.errors import SweepStopped, counted, named
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import STAGES
from sentdist.recipe.unroll import Plan
from sentdist.store.store import ArtifactStore
from sentdist.text import without_secrets


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
