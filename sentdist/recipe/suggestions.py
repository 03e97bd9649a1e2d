"""Plan a search: find which fields affect which method, and turn suggestions into stages."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from sentdist.errors import RecipeError, counted, listed
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.search import Axis, Search
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import CorpusSizes, Scores, Train, chosen_and_scored
from sentdist.recipe.unroll import Builder, Plan, Trial, for_its_rows, recipe_at
from sentdist.recipe.wording import value_text

Suggestion = Mapping[str, Json]  # dotted field -> value


@dataclass(frozen=True, kw_only=True)
class PlannedSearch:
    """The planned search of a recipe."""

    recipe: Recipe
    search: Search
    resolver: Resolver
    fields: dict[str, tuple[str, ...]]  # searched method -> the fields of the space that affect it
    references: tuple[str, ...]  # other reported methods, scored once beside the finalists
    notes: tuple[str, ...]  # for the user, before the search starts
    rows: dict[str, int] = field(default_factory=dict)  # see `CorpusSizes`
    tokens: dict[str, float] = field(default_factory=dict)  # see `CorpusSizes`

    @property
    def methods(self) -> tuple[str, ...]:
        """The searched methods, in the order of the recipe."""
        return tuple(self.fields)

    def axes(self, method: str) -> dict[str, Axis]:
        """Return the part of the space that affects a method."""
        return {path: self.search.space[path] for path in self.fields[method]}

    def first(self, method: str) -> Suggestion:
        """Return a representative suggestion for a method, to check a budget or a cluster: the first value of each field."""
        return {path: axis.samples[0] for path, axis in self.axes(method).items()}

    @property
    def own_values(self) -> dict[str, Json]:
        """The values in the recipe of the fields of the space."""
        values: Any = self.recipe.model_dump(mode="json")
        return {
            path: reduce(lambda at, key: at.get(key) if isinstance(at, dict) else None, path.split("."), values)
            for path in self.search.space
        }

    def size(self, method: str) -> int | None:
        """Return the number of different suggestions for a method; None if unlimited."""
        return self.search.size(self.fields[method])

    def num_trials(self, method: str) -> int | None:
        """Return the maximum number of trials of a method; None: until the budget ends."""
        known = [limit for limit in (self.search.samples, self.size(method)) if limit is not None]
        return min(known, default=None)

    def train(self, method: str, suggestion: Suggestion, *, seed: int | None = None) -> Train:
        """Return the complete training of a suggestion.

        Args:
            seed: None: the first seed of the recipe.

        Raises:
            RecipeError: the values conflict.
        """
        found = self._builder(suggestion).train(method, seed=self.recipe.seeds[0] if seed is None else seed, fold=None, phi=None)
        assert found is not None, "searched methods are trained"
        return found

    def scores(self, method: str, suggestion: Suggestion, *, seed: int) -> Scores:
        """Return the test scores of a suggestion, or of a reference."""
        return self._builder(suggestion).scores(method, seed=seed, fold=None)

    def plan(self, finalists: Sequence[tuple[str, Suggestion]], *, seeds: Sequence[int] | None = None) -> Plan:
        """Return a plan of the references and the finalists (method, suggestion).

        Args:
            seeds: None: all seeds of the recipe.
        """
        wanted: list[tuple[str, Suggestion]] = [*((name, {}) for name in self.references), *finalists]
        order = {name: place for place, name in enumerate(self.recipe.methods)}
        trials: dict[str, Trial] = {}
        for (method, suggestion), seed in itertools.product(
            sorted(wanted, key=lambda one: order[one[0]]), self.recipe.seeds if seeds is None else seeds
        ):
            scores = self.scores(method, suggestion, seed=seed)
            trials.setdefault(scores.key, Trial.of(self.recipe, method, suggestion.items(), scores))
        return Plan(recipe=self.recipe, trials=tuple(trials.values()), rows=self.rows, tokens=self.tokens)

    @property
    def identity(self) -> str:
        """Digest of all that determines suggestions and their scores; samples, budget and finalists do not count."""
        search = self.search.model_dump(mode="json", exclude={"samples", "budget", "finalists"})
        first = {name: self.first(name) for name in self.methods}
        keys = {name: self.train(name, first[name]).key for name in self.methods}
        text = json.dumps([search, {name: list(fields) for name, fields in self.fields.items()}, keys], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _builder(self, suggestion: Suggestion) -> Builder:
        sizes = CorpusSizes(rows=self.rows, tokens=self.tokens)
        return Builder(recipe_at(self.recipe, suggestion, section="search.space"), self.resolver, sizes)


def searched(recipe: Recipe, resolver: Resolver) -> PlannedSearch:
    """Plan a search: find which fields affect which method, and check that all suggestions can be trained.

    Raises:
        RecipeError, DataError, EncoderError: an error that can be detected before any work starts.
    """
    recipe, own_notes = for_its_rows(recipe, resolver)
    search = recipe.search
    assert search is not None, "a recipe with `search:`"
    trained = [name for name, method in recipe.methods.items() if method.reported and method.objective is not None]
    sizes = CorpusSizes()
    builders = {
        spelt: Builder(recipe_at(recipe, point, section="search.space"), resolver, sizes) for spelt, point in _points(search.space).items()
    }
    keys = {spelt: dict(_keys(builder, trained)) for spelt, builder in builders.items()}
    remarked = dict.fromkeys(itertools.chain.from_iterable(builder.remarks for builder in builders.values()))
    fields = {name: tuple(path for path in search.space if _matters(path, name, search.space, keys)) for name in trained}
    for path, axis in search.space.items():
        if len(axis.samples) > 1 and not any(path in found for found in fields.values()):
            found, remedy = "values that lead to the same trainings", "Drop the line; settings that do not change results are in runtime."
            raise RecipeError(where=f"search.space.{path}", found=found, expected="a field that changes a training", remedy=remedy)
    planned = PlannedSearch(
        recipe=recipe,
        search=search,
        resolver=resolver,
        fields=fields,
        references=tuple(name for name, method in recipe.methods.items() if method.reported and method.objective is None),
        notes=(*own_notes, *resolver.notes, *remarked, *_notes(search, fields)),
        rows=sizes.rows,
        tokens=sizes.tokens,
    )
    _check_dev_is_not_test(planned)
    _check_rungs(planned)
    planned.plan([(name, planned.first(name)) for name in trained])  # checks the test scores before anything is trained
    return planned


def _points(space: Mapping[str, Axis]) -> dict[str, Suggestion]:
    """Return sample points of the space by spelling: each field at a few values, all others at their first, then at their last one."""
    return {_spelt(point): point for path in space for value in space[path].samples for point in _around(space, path, value)}


def _around(space: Mapping[str, Axis], path: str, value: Json) -> list[dict[str, Json]]:
    return [{other: axis.samples[end] for other, axis in space.items()} | {path: value} for end in (0, -1)]


def _spelt(point: Suggestion) -> str:
    return json.dumps(dict(point))


def _keys(builder: Builder, methods: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in methods:
        train = builder.train(name, seed=builder.recipe.seeds[0], fold=None, phi=None)
        assert train is not None
        yield name, train.key


def _matters(path: str, method: str, space: Mapping[str, Axis], keys: Mapping[str, dict[str, str]]) -> bool:
    """Return whether changing only this field changes the training of a method."""
    found = [[keys[_spelt(point)][method] for point in _around(space, path, value)] for value in space[path].samples]
    return any(len(set(of_end)) > 1 for of_end in zip(*found, strict=True))


def _notes(search: Search, fields: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for path in search.space:
        without = [name for name, found in fields.items() if path not in found]
        if without and not path.startswith("methods."):
            yield f"search.space.{path} has no effect on {listed(without)}: it adds no trials there."
    for name, found in fields.items():
        if not found:
            yield f"{name} has no field to search: one trial."


def _check_dev_is_not_test(planned: PlannedSearch) -> None:
    recipe = planned.recipe
    for name in planned.methods:
        scores = planned.scores(name, planned.first(name), seed=recipe.seeds[0])
        assert isinstance(scores.encoder, Train), "searched methods are trained"
        if both := chosen_and_scored(scores.encoder.selection, scores.tasks):
            raise RecipeError(
                where=f"{recipe.name}: selection.task",
                found=f"{both[0]}, which evaluation.tasks scores as a test set",
                expected="a dev set for a search",
                remedy="Select on other data than those reported, such as the dev split of the set.",
            )


def _check_rungs(planned: PlannedSearch) -> None:
    """Raise RecipeError if two rungs end at the same dev score."""
    recipe = planned.recipe
    assert recipe.selection is not None
    scores = max(1, round(1 / recipe.selection.every_fraction)) * recipe.training.epochs
    ends = [math.ceil(share * scores - 1e-9) for share in planned.search.shares]
    for (low, first), (high, second) in itertools.pairwise(zip(planned.search.shares, ends, strict=True)):
        if first == second:
            raise RecipeError(
                where=f"{recipe.name}: search.halving.rungs",
                found=f"{low:g} and {high:g}, with {counted(scores, 'dev score')} per training: both end at the same one",
                expected="rungs that end at different dev scores",
                remedy="Lower selection.every_fraction, or leave one out.",
            )


def suggestion_text(suggestion: Suggestion) -> str:
    """Return a suggestion as text: the last parts of its fields, and their values."""
    return ", ".join(f"{path.rpartition('.')[2]}={value_text(value)}" for path, value in suggestion.items()) or "as it is"
