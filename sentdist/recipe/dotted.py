"""Set values of a recipe by dotted path (`--set`, `sweep`), and shorten paths for display."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sentdist.errors import RecipeError, brief
from sentdist.recipe.stage import Json


def with_path(values: dict[str, Json], path: str | Sequence[str], value: Json, *, where: str) -> dict[str, Json]:
    """Return nested mappings and lists with one value replaced or added; what is above it is copied.

    Args:
        path: The keys, or a text that joins them by dots. Items of lists are counted from 0.

    Raises:
        RecipeError: the path leads into a value without fields, or to an item that a list does not have.
    """
    changed: dict[str, Json] = _with(values, path.split(".") if isinstance(path, str) else path, value, where)
    return changed


def _with(values: Any, path: Sequence[str], value: Json, where: str) -> Any:
    if not path:
        return value
    key, *rest = path
    if isinstance(values, list | tuple) and key.isdecimal() and int(key) < len(values):
        return [*values[: int(key)], _with(values[int(key)], rest, value, where), *values[int(key) + 1 :]]
    if isinstance(values, dict | None):
        fields = values or {}
        return {**fields, key: _with(fields.get(key), rest, value, where)}
    remedy = "List items are counted from 0: terms.1.weight is the weight of the second term."
    raise RecipeError(where=where, found=brief(values), expected=f"a mapping or a list that has {key}", remedy=remedy)


def short_names(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """Map each dotted path to its last part, or to as many last parts as distinguish it from the other paths of its groups."""
    found: dict[str, str] = {}
    for group in groups:
        for path in group:
            parts, others = path.split("."), [other.split(".") for other in group if other != path]
            enough = (count for count in range(1, len(parts)) if all(other[-count:] != parts[-count:] for other in others))
            name = ".".join(parts[-next(enough, len(parts)) :])
            found[path] = max(found.get(path, ""), name, key=len)
    return found
