"""Recipes as files: exponents, overrides by `--set`, what is no recipe; all else that is refused: test_refusals.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import RecipeError
from sentdist.plan.recipe import Recipe, load_recipe, recipe_from_values
from sentdist.plan.stage import Json
from tests.support.planning import RECIPES, small_values, with_method

SMALL = """
name: small
corpus: {source: nli/triplets}
training: {batch_size: 32, learning_rate: 5e-5}
evaluation: {tasks: [stsb]}
methods:
  base: {}
  fine_tuned: {objective: {name: info_nce}}
"""


def _write(folder: Path, text: str = SMALL, name: str = "small.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_exponents_are_numbers_and_words_stay_words(tmp_path: Path) -> None:
    for text, value in [("5e-5", 5e-5), ("5.0e-5", 5e-5), ("1e5", 1e5), ("+2E-05", 2e-5), (".5e-4", 5e-5)]:
        assert load_recipe(_write(tmp_path, SMALL.replace("5e-5", text))).training.learning_rate == value
    for text in ["e5", "1e", "abc1e5"]:
        with pytest.raises(RecipeError, match=r"training\.learning_rate.*found '"):
            load_recipe(_write(tmp_path, SMALL.replace("5e-5", text)))


def test_overrides_apply_in_order_and_are_typed(tmp_path: Path) -> None:
    path = _write(tmp_path, SMALL + "sweep: {training.batch_size: [32, 64], training.epochs: [1, 2]}\n")
    recipe = load_recipe(path, ["training.batch_size=8", "training.batch_size=16", "training.learning_rate=1e-4", "seeds=[0, 1]"])
    assert (recipe.training.batch_size, recipe.training.learning_rate, recipe.seeds) == (16, 1e-4, (0, 1))
    assert load_recipe(path, ["encoder.pooling=cls"]).encoder.pooling == "cls", "a section that the file leaves out"
    assert load_recipe(path, ["methods.fine_tuned.stopping={patience: 5}"]).methods["fine_tuned"].stopping is not None
    assert load_recipe(path, ["sweep.training.batch_size=[8]"]).sweep == {"training.batch_size": (8,), "training.epochs": (1, 2)}


def test_a_wrong_override_is_refused(tmp_path: Path) -> None:
    for override, message in [
        ("training.batch_size", "no a.b=c"),
        ("training.bach_size=3", 'did you mean "batch_size"'),
        ("training.batch_size=[1", "a YAML value"),
        ("name.first=x", "expected a mapping there"),
        ("seeds[0]=3", "For the first one: seeds.0"),
        ("methods.fine_tund.select=false", 'Did you mean "fine_tuned"'),
        ("methods={}", "found all methods at once"),
        ("encoder={checkpoint: *a}", "found undefined alias"),
    ]:
        with pytest.raises(RecipeError, match=r"small\.yaml|--set") as caught:
            load_recipe(_write(tmp_path), [override])
        assert message in str(caught.value)


def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path) -> None:
    for text, message in [
        (SMALL + "name: other\n", 'the key "name" stands twice'),
        (SMALL + "[a, b]: c\n", "valid YAML"),
        ("- a\n- b\n", "found a list; expected a recipe"),
        ("", "found an empty file"),
    ]:
        with pytest.raises(RecipeError, match=r"small\.yaml") as caught:
            load_recipe(_write(tmp_path, text))
        assert message in str(caught.value)
    with pytest.raises(RecipeError, match=r'Did you mean ".*small\.yaml"\?'):
        load_recipe(tmp_path / "smal.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(RecipeError, match="no UTF-8"):
        load_recipe(tmp_path / "binary.yaml")


def test_what_is_within_its_limits_is_taken() -> None:
    objective: Json = {"name": "info_nce"}
    unseen = with_method(twin={"title": "fine_tuned", "objective": objective, "reported": False})
    assert recipe_from_values(unseen, where="small.yaml").methods["twin"].title == "fine_tuned"
    for changes in ({"name": "n" * 100, "training": {"epochs": 10_000}}, {"runtime": {"gpus_per_worker": 0.25}}):
        recipe_from_values(small_values(**changes), where="here")
    own: Json = {"kind": "own", "file": "a.csv"}
    for corpus, path in ((own, "corpus.limit"), (own, "corpus.limit_seed"), ({"source": "nli/triplets"}, "corpus.split")):
        assert path in recipe_from_values(small_values(corpus=corpus, sweep={path: [5, 6]}), where="small.yaml").sweep


def test_a_shipped_recipe_is_taken_by_its_name_and_a_file_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (Recipe.load("demo").name, Recipe.load("cosent").name) == ("demo", "option_cosent")
    _write(tmp_path, name="demo")
    assert Recipe.load("demo").name == "small"
    _write(tmp_path, name="rcl_grids.yaml")
    assert f'"{RECIPES / "sweeps" / "rcl_grid.yaml"}"' in CliRunner().invoke(app, ["plan", "rcl_grid.yml"]).output
    assert '"rcl_grids.yaml"' in CliRunner().invoke(app, ["plan", "rcl_grdis"]).output
