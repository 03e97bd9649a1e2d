"""What the trials of a plan came to, as a Python program reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentdist.plan.stage import Json
    from sentdist.plan.unroll import Plan
    from sentdist.store.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one trial came to.

    method, seed, fold: which trial; seed and fold are None where they make no difference. params: the values of the grid, or of a search,
    that do.
    scores: main score of each task × 100 by its name, and each measure by `task.measure`; None where a score is not defined.
    encoder: the key of the trained encoder, for `Encoder.load` with the same store; None where none was trained.
    """

    method: str
    seed: int | None
    fold: int | None
    params: Mapping[str, Json]
    scores: Mapping[str, float | None]
    encoder: str | None


def outcomes(plan: Plan, store: ArtifactStore) -> Iterator[Outcome]:
    """The outcome of each trial of a plan; all stages of the plan are in the store."""
    from sentdist.store.sweep import sweep_record

    trials, places = sweep_record(plan).trials, {stage.key: stage.place for stage in plan.stages}
    records = {key: artifact.record for key in (trial.key for trial in trials) if (artifact := store.at(places[key]))}
    for trial in trials:
        yield Outcome(
            method=trial.method,
            seed=trial.seed,
            fold=trial.fold,
            params=trial.params,
            scores=numbers(records[trial.key].results),
            encoder=trial.train,
        )


def numbers(results: Mapping[str, Json]) -> dict[str, float | None]:
    """The results of a record that are scores."""
    return {name: value for name, value in results.items() if value is None or isinstance(value, int | float)}
