"""The recipe's JSON schema: shipped recipes pass it and name it, unknown keys fail it, planning writes it where a recipe names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.frozen import Frozen
from sentdist.plan.field_comments import field_comments
from sentdist.plan.schema import keep_schema_of, recipe_schema
from tests.support.planning import RECIPES, small_values


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(recipe_schema())
    return Draft202012Validator(recipe_schema())


def test_planning_a_recipe_writes_the_schema_that_it_names(tmp_path: Path) -> None:
    recipe, file = tmp_path / "options" / "demo.yaml", tmp_path / "recipe.schema.json"
    recipe.parent.mkdir()
    text = (RECIPES / "demo.yaml").read_text().partition("\n")[2]
    for first_line, is_written in (("# a comment", False), ("# yaml-language-server: $schema=../recipe.schema.json", True)):
        recipe.write_text(f"{first_line}\n{text}")
        for before in (None, "{}"):  # absent, and that of an older version
            file.unlink(missing_ok=True) if before is None else file.write_text(before)
            done = CliRunner().invoke(app, ["plan", str(recipe), "--store", str(tmp_path / "store")])
            assert done.exit_code == 0, done.output
            assert (file.exists() and json.loads(file.read_text(encoding="utf-8")) == recipe_schema()) == is_written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["options", "recipe.schema.json"]


def test_a_schema_that_this_code_wrote_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, file = tmp_path / "demo.yaml", tmp_path / "recipe.schema.json"
    recipe.write_text("# yaml-language-server: $schema=recipe.schema.json\n")
    keep_schema_of(recipe)
    written = file.read_bytes()
    for change in (written[:-30], written.replace(b"code ", b"code 0"), b""):
        file.write_bytes(change)
        keep_schema_of(recipe)
        assert file.read_bytes() == written
    monkeypatch.setattr("sentdist.plan.schema.schema_text", lambda: pytest.fail("half of the time of `sentdist plan`"))
    keep_schema_of(recipe)


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


def test_what_no_recipe_can_say_fails(schema: Draft202012Validator) -> None:
    for changes in [
        {"training": {"batch_size": 1}},
        {"training": {"precision": "fp8"}},
        {"methods": {"a": {"objective": {"name": "info_nse"}}}},
        {"methods": {"a": {"training": {"learning_rte": 1e-5}}}},
        {"evaluation": {}},
        {"evaluation": {"tasks": ["stbs"]}},
        {"selection": {"task": "stsb-dve"}},
    ]:
        assert schema.is_valid(small_values())
        assert not schema.is_valid(small_values(**changes))


def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["schema"])
    written = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "schema.json")])
    assert printed.exit_code == written.exit_code == 0
    assert json.loads(printed.output) == recipe_schema() == json.loads((tmp_path / "schema.json").read_text(encoding="utf-8"))
    failed = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "nowhere" / "schema.json")])
    assert failed.exit_code == 2 and len(failed.stderr.splitlines()) == 1
