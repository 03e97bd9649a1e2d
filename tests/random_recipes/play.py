"""A recipe drawn at random, played: it is refused while planning, or it ends, and ends alike by other ways of doing the same work."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from sentdist.errors import DataError, RecipeError, SentdistError
from sentdist.learning.engine import TorchEngine
from sentdist.recipe.objectives import terms_of
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Scores, Train
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.fit import device_of
from sentdist.stages.rungs import file_bank
from sentdist.stages.train import TrainSession
from sentdist.store.searches import HISTORY_FILE
from tests.random_recipes.draw import draw_recipe, draw_runtime
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan

Point = Mapping[str, float]
KNOWN_LATE = "without a sentence in common"  # of rows that only reading tells: batches in which no sentence stands twice
CANNOT_RECOMPUTE = "runtime.recompute_layers"
LOSS, NORM = (
    {"rel_tol": 2e-3, "abs_tol": 1e-4},
    {"rel_tol": 1e-2, "abs_tol": 1e-3},
)  # fp32 sums in another order, carried through a few steps of AdamW


def play(number: int, data: Path, encoders: list[Path], folder: Path) -> str:
    """What became of the recipe of that number: "refused", "ended", or a reason known; AssertionError or another for what is wrong."""
    draw = random.Random(number)
    values, runtime = draw_recipe(draw, encoders), draw_runtime(draw)
    try:
        plan, context = tiny_plan({**values, "runtime": {"log_every": 1}}, data=data, store=folder / "once")
    except SentdistError as refusal:
        assert len(str(refusal)) > 20, "a refusal says what to do"
        return "refused"
    try:
        run_local(plan, context)
    except DataError as late:
        assert KNOWN_LATE in str(late), f"found only when the work had begun: {late}"
        return "refused by what its rows are"
    check_ended(plan, context)
    for stage in plan.stages:
        if isinstance(stage, Train):
            check_resumed(stage, context, folder / f"resumed-{stage.key}", draw)
    return check_other_runtime(plan, context, values, runtime, data, folder / "again")


def check_ended(plan: Plan, context: Context) -> None:
    """All weights and scores are finite."""
    for stage in plan.stages:
        artifact = context.store.get(stage)
        assert artifact is not None, stage.label
        if isinstance(stage, Train):
            assert all(weight.isfinite().all() for weight in _weights(Path(context.store.folder(artifact))).values()), stage.label
        if isinstance(stage, Scores):
            assert np.isfinite(artifact.record.results["stsb"]), stage.label  # type: ignore[arg-type]


def check_resumed(stage: Train, context: Context, folder: Path, draw: random.Random) -> None:
    """A training that is left at some event and goes on from its checkpoint ends with the same bits, dropout and masks included."""
    make = partial(TorchEngine, device=device_of(context.runtime))
    first = TrainSession(stage, context, make_engine=make, bank=file_bank(stage, context))
    num_events = draw.randint(1, 2 * first.schedule.num_steps)
    for _ in itertools.islice(first.events(), num_events):
        pass
    folder.mkdir()
    first.save(folder)
    second = TrainSession(stage, context, make_engine=make, bank=file_bank(stage, context))
    second.load(folder)
    for _ in second.events():
        pass
    second.finish(folder / "end")
    artifact = context.store.get(stage)
    assert artifact is not None
    expected, found = _weights(Path(context.store.folder(artifact))), _weights(folder / "end")
    assert expected.keys() == found.keys()
    unlike = [name for name, weight in expected.items() if not torch.equal(weight, found[name])]
    assert not unlike, f"{stage.label} resumed after {num_events} events: {unlike[:3]}"


def check_other_runtime(
    plan: Plan, context: Context, values: Mapping[str, Json], runtime: Mapping[str, Json], data: Path, store: Path
) -> str:
    """By micro-batches, or with layers computed again, each step has the same loss and gradient, where nothing is drawn while training."""
    try:
        other, elsewhere = tiny_plan({**values, "runtime": {"log_every": 1, **runtime}}, data=data, store=store)
    except RecipeError as refusal:
        assert CANNOT_RECOMPUTE in str(refusal), str(refusal)
        return "ended; layers cannot be computed again"
    assert [stage.key for stage in other.stages] == [stage.key for stage in plan.stages], "a runtime is in no key"
    run_local(other, elsewhere)
    for stage in plan.stages:
        if not isinstance(stage, Train) or draws(stage) or stage.training.precision == "bf16":
            continue
        check_alike(points_of_training(stage, context), points_of_training(stage, elsewhere), about=f"{stage.label}, {runtime}")
    return "ended"


def check_alike(points: Sequence[Point], others: Sequence[Point], *, about: str) -> None:
    """Each step has the same loss and the same norm of its gradient."""
    assert len(points) == len(others), about
    for point, other in zip(points, others, strict=True):
        for name, tolerance in (("loss", LOSS), ("grad_norm", NORM)):
            assert math.isclose(point[name], other[name], **tolerance), f"{about}: {point} and {other}"


def draws(stage: Train) -> bool:
    """Whether random numbers are drawn within its steps or those of what it begins with: dropout's masks, or hidden words."""
    dropouts = (stage.regularizers.attention_dropout, stage.regularizers.hidden_dropout, stage.regularizers.drophead)
    hides = any(term.name == "mlm" for term in terms_of(stage.objective))
    before = [stage.start, *(bank.encoder for bank in stage.banks)]
    return dropouts != (0.0, 0.0, 0.0) or hides or any(one is not None and draws(one) for one in before)


def points_of_training(stage: Train, context: Context) -> list[Point]:
    """Of a finished one."""
    artifact = context.store.get(stage)
    assert artifact is not None
    history = map(json.loads, (Path(context.store.folder(artifact)) / HISTORY_FILE).read_text().splitlines())
    return [point for point in history if "grad_norm" in point]  # without dev scores


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return {f"{file.name}: {name}": weight for file in sorted(folder.glob("*.safetensors")) for name, weight in load_file(file).items()}
