"""Recipes as files: read strictly, overridden by `--set`, and their JSON schema; what is refused: test_refusals.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import RecipeError
from sentdist.frozen import Frozen
from sentdist.plan.recipe import Recipe, load_recipe, recipe_from_values
from sentdist.plan.schema import field_comments, keep_schema_of, recipe_schema
from sentdist.plan.stage import Json
from sentdist.plan.wording import DEEPEST, MOST_VALUES, parsed_yaml
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


BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
HOSTILE = {
    "alias to itself": "a: &a [*a]",
    "alias bomb": BOMB,
    "deep list": "a: " + "[" * 100_000,
    "million values": f"seeds: [{', '.join(['1'] * 300_000)}]",
    "long number": "limit: " + "9" * 900_000,
    "above 64 bits": "limit: 1000000000000000000000000000000",
    "no such day": "about: 2020-13-45",
    "python object": "a: !!python/object/apply:os.system [ls]",
    "nul": "name: a\0b",
    "key twice": "a: 1\na: 2",
}


def test_hostile_yaml_is_refused_in_a_line(tmp_path: Path) -> None:
    for text in HOSTILE.values():
        path = tmp_path / "a.yaml"
        path.write_text(text)
        for file, overrides in ((path, []), (_write(tmp_path), [f"sweep={text}"])):
            with pytest.raises(RecipeError) as caught:
                load_recipe(file, overrides)
            assert len(str(caught.value)) < 1200 and len(str(caught.value).splitlines()) == 1


def test_what_people_write_is_read_as_before() -> None:
    text = "base: &base {lr: 5e-5, n: 1_000}\nlist: [*base, *base]\ndeep: " + "[" * 20 + "]" * 20
    values = parsed_yaml(text, where="w", expected="e", remedy="r")
    assert isinstance(values, dict)
    assert values["list"] == [{"lr": 5e-5, "n": 1000}] * 2
    assert parsed_yaml(str(2**63 - 1), where="w", expected="e", remedy="r") == 2**63 - 1
    assert parsed_yaml(f"[{'1,' * (MOST_VALUES - 2)}]", where="w", expected="e", remedy="r") == [1] * (MOST_VALUES - 2)
    assert DEEPEST > 20


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(recipe_schema())
    return Draft202012Validator(recipe_schema())


def test_what_the_code_says_beside_a_field_is_what_an_editor_shows() -> None:
    class Base(Frozen):
        """A value."""

        rate: float = 0.1  # of the optimizer, a step
        name: str = "#1"

    class Derived(Base):
        # How far it goes:
        # a number from 0 up.
        length: int = 3
        either: (
            int | None  # not this one
        ) = None  # the last line counts

    assert field_comments(Derived) == {
        "rate": "Of the optimizer, a step",
        "length": "How far it goes: a number from 0 up.",
        "either": "The last line counts",
    }


def test_planning_writes_no_other_file(tmp_path: Path) -> None:
    for named in ["https://example.org/recipe.schema.json", "my.schema.json", "nowhere/recipe.schema.json"]:
        (tmp_path / "my.schema.json").write_text("mine")
        recipe = tmp_path / "demo.yaml"
        recipe.write_text(f"# yaml-language-server: $schema={named}\n")
        keep_schema_of(recipe)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.yaml", "my.schema.json"]
        assert (tmp_path / "my.schema.json").read_text() == "mine"


def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["schema"])
    written = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "schema.json")])
    assert printed.exit_code == written.exit_code == 0
    assert json.loads(printed.output) == recipe_schema() == json.loads((tmp_path / "schema.json").read_text(encoding="utf-8"))
    failed = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "nowhere" / "schema.json")])
    assert failed.exit_code == 2 and len(failed.stderr.splitlines()) == 1
