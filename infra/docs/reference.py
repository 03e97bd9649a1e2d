"""Write the pages on commands, recipe fields, objectives and the Python API from the code, so that no table is kept by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import sentdist
from sentdist.cli import app
from sentdist.recipe.schema import recipe_schema


def write_pages(folder: Path) -> None:
    """Write `commands.md`, `fields.md` and `api.rst` to the folder."""
    folder.mkdir(exist_ok=True)
    pages = {"commands.md": "".join(_commands()), "fields.md": "".join(_fields()), "api.rst": "".join(_api())}
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


def _cell(text: object) -> str:
    """Text in a cell of a Markdown table."""
    return " ".join(str(text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def _commands() -> Iterator[str]:
    yield "# Commands\n\nGenerated from `sentdist COMMAND --help`.\n"
    yield from _command_group(typer.main.get_command(app), "sentdist")


def _command_group(group: Any, name: str) -> Iterator[str]:
    for command in group.commands.values():
        if command.hidden:
            continue
        called = f"{name} {command.name}"
        if hasattr(command, "commands"):
            yield from _command_group(command, called)
            continue
        given = [option for option in command.params if option.param_type_name == "argument"]
        arguments = [option.name.upper() if option.required else f"[{option.name.upper()}]" for option in given]
        text = (command.help or "").replace("\n#", "\n\\#")  # a comment, no heading
        yield f"\n## {called}\n\n`{' '.join([called, *arguments])}`\n\n{text}\n"
        options = [option for option in command.params if option.name != "help"]
        if options:
            yield "\n| option | meaning | default |\n|---|---|---|\n"
        for option in options:
            names = ", ".join((*option.opts, *option.secondary_opts)) if option.param_type_name == "option" else option.name.upper()
            shown = option.show_default if isinstance(option.show_default, str) else option.default
            default = "" if shown in (None, False, ()) or callable(shown) else f"`{shown}`"
            yield f"| `{names}` | {_cell(option.help)} | {_cell(default)} |\n"


def _fields() -> Iterator[str]:
    schema: Any = recipe_schema()
    sections = schema["$defs"]
    yield "# Recipe fields\n\nGenerated from the recipe schema. `a.b` in `--set a.b=c` is field `b` of section `a`.\n"
    yield from _table("Recipe", schema)
    for name in sorted(sections):
        if "properties" in sections[name]:
            yield from _table(name, sections[name])


def _table(name: str, section: dict[str, Any]) -> Iterator[str]:
    yield f"\n## {name}\n\n{section.get('description', '') if name != 'Recipe' else ''}\n"
    yield "\n| field | type | default | meaning |\n|---|---|---|---|\n"
    required = section.get("required", [])
    for field, value in section["properties"].items():
        default = value.get("default")
        shown = "required" if field in required else "" if default in (None, "") or isinstance(default, dict) else f"`{_cell(default)}`"
        yield f"| `{field}` | {_type(value)} | {shown} | {_cell(value.get('description'))} |\n"


def _type(value: dict[str, Any]) -> str:
    """The type of a field in words; a section as a link to its table."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name != "JsonValue" else "any"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    for several in ("anyOf", "oneOf"):
        if several in value:
            kinds = dict.fromkeys(_type(kind) for kind in value[several] if kind.get("type") != "null")
            return " or ".join(kinds)
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}" if isinstance(value.get("items"), dict) else "list"
    return {"object": "mapping"}.get(value.get("type", ""), value.get("type", "any"))


def _api() -> Iterator[str]:
    yield "Python API\n==========\n\nGenerated from the docstrings of ``sentdist.__all__``. Import everything from ``sentdist``.\n\n"
    yield ".. currentmodule:: sentdist.api\n\n"
    errors = [
        name for name in sentdist.__all__ if isinstance(getattr(sentdist, name), type) and issubclass(getattr(sentdist, name), Exception)
    ]
    classes = [name for name in sentdist.__all__ if isinstance(getattr(sentdist, name), type) and name not in errors]
    functions = [name for name in sentdist.__all__ if name not in (*errors, *classes)]
    for title, directive, names in (
        ("Functions", "autofunction", functions),
        ("Classes", "autoclass", classes),
        ("Errors", "autoexception", errors),
    ):
        yield f"{title}\n{'-' * len(title)}\n\n"
        for name in names:
            yield f".. {directive}:: {name}\n" + ("   :members:\n" if directive == "autoclass" else "") + "\n"
