"""One stage of every kind, of the shipped recipes where they have it; and records of stages that nobody made."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import STAGES, Encoded, Overlap, Rung, Scores, Tokens, Train
from sentdist.recipe.unroll import Plan
from sentdist.store.record import Record
from tests.support.planning import RECIPES, shipped_plan

PLANNED = {kind for kind, stage in STAGES.items() if stage.purpose != "aside"}


@cache
def plan_of_all_kinds() -> Plan:
    """The trials of some shipped recipes in one plan: every kind of stage that a plan can have."""
    plans = [shipped_plan(RECIPES / name) for name in ("demo.yaml", "auxiliary.yaml", "combinations.yaml", "supmpn_sts.yaml")]
    further = iter(sorted(RECIPES.glob("options/*.yaml")))  # where a kind that is new has its recipe
    while missing := PLANNED - {stage.kind for plan in plans for stage in plan.stages}:
        plan = shipped_plan(next(further))
        plans += [plan] if missing & {stage.kind for stage in plan.stages} else []
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


def records_of(plan: Plan) -> dict[str, Record]:
    """A record of every stage of a plan, without files and results."""
    return {stage.key: record_of(stage) for stage in plan.stages}


def record_of(stage: Stage, **results: Json) -> Record:
    return Record(
        key=stage.key, kind=stage.kind, label=stage.label, place=stage.place, stage=stage.canonical(),
        inputs=tuple(one.key for one in stage.inputs), created_at="2026-01-02T03:04:05Z", seconds=2.0, runtime={}, environment={},
        results=results, files={},
    )  # fmt: skip
