"""Every member of a kind is in every table: objectives, corpora, stages, tasks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from sentdist.corpora.kind import CorpusStage
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.recipe.objectives import OBJECTIVE_NAMES, OBJECTIVES, terms_of
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import STAGES, Train
from sentdist.recipe.task_kinds import TASK_KINDS, DevTask, OwnRowsTask, ScoredTask, own_rows_of
from sentdist.recipe.tasks import TASKS
from sentdist.recipe.wording import TAGS
from sentdist.report.citations import CITATIONS
from sentdist.run.resources import stage_demand
from sentdist.stages.context import Context
from sentdist.stages.planning.task_contents import notes_on_shared_rows, tasks_of
from sentdist.stages.tasks.load import loader_of
from sentdist.store.record import MissingStage
from sentdist.store.store import ArtifactStore
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
    assert {*OBJECTIVES, "sum"} == set(OBJECTIVE_NAMES) and set(OBJECTIVES) <= TAGS
    for name, one in OBJECTIVES.items():
        assert {work.key for work in one.citations} <= set(CITATIONS) and one.needs.columns >= 1
        assert isinstance(stages()[name], Train)


def test_a_stage_is_in_every_table(tmp_path: Path) -> None:
    no_kinds = {CorpusStage.__name__, MissingStage.__name__}  # what corpora have in common; what stands where a record is gone
    assert shipped(Stage) - no_kinds == {stage.__name__ for stage in STAGES.values()}
    context = Context(store=ArtifactStore(tmp_path), data_root=None, runtime=Runtime())
    for kind, one in STAGES.items():
        assert kind == one.kind and (one.speed_of is None or one.speed_of in STAGES)
        if one.purpose != "aside":
            assert stage_demand(stages()[kind], Runtime()).workers >= 1 and tasks_of(stages()[kind]) is not None
            list(notes_on_shared_rows([stages()[kind]], context))
    with pytest.raises(TypeError, match="not implemented"):
        tasks_of(MissingStage())
    with pytest.raises(TypeError, match="averages"):
        list(notes_on_shared_rows([MissingStage()], context))


def _classes_in(union: object) -> set[type[Frozen]]:
    return {one for part in get_args(union) for one in (get_args(part) or (part,))}


def _kinds_in(union: object) -> set[str]:
    return {kind for one in _classes_in(union) for kind in get_args(one.model_fields["kind"].annotation)}


def test_a_task_is_in_every_table() -> None:
    chosen = {kind.name for kind in TASK_KINDS.values() if kind.chooses} | {card.kind for card in TASKS.values() if card.role == "dev"}
    assert _kinds_in(ScoredTask) == set(TASK_KINDS) and _kinds_in(DevTask) == chosen
    assert {card.kind for card in TASKS.values()} <= set(TASK_KINDS)
    for name, kind in TASK_KINDS.items():
        assert set(kind.works) <= set(CITATIONS) and (kind.table is not None or not kind.measures_in_table)
        assert tuple(inspect.signature(loader_of(name)).parameters) == ("task", "root")
    with_own = {one for one in _classes_in(ScoredTask) if "own" in one.model_fields}
    assert with_own == set(get_args(OwnRowsTask))
    for one in _classes_in(ScoredTask):
        assert own_rows_of(one.model_construct(own="rows")) == ("rows" if one in with_own else None)
