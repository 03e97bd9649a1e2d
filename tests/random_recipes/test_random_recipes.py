"""Methods, corpora, encoders and options combined at random: refused while planning or carried out, resumed to the last bit, and alike
by micro-batches. `python -m tests.random_recipes --rounds 500` plays many."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sentdist import corpora
from sentdist.recipe.objectives import OBJECTIVES
from tests.random_recipes import draw
from tests.random_recipes.play import play
from tests.support.planning import recipe_kind, section_of

World = tuple[Path, list[Path]]
NIGHTLY = [pytest.param(number, marks=pytest.mark.nightly) for number in range(1000, 1010)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return draw.world(tmp_path_factory.mktemp("world"))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("number", [0, 1, 2, *NIGHTLY])
def test_a_recipe_is_refused_while_planning_or_ends(number: int, world: World, tmp_path: Path) -> None:
    play(number, *world, tmp_path)


def test_every_objective_corpus_and_encoder_is_drawn(world: World) -> None:
    drawn = [draw.draw_recipe(random.Random(number), world[1]) for number in range(300)]
    methods = [method for recipe in drawn for method in recipe["methods"].values() if "objective" in method]  # type: ignore[union-attr]
    assert {name for method in methods for name in draw.names_of(method["objective"])} == OBJECTIVES.keys()
    assert set(draw.CORPORA) == {recipe_kind(section_of(corpus)) for corpus in corpora.CORPORA}
    assert {recipe["encoder"]["checkpoint"] for recipe in drawn} == set(map(str, world[1]))  # type: ignore[call-overload, index]
