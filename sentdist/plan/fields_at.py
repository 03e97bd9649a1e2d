"""Which fields a mapping at a place of a recipe can have, by the types of its sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

from sentdist.frozen import Frozen

A_LIST = "a list"  # what a field takes, in words


def fields_at(section: type[Frozen], place: Sequence[str]) -> dict[str, str]:
    """The fields of what stands at a place below a section, with what each takes in words; none where that is no section.

    place: names of fields, keys of mappings and numbers of lists; beside them what pydantic adds, the name or kind of a chosen section.
    """
    found: list[type[Frozen]] = [section]
    is_key = False
    for step in place:
        if is_key:
            is_key = False
        elif chosen := [one for one in found if found[1:] and _tag(one) == step]:
            found = chosen
        elif not step.isdigit():
            kinds = [one.model_fields[step].annotation for one in found if step in one.model_fields]
            found = list(dict.fromkeys(inner for kind in kinds for inner in _sections_in(kind)))
            is_key = any(get_origin(kind) is dict for kind in kinds)
    return {field: _taken(about.annotation) for one in reversed(found) for field, about in one.model_fields.items()}


def _taken(kind: Any) -> str:
    """What a field of a type takes, in words."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        return A_LIST
    return "fields with their values below it" if next(_sections_in(kind), None) is not None else "a value"


def _tag(section: type[Frozen]) -> object:
    """The value by which one of several sections is chosen: its kind or name."""
    return next((section.model_fields[field].default for field in ("kind", "name") if field in section.model_fields), None)


def _sections_in(kind: Any) -> Iterator[type[Frozen]]:
    """The sections that a field of a type can hold, in lists and mappings, too."""
    if isinstance(kind, type) and issubclass(kind, Frozen):
        yield kind
    for inner in get_args(kind):
        yield from _sections_in(inner)
