"""The trainings of recipes that were played, once more on two ranks: by torch and by DeepSpeed each step has the same loss and gradient."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.optimization import Learner, Optimization
from sentdist.plan.stages import Train
from sentdist.stages.rungs import file_bank
from sentdist.stages.train import TrainSession
from tests.random_recipes.draw import Values, draw_recipe
from tests.random_recipes.play import ONCE, draws, points_of, points_of_training
from tests.support.tiny_data import tiny_plan

ENGINES = ("torch", 0, 1, 2, 3)  # and the stage of ZeRO


@dataclass(frozen=True, kw_only=True)
class Played:
    """A recipe that has ended in `folder`. engine: by which it is trained on ranks."""

    number: int
    folder: Path
    engine: str | int


def trained_on_ranks(rank: int, world_size: int, played: Sequence[Played], data: Path, encoders: list[Path]) -> list[dict[str, object]]:
    """Of each training in which nothing is drawn, its label and the points of both curves."""
    return [found for one in played for found in _trained(one, rank, data, encoders)]


def _trained(one: Played, rank: int, data: Path, encoders: list[Path]) -> list[dict[str, object]]:
    values: Values = draw_recipe(random.Random(one.number), encoders)
    plan, context = tiny_plan({**values, "runtime": {"log_every": 1, "workers": 2}}, data=data, store=one.folder / ONCE)
    found: list[dict[str, object]] = []
    for stage in plan.stages:
        if not isinstance(stage, Train) or draws(stage) or stage.training.precision == "bf16":
            continue
        session = TrainSession(stage, context, make_engine=partial(_engine, one.engine), bank=file_bank(stage, context))
        for _ in session.events():
            pass
        if rank == 0:
            again = [json.loads(json.dumps(point)) for point in session.history]
            label = f"recipe {one.number} by {one.engine}: {stage.label}"
            found.append({"label": label, "once": points_of_training(stage, context), "on_ranks": points_of(again)})
    return found


def _engine(kind: str | int, learner: Learner, optimization: Optimization) -> Engine:
    if kind == "torch":
        return TorchEngine(learner, optimization)
    return DeepSpeedEngine(learner, optimization, zero_stage=int(kind))
