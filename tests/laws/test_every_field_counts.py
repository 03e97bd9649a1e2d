"""No field of a recipe is ignored: a new value of it changes what is built, is refused, or reported while planning. What may stay as it is
stands here with the reason."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from sentdist.errors import SentdistError
from sentdist.frozen import Frozen
from sentdist.recipe.recipe import Recipe, recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import parsed_yaml
from tests.support.planning import RECIPES, plan_of

SHIPPED = ["demo", "auxiliary", "sts_regression", "rse_sts", "supmpn_augmentation", "rcl_faq"]
OF_NO_STAGE = {
    "Recipe.name": "what a sweep is called", "Recipe.about": "for people", "Recipe.baseline": "what the report compares with",
    "Recipe.headline": "what the report opens with", "Recipe.paper": "whose tables stand beside", "Recipe.runtime": "where work is done",
    "Recipe.confirm_seeds": "trained once dev has chosen", "Recipe.sweep": "unrolled into values", "Recipe.seeds": "one in this test",
    "Method.title": "what a row is called",
}  # fmt: skip
MEANS_THE_SAME = {
    "Method.phis": "a set, whose order says nothing",
    "hard_negatives": "false where rows have none; a plan reports where they are asked for",
    "Regression.boundary": "null is the boundary of its loss",
    "AugmentationSection.fraction": "null is that of its kind",
}


def _others(kind: Any, value: Any) -> list[Any]:
    """A few other values that a field of this type may have."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _others(arguments[0], value)
    if origin in (Union, types.UnionType):
        return [other for argument in arguments for other in ([None] if argument is type(None) else _others(argument, value))]
    if origin is Literal:
        return list(arguments)
    if kind is bool:
        return [True, False]
    if kind is int:
        return [value + 1, value * 2] if type(value) is int else [2, 7, 64, 1000]
    if kind is float:
        return [value * 1.1 + 0.01, value / 2] if isinstance(value, int | float) else [0.05, 0.5, 2.0]
    if origin is tuple and isinstance(value, tuple) and len(value) > 1 and not isinstance(value[0], Frozen):
        return [list(value[:-1]), list(value[::-1])]
    return []


def _sections(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Frozen]]:
    """Every section of a recipe with its place, those that it leaves to their defaults, too."""
    if isinstance(value, Frozen):
        yield place, value
        for field in type(value).model_fields:
            yield from _sections(getattr(value, field), (*place, field))
    elif isinstance(value, dict | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _sections(inner, (*place, key))


def _changed(values: Json, place: tuple[str | int, ...], field: str, other: Json) -> Json:
    """The values with one of them replaced."""
    changed = copy.deepcopy(values)
    at: Any = changed
    for step in place:
        if isinstance(at, dict):
            at[step] = at.get(step) or {}
        at = at[step]
    at[field] = other
    return changed


def _built(values: Json) -> object:
    """What a recipe asks for, and what is reported of it; None where it is refused. An error of another kind is none of its own."""
    try:
        plan = plan_of(recipe_from_values(copy.deepcopy(values), where="changed.yaml"))  # type: ignore[arg-type]
    except SentdistError:
        return None
    return frozenset(stage.key for stage in plan.stages), [trial.method for trial in plan.trials], plan.notes


@pytest.mark.parametrize("name", SHIPPED)
def test_another_value_of_a_field_is_seen_or_refused(name: str) -> None:
    path = RECIPES / f"{name}.yaml"
    values: Any = parsed_yaml(path.read_text(), where=str(path), expected="YAML", remedy="")
    values = {key: value for key, value in values.items() if key != "sweep"} | {"seeds": [0]}
    recipe = recipe_from_values(copy.deepcopy(values), where=str(path))
    before, unseen = _built(values), []
    assert before is not None
    done: set[tuple[object, ...]] = set()
    for place, section in _sections(recipe):
        if place[:1] in (("runtime",), ("sweep",)):
            continue
        for field, about in type(section).model_fields.items():
            one = f"{type(section).__name__}.{field}"
            kind = (one, section.model_dump_json(exclude={"title"}))
            if one in OF_NO_STAGE or one in MEANS_THE_SAME or field in MEANS_THE_SAME or kind in done:
                continue
            done.add(kind)
            value = getattr(section, field)
            for other in _others(about.annotation, value):
                if other == value or (isinstance(value, tuple) and tuple(other or ()) == value):
                    continue
                changed = _changed(values, place, field, other)
                if _built(changed) == before:
                    unseen.append(f"{'.'.join(map(str, place))}.{field}={other!r} [{one}]")
    assert not unseen, "\n".join(unseen)


def test_what_may_stay_as_it_is_are_fields() -> None:
    assert {one.partition(".")[2] for one in OF_NO_STAGE if one.startswith("Recipe.")} <= set(Recipe.model_fields)
