"""The surface that a user meets: commands with their options, fields of recipes, names of `sentdist.__all__`.

python -m tests.golden.test_surface     writes surface.txt anew

A line may go at any time. A new line is added only by a change whose purpose is to offer it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from pathlib import Path

import typer.main

import sentdist
from sentdist.cli.application import app
from sentdist.recipe.schema import recipe_schema

GOLDEN = Path(__file__).with_name("surface.txt")


def _commands(command: object, name: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    for key in below:
        yield from _commands(below[key], f"{name} {key}")
    if not below:
        yield name
        for parameter in command.params:  # type: ignore[attr-defined]
            if parameter.name != "help":
                yield f"{name} {'/'.join([*parameter.opts, *parameter.secondary_opts])}"


def _fields() -> Iterator[str]:
    schema = recipe_schema()
    sections = {"Recipe": schema, **schema["$defs"]}  # type: ignore[dict-item]
    for section, described in sections.items():
        yield from (f"recipe {section}.{field}" for field in described.get("properties", {}))  # type: ignore[union-attr]


def _names() -> Iterator[str]:
    for name in sentdist.__all__:
        value = getattr(sentdist, name)
        if isinstance(value, type) and not issubclass(value, BaseException | enum.Enum):
            members = [
                member
                for member, _ in inspect.getmembers(value, inspect.isfunction)
                if not member.startswith("_") and member in vars(value)
            ]
            yield from (f"sentdist.{name}.{member}{_signature(vars(value)[member])}" for member in members)
            yield f"sentdist.{name}"
        else:
            yield f"sentdist.{name}{'' if isinstance(value, type) else _signature(value)}"


def _signature(function: object) -> str:
    """Names of the parameters, with = where they have a default and * before those that are named."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    named = [one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters]
    words = [f"{one.name}=" if one.default is not one.empty else one.name for one in parameters]
    if True in named:
        words.insert(named.index(True), "*")
    return f"({', '.join(words)})"


def surface() -> list[str]:
    return sorted({*_commands(typer.main.get_command(app), "sentdist"), *_fields(), *_names()})


def test_nothing_is_offered_that_was_not_decided() -> None:
    assert not set(surface()) - set(GOLDEN.read_text().splitlines())


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{line}\n" for line in surface()))
