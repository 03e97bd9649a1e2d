"""Methods, corpora, encoders and options combined at random: refused while planning or carried out, resumed to the last bit, and alike by
micro-batches; and comparisons of all kinds, from plan to report, and killed on the way.
`python -m tests.random_recipes --rounds 500` plays many."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from sentdist.plan import corpora
from sentdist.plan.objectives import OBJECTIVES
from sentdist.plan.task_names import OWN_KINDS
from tests.parity.processes import run_in_processes
from tests.random_recipes import draw
from tests.random_recipes.compare import compare, draw_comparison
from tests.random_recipes.interrupt import interrupt
from tests.random_recipes.own_tables import FILES, TASKS
from tests.random_recipes.play import check_alike, play
from tests.random_recipes.ranks import ENGINES, Played, trained_on_ranks
from tests.support.planning import recipe_kind, section_of

ROUNDS = 8  # whose recipes are as good as any
NIGHTLY_ROUNDS = 60
COMPARISONS = 1
NIGHTLY_COMPARISONS = 30
NIGHTLY_INTERRUPTED = 10
RANKS_ROUNDS = 30


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    return draw.world(tmp_path_factory.mktemp("world"))


@pytest.mark.in_turns
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_recipe_is_refused_while_planning_or_ends(number: int, world: tuple[Path, list[Path]], tmp_path: Path) -> None:
    play(number, *world, tmp_path)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("number", range(COMPARISONS))
def test_a_comparison_is_planned_built_and_reported(number: int, world: tuple[Path, list[Path]], tmp_path: Path) -> None:
    compare(random.Random(number), *world, tmp_path)


@pytest.mark.nightly
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("number", range(1000, 1000 + NIGHTLY_COMPARISONS))
def test_many_comparisons(number: int, world: tuple[Path, list[Path]], tmp_path: Path) -> None:
    compare(random.Random(number), *world, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(2000, 2000 + NIGHTLY_INTERRUPTED))
def test_comparisons_that_are_killed_end_as_undisturbed_ones(number: int, world: tuple[Path, list[Path]], tmp_path: Path) -> None:
    interrupt(random.Random(number), *world, tmp_path)


@pytest.mark.nightly
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("number", range(1000, 1000 + NIGHTLY_ROUNDS))
def test_many_recipes(number: int, world: tuple[Path, list[Path]], tmp_path: Path) -> None:
    play(number, *world, tmp_path)


@pytest.mark.nightly
def test_on_two_ranks_each_step_has_the_same_loss_and_gradient(world: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """By torch, or DeepSpeed with a stage of ZeRO, as the number of the recipe decides."""
    played: list[Played] = []
    for number in range(2000, 2000 + RANKS_ROUNDS):
        (folder := tmp_path / str(number)).mkdir()
        if play(number, *world, folder).startswith("ended"):
            played.append(Played(number=number, folder=folder, engine=ENGINES[number % len(ENGINES)]))
    found = run_in_processes(trained_on_ranks, 2, played, *world)[0]
    assert len(found) > RANKS_ROUNDS / 5, "most recipes are carried out, and in half of them nothing is drawn"
    for one in found:
        check_alike(one["once"], one["on_ranks"], about=one["label"])


def test_every_objective_kind_of_corpus_and_encoder_is_drawn(
    world: tuple[Path, list[Path]],
) -> None:
    drawn = [draw.draw_recipe(random.Random(number), world[1]) for number in range(600)]
    names = Counter(name for recipe in drawn for method in recipe["methods"].values() for name in _names(method))  # type: ignore[union-attr]
    assert names.keys() == OBJECTIVES.keys() and min(names.values()) > 5
    assert set(draw.CORPORA) == {recipe_kind(section_of(corpus)) for corpus in corpora.CORPORA}
    assert {recipe["encoder"]["checkpoint"] for recipe in drawn} == set(map(str, world[1]))  # type: ignore[call-overload, index]


def test_every_kind_of_task_and_of_own_file_is_drawn(world: tuple[Path, list[Path]]) -> None:
    drawn = [draw_comparison(random.Random(number), world[1]) for number in range(200)]
    tasks = {task.partition("=")[0] for recipe in drawn for task in recipe["evaluation"]["tasks"]}  # type: ignore[index, call-overload, union-attr]
    assert tasks == {*TASKS, "stsb", "own"} and set(TASKS) == set(OWN_KINDS)
    assert {recipe["folds"]["by"] for recipe in drawn if "folds" in recipe} == {"query", "answer"}  # type: ignore[index, call-overload]
    assert {recipe["corpus"].get("file") for recipe in drawn} == {None, *FILES}  # type: ignore[union-attr]


def _names(method: dict[str, object]) -> list[str]:
    return draw.names_of(method["objective"]) if "objective" in method else []  # type: ignore[arg-type]
