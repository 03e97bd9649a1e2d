"""Read from the store how a training scored at a share of its steps; without torch, for processes that only wait."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sentdist.errors import StoreError
from sentdist.files import reading
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Rung, Train
from sentdist.stages.context import Context
from sentdist.store.searches import HISTORY_FILE
from sentdist.store.store import Artifact

CHECKPOINT = "checkpoint"  # folder in the artifact of a rung


@dataclass(frozen=True, kw_only=True)
class RungScore:
    """Dev scores and cost of a training at a share of its steps."""

    step: int
    dev: float | None  # best score so far, × 100; None: undefined
    last: float | None  # score at this step
    sentences: int
    seconds: float


def rung_score(train: Train, share: float, context: Context) -> RungScore | None:
    """Return a training's score at a share, from the rung or from a longer part; None while there is neither."""
    for above in sorted({share, *(one for one in context.shares if one > share)} - {1.0}):
        found = context.store.get(Rung(of=train, share=above))
        if found is not None:
            return _rung_score(train, share, found, _points(found.record.results.get("dev_history")))
    found = context.store.get(train)
    if found is None:
        return None
    place = f"{found.record.place}/{HISTORY_FILE}"
    with reading(None, where=place, expected="the lines that a training writes", kind=StoreError):
        lines = [json.loads(line) for line in context.store.open_file(place).read().decode().splitlines()]
    return _rung_score(train, share, found, [(int(line["step"]), line["dev_score"]) for line in lines if "dev_score" in line])


def _rung_score(train: Train, share: float, found: Artifact, points: Sequence[tuple[int, float | None]]) -> RungScore:
    planned = int(found.record.number("num_steps_planned") or 0)
    until: list[tuple[int, float | None]] = []
    for step, score in points:
        until.append((step, score))
        if share < 1.0 and step >= math.ceil(share * planned - 1e-9):
            break
    total = found.record.number("seconds_total") or found.record.seconds
    if not until:  # stopped before the first score
        step = int(found.record.number("num_steps") or found.record.number("step") or 0)
        return RungScore(step=step, dev=None, last=None, sentences=step * train.sentences_per_step, seconds=total)
    step, last = until[-1]
    last_step = points[-1][0]
    return RungScore(
        step=step,
        dev=max((score for _, score in until if score is not None), default=None),
        last=last,
        sentences=step * train.sentences_per_step,
        seconds=round(total * step / last_step if last_step else total, 3),
    )


def _points(found: Json) -> list[tuple[int, float | None]]:
    return (
        [(int(str(one[0])), None if one[1] is None else float(str(one[1]))) for one in found if isinstance(one, list)]
        if isinstance(found, list)
        else []
    )
