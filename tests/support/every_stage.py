"""One stage of every kind, of the shipped recipes where they have it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from sentdist.plan.stage import Stage
from sentdist.plan.stages import Encoded, Overlap, Rung, Scores, Tokens, Train
from sentdist.plan.unroll import Plan
from tests.support.planning import RECIPES, shipped_plan


@cache
def plan_of_all_kinds() -> Plan:
    """The trials of some shipped recipes in one plan: every kind of stage that a plan can have."""
    plans = [shipped_plan(RECIPES / name) for name in ("demo.yaml", "auxiliary.yaml", "combinations.yaml", "supmpn_sts.yaml")]
    rows = {key: number for plan in plans for key, number in plan.rows.items()}
    return replace(plans[0], trials=tuple(trial for plan in plans for trial in plan.trials), rows=rows)


@cache
def one_of_each() -> dict[str, Stage]:
    """Kind -> a stage, those that no plan has too."""
    found: dict[str, Stage] = {stage.kind: stage for stage in plan_of_all_kinds().stages}
    train, scores = found["train"], found["scores"]
    assert isinstance(train, Train) and isinstance(scores, Scores)
    aside = (
        Rung(of=train, share=0.5),
        Overlap(of=train.corpus, tasks=scores.tasks),
        Encoded(encoder=train, sentences="0" * 16),
        Tokens(corpus=train.corpus, tokenizer="0" * 16, max_length=75),
    )
    return found | {stage.kind: stage for stage in aside}
