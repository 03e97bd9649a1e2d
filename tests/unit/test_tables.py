"""Every member of a kind is in every table: objectives, corpora, stages."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.execution.demand import stage_demand
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.plan.corpora import CORPORA
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.objectives import OBJECTIVE_NAMES, OBJECTIVES, objective_rows, terms_of
from sentdist.plan.sections import Runtime
from sentdist.plan.shipped import PAPERS
from sentdist.plan.stage import Processes, Stage
from sentdist.plan.stages import STAGES, Train
from sentdist.plan.task_kinds import TASK_KINDS, DevTask, OwnRowsTask, ScoredTask, own_rows_of
from sentdist.plan.tasks import TASKS
from sentdist.plan.wording import TAGS
from sentdist.report.citations import CITATIONS
from sentdist.report.printed import tables_of
from sentdist.report.score_rows import CellFacts
from sentdist.stages.cards import training_card
from sentdist.stages.context import Context
from sentdist.stages.planning.task_contents import notes_on_shared_rows, tasks_of
from sentdist.stages.tasks.load import loader_of
from sentdist.store.record import MissingStage
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES, recipe_kind, section_of, shipped_plan

ROOT = RECIPES.parents[1]


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
        plan = shipped_plan(path)
        for stage in plan.stages:
            found.setdefault(stage.kind, stage)
            if isinstance(stage, Train):
                for term in terms_of(stage.objective):
                    found.setdefault(term.name, stage)
    return found


def test_every_objective_is_found_and_known_to_recipes() -> None:
    assert shipped(ObjectiveSpec) == {one.__name__ for one in OBJECTIVES.values()}
    assert {*OBJECTIVES, "sum"} == set(OBJECTIVE_NAMES) and set(OBJECTIVES) <= TAGS


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_says_all_that_is_asked_of_it(name: str) -> None:
    one = OBJECTIVES[name]
    assert one.title and one.about and one.__doc__
    assert {work.key for work in one.citations} <= set(CITATIONS)
    assert one.needs.columns >= 1
    assert one.__module__ == f"sentdist.objectives.{name}", "its file has its name"
    assert {"loss_of", "make_loss"} & vars(one).keys()
    assert name in [row[0].strip("`") for row in objective_rows()]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_is_trained_by_a_shipped_recipe_and_has_a_model_card(name: str) -> None:
    stage = stages()[name]
    assert isinstance(stage, Train)
    assert OBJECTIVES[name].title in (
        training_card(stage, {"num_steps": 1, "best_dev_score": None}, language=(), base_prompts={}).objective or ""
    )


def test_the_readme_s_methods_are_the_papers_and_what_it_says_of_them_is_what_they_say() -> None:
    """A further loss may have its row there; `sentdist objectives` has it anyhow."""
    table = (ROOT / "README.md").read_text().partition("| in a recipe |")[2].partition("\n\n")[0]
    shown = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    derived = {row[0].strip("`"): f"| {' | '.join(row)} |" for row in objective_rows()}
    assert {"rcl", "entropy", "info_nce", "regression", "rse", "supmpn", "auxiliary", "sum"} <= set(shown) <= set(OBJECTIVE_NAMES)
    assert all(derived[name] == line for name, line in shown.items() if name != "sum")


def test_every_kind_of_stage_is_in_the_table() -> None:
    no_kinds = {CorpusStage.__name__, MissingStage.__name__}  # what corpora have in common; what stands where a record is gone
    assert shipped(Stage) - no_kinds == {stage.__name__ for stage in STAGES.values()}
    assert all(kind == stage.kind for kind, stage in STAGES.items())


@pytest.mark.parametrize("kind", STAGES)
def test_a_kind_of_stage_says_what_it_is_for_and_what_it_takes(kind: str) -> None:
    kind_of_stage = STAGES[kind]
    assert kind_of_stage.purpose in ("training", "scores", "aside")
    assert kind_of_stage.speed_of is None or kind_of_stage.speed_of in STAGES
    assert kind_of_stage.built_by is None or kind_of_stage.built_by in get_args(Processes)
    if kind_of_stage.purpose == "aside":
        return
    stage = stages()[kind]
    assert stage_demand(stage, Runtime()).workers >= 1
    plan = shipped_plan(next(path for path in sorted(RECIPES.rglob("*.yaml")) if kind in {s.kind for s in shipped_plan(path).stages}))
    assert all(one.num_sentences(plan.rows) >= 0 for one in plan.stages)


@pytest.mark.parametrize("kind", [kind for kind, stage in STAGES.items() if stage.purpose != "aside"])
def test_planning_knows_the_tasks_of_every_kind_of_stage_that_a_plan_has(kind: str, tmp_path: Path) -> None:
    context = Context(store=ArtifactStore(tmp_path), data_root=None, runtime=Runtime())
    assert tasks_of(stages()[kind]) is not None
    list(notes_on_shared_rows([stages()[kind]], context))


def test_planning_refuses_a_kind_of_stage_whose_tasks_nobody_named(tmp_path: Path) -> None:
    context = Context(store=ArtifactStore(tmp_path), data_root=None, runtime=Runtime())
    unknown = MissingStage()
    with pytest.raises(TypeError, match="nobody said which tasks"):
        tasks_of(unknown)
    with pytest.raises(TypeError, match="takes a mean"):
        list(notes_on_shared_rows([unknown], context))


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.kind)
def test_a_kind_of_corpus_is_in_every_table(corpus: type[CorpusStage]) -> None:
    assert shipped(CorpusStage) == {one.__name__ for one in CORPORA}
    assert corpus.holds and recipe_kind(section_of(corpus)) in TAGS
    module, _, function = corpus.reader.partition(":")
    assert list(inspect.signature(getattr(importlib.import_module(module), function)).parameters) == ["stage", "context"]
    stage = stages()[corpus.kind]
    assert isinstance(stage, CorpusStage) and stage.described and stage.num_columns >= 1 and stage.num_positives >= 0


def classes_in(union: object) -> set[type[Frozen]]:
    """The classes of a union of unions."""
    return {one for part in get_args(union) for one in (get_args(part) or (part,))}


def kinds_in(union: object) -> set[str]:
    """Kinds of the tasks of a union of unions."""
    return {kind for one in classes_in(union) for kind in get_args(one.model_fields["kind"].annotation)}


def test_every_kind_of_task_is_in_the_table() -> None:
    assert kinds_in(ScoredTask) == set(TASK_KINDS)
    assert kinds_in(DevTask) == {kind.name for kind in TASK_KINDS.values() if kind.chooses} | {
        card.kind for card in TASKS.values() if card.role == "dev"
    }
    assert {card.kind for card in TASKS.values()} <= set(TASK_KINDS)


def test_every_kind_of_task_that_held_out_rows_can_be_is_known_where_they_are_read() -> None:
    with_own = {one for one in classes_in(ScoredTask) if "own" in one.model_fields}
    assert with_own == set(get_args(OwnRowsTask))
    for one in classes_in(ScoredTask):
        task = one.model_construct(own="rows")
        assert own_rows_of(task) == ("rows" if one in with_own else None)


@pytest.mark.parametrize("name", TASK_KINDS)
def test_a_kind_of_task_says_all_that_is_asked_of_it(name: str) -> None:
    kind = TASK_KINDS[name]
    assert set(kind.works) <= set(CITATIONS)
    assert kind.is_compared or (kind.shown and not kind.chooses and kind.table is None), "what ranks no encoder says what is shown of it"
    loader = inspect.signature(loader_of(name))
    assert tuple(loader.parameters) == ("task", "root") and loader.return_annotation == f"Loaded{name.capitalize()}"
    assert kind.table is not None or not kind.measures_in_table


def test_the_readme_s_kinds_of_own_data_are_those_of_the_table() -> None:
    """It has the first ones; `sentdist tasks` lists all."""
    table = (ROOT / "rayjobs/recipes/tasks.md").read_text().partition("| kind | columns, or files |\n")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert len(shown) >= 6 and shown == {name: TASK_KINDS[name].own for name in shown}
    listed = CliRunner().invoke(app, ["tasks"])
    assert listed.exit_code == 0
    assert all(f"{name} " in listed.output for name in TASK_KINDS) and all(name in listed.output for name in TASKS)


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_has_tables_and_finds_nothing_for_an_untouched_encoder_but_its_base(name: str) -> None:
    found = tables_of(name)
    assert found.title and found.tables
    rows = {row for by_label in found.our_rows({"base": CellFacts()}).values() for row in by_label.values()}
    assert rows <= {"0", *(table.base for table in found.tables.values())}


def test_no_objective_stands_in_two_files() -> None:
    files = [Path(inspect.getfile(one)).name for one in OBJECTIVES.values()]
    assert len(OBJECTIVES) == len(shipped(ObjectiveSpec)) and files
