"""What the start of workers costs small trainings: `python -m rayjobs.benchmarks.start_up --out infra/benchmarks/start_up.md`.

The same trainings twice, in turns: by workers that stay from one to the next, and each by workers of its own.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rayjobs.benchmarks import out_file
from rayjobs.benchmarks.interleaved import machine
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Train
from sentdist.run.client import BoardClient
from sentdist.run.connection import connect
from sentdist.run.orders import build_stage
from sentdist.run.submissions import Submission
from sentdist.stages.context import Context
from sentdist.stages.planned import planned_recipe

ROWS, BATCH_SIZE = 256, 32
STEPS = ROWS // BATCH_SIZE
STAYING, OWN = "workers that stay", "workers of its own each"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Some trainings, one after another. wall_s: from the first request to the last answer; training_s: what their records say."""

    way: str
    wall_s: float
    training_s: float
    num_trainings: int


def main() -> None:
    """Measure on the cluster that the shell was given, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m rayjobs.benchmarks.start_up", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--trainings", type=int, default=20, help="of each way")
    parser.add_argument("--per-turn", type=int, default=5, help="by workers that stay, then as many by workers of their own, and so on")
    parser.add_argument("--engine", choices=["deepspeed", "torch"], default="deepspeed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=out_file)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sd-start-", dir="/tmp"))
    connect()
    try:
        turns = _turns(folder, asked.trainings, asked.per_turn, Runtime(engine=asked.engine, workers=asked.workers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page = _page(turns, asked)
    print(page)
    if asked.out:
        asked.out.write_text(page)


def _turns(folder: Path, num_trainings: int, per_turn: int, runtime: Runtime) -> list[Turn]:
    stages, context = _trainings(folder, 2 * num_trainings, runtime)
    _build([stages[0].corpus], context)
    turns: list[Turn] = []
    for first in range(0, 2 * num_trainings, 2 * per_turn):
        mine = stages[first : first + 2 * per_turn]
        turns.append(_turn(STAYING, [mine[::2]], context))
        turns.append(_turn(OWN, [[stage] for stage in mine[1::2]], context))
        print(*turns[-2:], sep="\n", flush=True)
    return turns


def _trainings(folder: Path, num: int, runtime: Runtime) -> tuple[list[Train], Context]:
    """So many trainings of a few steps that differ in their seed."""
    recipe = recipe_from_values(
        {
            "name": "start-up",
            "encoder": {"checkpoint": "minilm-l6", "layers": 2},
            "corpus": {"source": "generated/nli", "limit": ROWS},
            "training": {"batch_size": BATCH_SIZE, "epochs": 1, "max_length": 32},
            "evaluation": {"tasks": ["scenes-sts"]},
            "seeds": list(range(num)),
            "methods": {"fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}, "select": False}},
            "runtime": runtime.model_dump(),
        },
        where="start_up.py",
    )
    plan, context = planned_recipe(recipe, store=str(folder / "store"))
    return [stage for stage in plan.stages if isinstance(stage, Train)], context


def _turn(way: str, groups: Sequence[Sequence[Train]], context: Context) -> Turn:
    """One list of trainings after another, each by workers that end with it."""
    started = time.perf_counter()
    for stages in groups:
        _build(stages, context)
    wall_s = time.perf_counter() - started
    found = [context.store.get(stage) for stages in groups for stage in stages]
    training_s = sum(artifact.record.seconds for artifact in found if artifact is not None)
    return Turn(way=way, wall_s=wall_s, training_s=training_s, num_trainings=len(found))


def _build(stages: Sequence[Stage], context: Context) -> None:
    """One after another; the board and its workers end with the last."""
    board = BoardClient(Submission(context=context, sweep="start-up"), build_stage)
    try:
        for stage in stages:
            board.build(stage)
    finally:
        board.leave()


def _page(turns: Sequence[Turn], asked: argparse.Namespace) -> str:
    rows = []
    for way in (STAYING, OWN):
        mine = [turn for turn in turns if turn.way == way]
        seconds = [turn.wall_s / turn.num_trainings for turn in mine]
        num, training_s = sum(turn.num_trainings for turn in mine), sum(turn.training_s for turn in mine)
        useful = training_s / sum(turn.wall_s for turn in mine)
        spread = f"{min(seconds):.1f} to {max(seconds):.1f}"
        rows.append(f"| {way} | {num} | {statistics.median(seconds):.1f} | {spread} | {training_s / num:.1f} | {100 * useful:.0f} % |")
    facts = ", ".join(f"{name} {value}" for name, value in machine(asked.workers).items())
    options = f"--trainings {asked.trainings} --per-turn {asked.per_turn} --engine {asked.engine} --workers {asked.workers}"
    return "\n".join(
        [
            "# Start of workers",
            "",
            f"`python -m rayjobs.benchmarks.start_up {options}`: trainings of {STEPS} steps in turns of {asked.per_turn}, on the cluster "
            f"that the shell was given. {facts}.",
            "",
            "Seconds a training: medians of turns and their range, and the mean by the trainings' own records, whose share is the useful "
            "one. A turn begins without workers and ends when they are gone.",
            "",
            "| | trainings | s a training | range | by its record | useful |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
