"""Parse YAML strictly, and list pydantic's errors with the field and the value of each."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import yaml

from sentdist.errors import LONGEST_VALUE, RecipeError, brief, did_you_mean, first_line, one_line
from sentdist.recipe.stage import Json

MOST_BYTES = 1_000_000  # of a recipe; the shipped recipes have 1,000 to 4,000
MOST_PROBLEMS = 8  # named for one recipe: more of them are one mistake in many places


class StrictLoader(yaml.SafeLoader):  # libyaml would crash on 100,000 opening brackets
    """YAML with `5e-5` as a number and without duplicate keys."""


def _mapping_without_duplicates(loader: StrictLoader, node: yaml.MappingNode) -> dict[object, object]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if isinstance(key, Hashable) and key in seen:
            raise yaml.constructor.ConstructorError(None, None, f'the key "{key}" occurs twice', key_node.start_mark)
        if isinstance(key, Hashable):
            seen.add(key)
    found: dict[object, object] = loader.construct_mapping(node, deep=True)
    return found


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)
StrictLoader.add_implicit_resolver(  # YAML 1.1 wants a dot and a sign in an exponent; people write 5e-5 and 1e5
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def parsed_yaml(text: str, *, where: str, expected: str, remedy: str) -> Json:
    """Parse a YAML text.

    Raises:
        RecipeError: invalid YAML, or a key that occurs twice.
    """
    try:
        value: Json = yaml.load(text, Loader=StrictLoader)
        return value
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error).removeprefix("found ")
        found = f"line {mark.line + 1}: {problem}" if mark is not None and "\n" in text.strip() else problem
    except (ValueError, RecursionError) as error:  # PyYAML's own constructors of dates and numbers
        found = f"a value that cannot be read ({first_line(error)})"
    raise RecipeError(where=where, found=found, expected=expected, remedy=remedy)


def not_one_of(name: str, names: Sequence[str]) -> str:
    """Return a sentence that rejects a name and lists the known ones, with a suggestion."""
    return f'"{one_line(name, LONGEST_VALUE)}" is not one of {", ".join(names) or "(none)"}. {did_you_mean(name, names)}'.rstrip()


def explained(problems: Iterable[Mapping[str, Any]], values: object) -> str:
    """Return pydantic's errors as sentences: the field, the value found, and pydantic's message.

    Args:
        values: What was validated. Parts of a place that are not in it are members of unions, which pydantic adds.
    """
    by_field: dict[str, list[str]] = {}
    for problem in problems:
        head, message = _explained(problem, ".".join(_place(problem, values)))
        by_field.setdefault(head, []).append(message)
    lines = [head + " or ".join(dict.fromkeys(messages)) for head, messages in by_field.items()]
    more = [f"And {len(lines) - MOST_PROBLEMS} more."] if len(lines) > MOST_PROBLEMS else []
    return " ".join([*(line if line.endswith((".", "?")) else f"{line}." for line in lines[:MOST_PROBLEMS]), *more])


_FIELD = re.compile(r"[\w.\[\]-]+: ")


def _explained(problem: Mapping[str, Any], where: str) -> tuple[str, str]:
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return (f"{where}{'.' if _FIELD.match(message) else ': '}" if where else ""), message
    if problem["type"] == "missing":
        return f"{where}: ", message
    given, context = problem["input"], problem.get("ctx") or {}
    name = context.get("tag", given)  # a tag is the name or kind by which a member of a union is chosen
    known = re.findall(r"'([^']*)'", str(context.get("expected_tags") or context.get("expected") or ""))
    hint = did_you_mean(name, known) if isinstance(name, str) else ""
    expected = message.replace("Input should be", "expected").replace("Input should", "it should")
    return f"{where}: found {'nothing' if given is None else brief(given)}; ", f"{expected}. {hint}" if hint else expected


def _place(problem: Mapping[str, Any], values: Any) -> list[str]:
    kept = []
    for part in problem["loc"]:
        is_key = isinstance(values, Mapping) and part in values
        if is_key or (isinstance(values, list | tuple) and isinstance(part, int) and part < len(values)):
            values = values[part]
            kept.append(str(part))
    return [*kept, str(problem["loc"][-1])] if problem["type"] == "missing" else kept


def value_text(value: Json) -> str:
    """Return a value of a recipe as short text, such as `{0.01, 0.02}`."""
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(value_text, value)) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)
