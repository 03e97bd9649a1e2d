"""The recipe's JSON schema: shipped recipes pass it and name it, unknown keys fail it, planning writes it where a recipe names it."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.frozen import Frozen
from sentdist.plan.recipe import Recipe
from sentdist.plan.schema import field_comments, keep_schema_of, recipe_schema
from sentdist.plan.sections import EncoderSection, EvaluationSection, Method, Runtime, SelectionSection
from sentdist.plan.specs import Training
from sentdist.plan.stage import Json
from sentdist.plan.wording import parsed_yaml
from tests.support.planning import RECIPES, small_values

SCHEMA_FILE = RECIPES / "recipe.schema.json"
SHIPPED = sorted(RECIPES.rglob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(recipe_schema())
    return Draft202012Validator(recipe_schema())


def _values(path: Path) -> Json:
    return parsed_yaml(path.read_text(), where=str(path), expected="YAML", remedy="")


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


@pytest.mark.parametrize("section", [Recipe, Method, EncoderSection, SelectionSection, EvaluationSection, Training, Runtime])
def test_every_field_that_most_recipes_have_is_explained(section: type[Frozen]) -> None:
    assert set(field_comments(section)) == set(section.model_fields)
    found: Any = recipe_schema()
    properties = found["properties"] if section is Recipe else found["$defs"][section.__name__]["properties"]
    assert [name for name, one in properties.items() if "description" not in one] == []


@pytest.mark.parametrize("named", ["https://example.org/recipe.schema.json", "my.schema.json", "nowhere/recipe.schema.json"])
def test_planning_writes_no_other_file(named: str, tmp_path: Path) -> None:
    (tmp_path / "my.schema.json").write_text("mine")
    recipe = tmp_path / "demo.yaml"
    recipe.write_text(f"# yaml-language-server: $schema={named}\n")
    keep_schema_of(recipe)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.yaml", "my.schema.json"]
    assert (tmp_path / "my.schema.json").read_text() == "mine"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.relative_to(RECIPES).as_posix())
def test_a_shipped_recipe_names_the_schema_and_passes_it(path: Path, schema: Draft202012Validator) -> None:
    named = os.path.relpath(SCHEMA_FILE, path.parent)
    assert path.read_text().partition("\n")[0] == f"# yaml-language-server: $schema={named}"
    assert not [f"{list(error.absolute_path)}: {error.message}" for error in schema.iter_errors(_values(path))]


def _mappings(value: Json, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all mappings whose keys are fields; names of one's own (relations, paths of a sweep) are free."""
    if isinstance(value, dict):
        if place[-1:] not in (("weights",), ("sweep",)):
            yield place
        for key, inner in value.items():
            yield from _mappings(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _mappings(inner, (*place, number))


@pytest.mark.parametrize("name", ["demo", "rse_sts", "supmpn_sts", "sts_regression", "auxiliary", "combinations", "rcl_faq"])
def test_an_unknown_key_fails_wherever_it_stands(name: str, schema: Draft202012Validator) -> None:
    whole = _values(RECIPES / f"{name}.yaml")
    passing = []
    for place in _mappings(whole):
        if "sweep" in place:
            continue
        values = copy.deepcopy(whole)
        at: Json = values
        for step in place:
            at = at[step]  # type: ignore[index,call-overload]
        assert isinstance(at, dict)
        at["Not A Key"] = 1
        if schema.is_valid(values):
            passing.append(".".join(map(str, place)))
    assert not passing


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": []},
        {"training": {"batch_size": 1}},
        {"training": {"precision": "fp8"}},
        {"methods": {}},
        {"methods": {"a": {"objective": {"name": "info_nse"}}}},
        {"methods": {"a": {"training": {"learning_rte": 1e-5}}}},
        {"evaluation": {}},
        {"evaluation": {"tasks": ["stbs"]}},
        {"selection": {"task": "stsb-dve"}},
        {"search": {"samples": 1, "space": {"training.seed": {"choice": [1]}}, "metric": "stsb"}},
    ],
)
def test_what_no_recipe_can_say_fails(changes: dict[str, Json], schema: Draft202012Validator) -> None:
    assert schema.is_valid(small_values())
    assert not schema.is_valid(small_values(**changes))


@pytest.mark.parametrize("task", ["stsb-dev", "stsb-dev+sickr-dev", "own", "sts=my.csv@dev"])
def test_names_of_tasks_pass_as_they_do_in_a_recipe(task: str, schema: Draft202012Validator) -> None:
    search: Json = {"samples": 1, "space": {"training.seed": {"choice": [1]}}, "metric": "dev"}
    assert schema.is_valid(
        small_values(selection={"task": task}, evaluation={"tasks": ["sts", "stsb", "own", "sts=my.csv@test"]}, search=search)
    )


# Fields whose values only a person's own data, other parts of the recipe or a machine know.
FREE = {
    "about", "baseline", "headline", "of", "corpus", "start", "bank", "relation", "source", "file", "columns", "split", "revision",
    "checkpoint", "group", "encoding", "separator", "gpu_type", "tagger",
}  # fmt: skip


def test_no_field_is_free_text_where_the_loader_knows_the_names() -> None:
    """`search.metric` was."""
    schema: Any = recipe_schema()
    free: set[str] = set()
    for section in (schema, *schema["$defs"].values()):
        for name, field in section.get("properties", {}).items():
            members = [inner.get("items", inner) for inner in (field, *field.get("anyOf", ())) if isinstance(inner.get("items", {}), dict)]
            if any(one.get("type") == "string" and not one.keys() & {"enum", "const", "pattern", "anyOf"} for one in members):
                free.add(name)
    assert free == FREE


def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["schema"])
    written = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "schema.json")])
    assert printed.exit_code == written.exit_code == 0
    assert json.loads(printed.output) == recipe_schema() == json.loads((tmp_path / "schema.json").read_text(encoding="utf-8"))
    failed = CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "nowhere" / "schema.json")])
    assert failed.exit_code == 2 and len(failed.stderr.splitlines()) == 1
