"""The grid of a sweep: its points, the recipe at each, and which of its axes make a difference."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence

from sentdist.errors import LONGEST_VALUE, RecipeError, brief, one_line
from sentdist.plan.dotted import with_path
from sentdist.plan.recipe import Recipe, check_method_in_path, recipe_from_values
from sentdist.plan.stage import Json

MOST_TRIALS = 100_000  # planning takes 0.6 ms a trial


def grid_points(recipe: Recipe) -> Iterator[dict[str, Json]]:
    """Path -> value at each point of `sweep`, the last path turning fastest; one point without values where there is no sweep.

    Raises:
        RecipeError: a path without values, a value twice, a path of no method, more trials than MOST_TRIALS.
    """
    for path, values in recipe.sweep.items():
        if not values:
            raise RecipeError(where=f"sweep.{path}", found="no value", expected="at least one", remedy="Give values or drop the line.")
        _check_each_once(path, values)
        check_method_in_path(path, list(recipe.methods), where=f"sweep.{path}")
    folds = 1 if recipe.folds is None else recipe.folds.num
    num_trials = math.prod(map(len, recipe.sweep.values())) * len(recipe.methods) * len(recipe.seeds) * folds
    if num_trials > MOST_TRIALS:
        raise RecipeError(
            where=f"{recipe.name}: sweep",
            found=f"{num_trials:,} trials (points of the grid × methods × seeds × folds)",
            expected=f"at most {MOST_TRIALS:,}",
            remedy="Leave values out, or make several recipes of it.",
        )
    for values in itertools.product(*recipe.sweep.values()):
        yield dict(zip(recipe.sweep, values, strict=True))


def _check_each_once(path: str, values: Sequence[Json]) -> None:
    """Refuse a value that stands twice on an axis: it would be a cell of its own in nothing but the count."""
    first: dict[str, Json] = {}
    again: dict[str, Json] = {}
    for value in values:
        spelt = json.dumps(_with_floats(value))  # 1 and 1.0 are one number
        if spelt in first:
            again[spelt] = first[spelt]
        first.setdefault(spelt, value)
    if again:
        each = [f"only one {brief(value)}" for value in again.values()]
        raise RecipeError(
            where=f"sweep.{path}", found=brief(list(values)), expected="each value once", remedy=f"Keep {' and '.join(each)}."
        )


def _with_floats(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_floats(one) for one in value]
    if isinstance(value, dict):
        return {name: _with_floats(one) for name, one in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def check_takes_effect(recipe: Recipe, overrides: Sequence[str]) -> None:
    """Refuse overrides (`a.b=c`, as given to the recipe) of fields that its grid or search sets at each point: nothing would show them.

    Raises:
        RecipeError: naming the override and what varies the field.
    """
    varied: dict[str, tuple[str, Json]] = {path: (f"sweep.{path}", list(values)) for path, values in recipe.sweep.items()}
    if recipe.search is not None:
        varied |= {
            path: (f"search.space.{path}", space.model_dump(mode="json", exclude_unset=True)) for path, space in recipe.search.space.items()
        }
    for override in overrides:
        field, _, value = (part.strip() for part in override.partition("="))
        for path, (where, values) in varied.items():
            if field != path and not field.startswith(f"{path}."):
                continue
            instead = f"--set {where}=[{value}]" if field == path and where.startswith("sweep.") else f"--set {where}=…"
            raise RecipeError(
                where=f"--set {override}",
                found=f"a field that {where} varies: {brief(values)}",
                expected="one that takes effect",
                remedy=f"Say {instead}" + (", or leave the grid out by `sentdist run`." if where.startswith("sweep.") else "."),
            )


def recipe_at(recipe: Recipe, point: Mapping[str, Json], *, section: str = "sweep") -> Recipe:
    """The recipe with fields set, without what varies them. section: where they were given."""
    values = recipe.model_dump(exclude_unset=True, exclude={"sweep", "search"})
    for path, value in point.items():
        values = with_path(values, path, value, where=f"{section}.{path}")
    return recipe_from_values(values, where=f"{recipe.name}: {section} at {_spelled(point)}" if point else recipe.name)


def _spelled(point: Mapping[str, Json]) -> str:
    """As after --set; a long one is cut."""
    return one_line(", ".join(f"{path}={json.dumps(value)}" for path, value in point.items()), LONGEST_VALUE)


def paths_that_matter(paths: tuple[str, ...], keys: dict[tuple[str, ...], str]) -> set[str]:
    """The sweep paths of which a single change leads to another key."""
    matters = set()
    for axis, path in enumerate(paths):
        groups: dict[tuple[str, ...], set[str]] = {}
        for point, key in keys.items():
            groups.setdefault(point[:axis] + point[axis + 1 :], set()).add(key)
        if any(len(group) > 1 for group in groups.values()):
            matters.add(path)
    return matters
