"""A plan as numbers for other programs: its trials, and each stage with its state and what is left of its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sentdist.execution.disk_estimate import bytes_of, disk_estimate, encoder_sizes
from sentdist.plan.stage import Json, Stage
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.planning.device_forecast import Devices, Parameters, device_forecast, operations_of
from sentdist.store.forecast import Forecast

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
