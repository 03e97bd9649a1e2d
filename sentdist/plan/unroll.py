"""How a recipe becomes trials: every grid point, method, seed and fold ends in one Scores stage, and equal stages have equal keys."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from sentdist.errors import RecipeError, counted
from sentdist.plan.builder import Builder
from sentdist.plan.corpus_sizes import CorpusSizes
from sentdist.plan.dotted import short_names
from sentdist.plan.grid import grid_points, paths_that_matter, recipe_at
from sentdist.plan.left_over import left_over_at_all
from sentdist.plan.own_rows import for_its_rows
from sentdist.plan.recipe import Recipe
from sentdist.plan.resolver import Resolver
from sentdist.plan.stage import Json, Stage, topological
from sentdist.plan.stages import Scores, Train
from sentdist.plan.wording import value_text


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One cell of a sweep: a method at a grid point, with a seed and a fold; two cells are one if their scores have one key."""

    method: str
    title: str
    params: tuple[tuple[str, Json], ...]  # the grid values that make a difference to this method
    seed: int | None  # None: no seed changes it (an untouched checkpoint)
    fold: int | None
    scores: Scores

    @classmethod
    def of(cls, recipe: Recipe, method: str, params: Iterable[tuple[str, Json]], scores: Scores, *, fold: int | None = None) -> Trial:
        title = recipe.methods[method].title or method
        seed = scores.encoder.seed if isinstance(scores.encoder, Train) else None
        return cls(method=method, title=title, params=tuple(params), seed=seed, fold=fold, scores=scores)

    @property
    def key(self) -> str:
        return self.scores.key

    @property
    def cell(self) -> str:
        """Method and grid values without seed and fold: what a report averages over."""
        names = short_names([[name for name, _ in self.params]])
        values = ", ".join(f"{names[name]}={value_text(value)}" for name, value in self.params)
        return f"{self.title} ({values})" if values else self.title

    @property
    def name(self) -> str:
        seed = "" if self.seed is None else f" · seed {self.seed}"
        return self.cell + seed + ("" if self.fold is None else f" · fold {self.fold}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A recipe unrolled: its trials and, through them, all stages."""

    recipe: Recipe
    trials: tuple[Trial, ...]
    rows: dict[str, int]  # see `CorpusSizes`
    tokens: dict[str, float] = field(default_factory=dict)  # see there
    notes: tuple[str, ...] = ()  # what was found out about own files, which methods are not for them, what could not be looked at

    def __repr__(self) -> str:  # a notebook would show pages
        return f"Plan({self.recipe.name!r}, {counted(len(self.trials), 'trial')}, {counted(len(self.stages), 'stage')})"

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage, each once, inputs before users."""
        return topological(tuple(trial.scores for trial in self.trials))

    @cached_property
    def mentions(self) -> Counter[str]:
        """How many trials need each stage, by key: what would be built without sharing."""
        return Counter(stage.key for trial in self.trials for stage in topological((trial.scores,)))


def unroll(recipe: Recipe, resolver: Resolver) -> Plan:
    """Turn a recipe into its trials.

    Raises:
        RecipeError, DataError, EncoderError: what can be known to be wrong before any work starts.
    """
    recipe, own_notes = for_its_rows(recipe, resolver)
    sizes = CorpusSizes()
    remarked: dict[str, None] = {}
    scored: dict[tuple[str, str], tuple[dict[str, Json], int | None, Scores]] = {}
    varying: dict[str, set[str]] = {name: set() for name in recipe.methods}
    keys_at: dict[tuple[str, int, int | None], dict[tuple[str, ...], str]] = {}
    points: list[Recipe] = []
    for point in grid_points(recipe):
        at_point = recipe_at(recipe, point)
        points.append(at_point)
        builder = Builder(at_point, resolver, sizes)
        for name, seed, fold in itertools.product(recipe.methods, recipe.seeds, builder.folds):
            if not recipe.methods[name].reported:
                continue
            scores = builder.scores(name, seed=seed, fold=fold)
            scored.setdefault((name, scores.key), (point, fold, scores))
            keys_at.setdefault((name, seed, fold), {})[tuple(map(repr, point.values()))] = scores.key
        remarked |= builder.remarks
    for (name, _, _), keys in keys_at.items():
        varying[name] |= paths_that_matter(tuple(recipe.sweep), keys)
    for path, values in recipe.sweep.items():
        if len(values) > 1 and not any(path in paths for paths in varying.values()):
            raise RecipeError(
                where=f"sweep.{path}", found=f"{len(values)} values that lead to the same stages",
                expected="values of which each changes a result", remedy="Drop the line; what may not change a result stands in runtime.",
            )  # fmt: skip
    trials = tuple(
        Trial.of(recipe, name, ((path, value) for path, value in point.items() if path in varying[name]), scores, fold=fold)
        for (name, _), (point, fold, scores) in scored.items()
    )
    remarked |= dict.fromkeys(left_over_at_all(points))
    order = {name: place for place, name in enumerate(recipe.methods)}
    ordered = tuple(sorted(trials, key=lambda trial: order[trial.method]))
    return Plan(recipe=recipe, trials=ordered, rows=sizes.rows, tokens=sizes.tokens, notes=(*own_notes, *resolver.notes, *remarked))
