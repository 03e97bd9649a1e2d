"""Every member of a kind is in every table: objectives, corpora, stages, tasks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import get_args

from sentdist.corpora.kind import CorpusStage
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.recipe.objectives import OBJECTIVE_NAMES, OBJECTIVES, terms_of
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import STAGES, Train
from sentdist.report.citations import CITATIONS
from sentdist.run.resources import stage_demand
from sentdist.store.record import MissingStage
from sentdist.tasks.cards import TASKS
from sentdist.tasks.kinds import KINDS, TASK_KINDS
from sentdist.tasks.task import Task
from tests.support.planning import RECIPES, shipped_plan


def below(kind: type[Frozen]) -> Iterator[type[Frozen]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def shipped(kind: type[Frozen]) -> set[str]:
    """Names of the classes of a kind that the package defines."""
    return {one.__name__ for one in below(kind) if one.__module__.startswith("sentdist.")}


@cache
def stages() -> dict[str, Stage]:
    """A stage of every kind, and for every objective a training with it, from the shipped recipes."""
    found: dict[str, Stage] = {}
    for path in sorted(RECIPES.rglob("*.yaml"), key=lambda path: ("sweeps" in path.parts, path)):
        if set(OBJECTIVES) | {kind for kind, stage in STAGES.items() if stage.purpose != "aside"} <= set(found):
            break
        for stage in shipped_plan(path).stages:
            found.setdefault(stage.kind, stage)
            if isinstance(stage, Train):
                for term in terms_of(stage.objective):
                    found.setdefault(term.name, stage)
    return found


def test_an_objective_is_in_every_table_and_in_a_shipped_recipe() -> None:
    assert shipped(ObjectiveSpec) == {one.__name__ for one in OBJECTIVES.values()}
    assert {*OBJECTIVES, "sum"} == set(OBJECTIVE_NAMES)
    for name, one in OBJECTIVES.items():
        assert {work.key for work in one.citations} <= set(CITATIONS) and one.needs.columns >= 1
        assert isinstance(stages()[name], Train)


def test_a_stage_is_in_every_table() -> None:
    no_kinds = {CorpusStage.__name__, MissingStage.__name__}  # what corpora have in common; what stands where a record is gone
    assert shipped(Stage) - no_kinds == {stage.__name__ for stage in STAGES.values()}
    for kind, one in STAGES.items():
        assert kind == one.kind and (one.speed_of is None or one.speed_of in STAGES)
        if one.purpose != "aside":
            assert stage_demand(stages()[kind], Runtime()).workers >= 1


def test_a_task_is_in_every_table() -> None:
    assert {card.kind for card in TASKS.values()} <= set(TASK_KINDS) and shipped(Task) >= {kind.value.__name__ for kind in KINDS}
    for name, kind in TASK_KINDS.items():
        assert get_args(kind.value.model_fields["kind"].annotation) == (name,)
        assert set(kind.works) <= set(CITATIONS) and (kind.table is not None or not kind.measures_in_table)
