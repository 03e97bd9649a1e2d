"""What messages tell people to type, set or read exists: commands, options, files, environment variables, extras."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from sentdist.cli import app

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"\bsentdist ([a-z]+)(?: ([a-z]+))?")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FILE = re.compile(r"\b(?:infra|cluster|rayjobs|tests)/[\w./*-]*\w")
MODULE = re.compile(r"\bpython -m ((?:sentdist|rayjobs)[\w.]*\w)")
EXTRA = re.compile(r"sentdist\[(\w+)\]")
# Options of other programs that are named: docker run, ray start, ray job submit, ray job logs, xcode-select, git.
FOREIGN_OPTIONS = {"--shm-size", "--object-store-memory", "--working-dir", "--install", "--short", "--address", "--follow"}


@cache
def _strings() -> list[tuple[str, str]]:
    """(place, text) of every text in the package but docstrings; what an f-string fills in is a dots."""
    found = []
    for path in sorted((ROOT / "sentdist").rglob("*.py")):
        tree = ast.parse(path.read_text())
        skipped = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                   and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in ast.walk(node) if part is not node}
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                text = node.value
            else:
                continue
            found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text))
    return found


def _commands() -> dict[tuple[str, ...], set[str]]:
    """Options of every command, by its words; a group has none."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], set[str]]]:
        yield words, {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, one in getattr(command, "commands", {}).items():
            yield from walk(one, (*words, name))

    return dict(walk(typer.main.get_command(app), ()))


COMMANDS = _commands()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ALL_OPTIONS = set().union(*COMMANDS.values()) | FOREIGN_OPTIONS | {"--help"}


def _faults(text: str) -> Iterator[str]:
    named = []
    for first, second in COMMAND.findall(text):
        if (first,) not in COMMANDS:
            yield f"no command `sentdist {first}`"
        elif any(words[:1] == (first,) and len(words) > 1 for words in COMMANDS):
            named.append((first, second))
            if (first, second) not in COMMANDS:
                yield f"no command `sentdist {first} {second}`"
        else:
            named.append((first,))
    known = set().union(*(COMMANDS.get(one, set()) for one in named), {"--help", "--debug"}, FOREIGN_OPTIONS) if named else ALL_OPTIONS
    yield from (
        f"no option {option} of {named or 'any command'}" for option in OPTION.findall(text) if option not in known and " " in text
    )  # one word is an argument of a command
    yield from (f"no file {name}" for name in FILE.findall(text) if not any(ROOT.glob(name)))
    for module in MODULE.findall(text):
        path = ROOT / module.replace(".", "/")
        if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file():
            yield f"no module {module}"
    yield from (f"no extra {extra}" for extra in EXTRA.findall(text) if extra not in EXTRAS)


def test_messages_name_only_what_exists() -> None:
    found = [f"{place}: {fault}" for place, text in _strings() for fault in _faults(text)]
    assert not found, "\n".join(found)


def test_the_scan_finds_what_does_not_exist() -> None:
    for text in [
        "Run `sentdist store remove KEY`.",
        "Run sentdist prune.",
        "Say sentdist report --html.",
        "See infra/restart.sh.",
        "Say --overwite.",
        "python -m rayjobs.gone",
        "Install sentdist[tpu].",
    ]:
        assert list(_faults(text))
