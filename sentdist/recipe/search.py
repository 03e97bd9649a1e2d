"""The `search:` section of a recipe: search space, sampler, budget and successive halving."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from sentdist.errors import brief
from sentdist.frozen import Frozen
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import not_one_of

METRIC: Literal["dev"] = "dev"
DIGITS = 6  # significant digits of a suggested number: each value has one spelling, so equal stages have equal keys
# Sections whose fields can be searched. The others set how an encoder is scored or where it is trained:
# suggestions that differ there cannot be compared on dev, or do not differ at all.
SEARCHABLE = ("encoder", "corpus", "corpora", "training", "targets", "methods")


class Axis(Frozen):
    """The values that one field may take: exactly one of `choice`, `uniform`, `log`, `integers`."""

    choice: Annotated[tuple[Json, ...], Field(min_length=1)] | None = None
    uniform: tuple[float, float] | None = None
    log: tuple[float, float] | None = None
    integers: tuple[int, int] | None = None  # both bounds included
    # Number of values at equal distances (of logarithms under `log`), bounds included: suggestions then repeat and share stages.
    steps: Annotated[int, Field(ge=2)] | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Axis:
        given = [name for name in ("choice", "uniform", "log", "integers") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"found {' and '.join(given) or 'none of them'}; expected one of choice, uniform, log, integers")
        if self.choice is not None and len({json.dumps(value) for value in self.choice}) < len(self.choice):
            raise ValueError(f"choice: found {brief(list(self.choice))}; expected each value once")
        bounds = self.uniform or self.log or self.integers
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"{given[0]}: found {brief(list(bounds))}; expected the lower bound first")
        if self.log is not None and self.log[0] <= 0:
            raise ValueError(f"log: found {self.log[0]:g}; expected bounds above 0")
        if self.steps is not None and self.uniform is None and self.log is None:
            raise ValueError(f"steps: has no effect on {given[0]}; leave it out")
        return self

    @property
    def values(self) -> tuple[Json, ...] | None:
        """All values in order; None for a continuous axis."""
        if self.choice is not None:
            return self.choice
        if self.integers is not None:
            return tuple(range(self.integers[0], self.integers[1] + 1))
        return None if self.steps is None else tuple(self.at(place / (self.steps - 1)) for place in range(self.steps))

    def at(self, share: float) -> float:
        """Return the number at a share (0 to 1) of the way between the bounds of `uniform` or `log`."""
        bounds = self.uniform or self.log
        assert bounds is not None, "not for choices and integers"
        if share in (0.0, 1.0):
            return bounds[int(share)]
        if self.log is None:
            return short(bounds[0] + share * (bounds[1] - bounds[0]))
        return short(math.exp(math.log(bounds[0]) + share * (math.log(bounds[1]) - math.log(bounds[0]))))

    @property
    def samples(self) -> tuple[Json, ...]:
        """Representative values: every choice; of numbers both bounds and one between them."""
        values = self.values
        if values is None:
            return (self.at(0.0), self.at(0.5), self.at(1.0))
        return values if self.choice is not None or len(values) < 3 else (values[0], values[len(values) // 2], values[-1])

    @property
    def line(self) -> str:
        """The values as text for users."""
        if self.choice is not None:
            return f"one of {', '.join(brief(value) for value in self.choice)}"
        if self.integers is not None:
            return f"{self.integers[0]} to {self.integers[1]}"
        bounds = self.uniform or self.log
        assert bounds is not None
        how = "" if self.log is None else ", logarithmic"
        return f"{bounds[0]:g} to {bounds[1]:g}{how}" + ("" if self.steps is None else f", {self.steps} steps")


class Halving(Frozen):
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934): at each rung, the best trials of a method are promoted."""

    # Shares of the steps of a training, the last one 1.
    rungs: Annotated[tuple[Annotated[float, Field(gt=0.0, le=1.0)], ...], Field(min_length=2)] = (0.1, 0.3, 1.0)
    # A training continues after a rung if its dev score is in this best share of its method's scores at that rung so far.
    keep: Annotated[float, Field(gt=0.0, lt=1.0)] = 1 / 3

    @model_validator(mode="after")
    def _rungs_rise(self) -> Halving:
        if any(low >= high for low, high in itertools.pairwise(self.rungs)) or self.rungs[-1] != 1.0:
            raise ValueError(f"rungs: found {list(self.rungs)}; expected increasing shares of a training, the last one 1")
        return self


class Budget(Frozen):
    """Limits of a search; it ends at the first one reached."""

    # Of running time of all submissions; when they are over no new trial starts. Finalists come after.
    hours: Annotated[float, Field(gt=0.0)] | None = None
    samples: Annotated[int, Field(ge=1)] | None = None  # trials of all methods together
    # Trained on, of all methods together, entropy encoders included; stages that were in the store before cost nothing.
    sentences: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Budget:
        if self == Budget.model_construct():
            raise ValueError("found nothing; expected hours, samples or sentences")
        return self


class Search(Frozen):
    """A search: each trained and reported method gets the same number of trials, its own suggestions and its own finalists.

    A trial trains a method with the recipe's first seed. Its score is the best dev score of the recipe's selection so far.
    """

    suggest: Literal["grid", "random", "quasi_random", "tpe"] = "tpe"
    samples: Annotated[int, Field(ge=1)] | None = None  # trials per method; None: until the budget ends, or the whole grid
    space: Annotated[dict[str, Axis], Field(min_length=1)]
    metric: Literal["dev"] = METRIC  # the score by which the selection chooses
    halving: Halving | None = None
    budget: Budget | None = None
    finalists: Annotated[int, Field(ge=1)] = 1  # per method: the best on dev, trained with all seeds; only they are scored on test
    seed: Annotated[int, Field(ge=0)] = 0  # of the sampler

    def size(self, fields: Sequence[str]) -> int | None:
        """Return the number of different suggestions for these fields of the space; None if unlimited."""
        values = [self.space[field].values for field in fields]
        return None if any(one is None for one in values) else math.prod(len(one) for one in values if one is not None)

    @field_validator("metric", mode="before")
    @classmethod
    def _is_of_dev(cls, metric: object) -> object:
        if metric != METRIC:
            raise ValueError(
                f'found "{metric}"; expected {METRIC}, the score by which selection chooses: after a choice on a test set '
                "its score is no test score any more"
            )
        return metric

    @model_validator(mode="after")
    def _comes_to_an_end(self) -> Search:
        for path, axis in self.space.items():
            if path.partition(".")[0] not in SEARCHABLE or "." not in path:
                raise ValueError(f"space.{path}: {not_one_of(path.partition('.')[0], SEARCHABLE)} Name a field below one of them")
            if self.suggest == "grid" and axis.values is None:
                raise ValueError(f"space.{path}: has unlimited values; expected steps, a choice or integers for a grid")
        if self.suggest == "grid" and self.samples is not None:
            raise ValueError("samples: has no effect on a grid, which is tried completely; leave it out, or use another suggest")
        if self.suggest != "grid" and self.samples is None and self.budget is None:
            raise ValueError("samples: found neither samples nor a budget; expected one of them, otherwise the search would not end")
        return self

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of a training at which trials are compared; the last one is 1."""
        return (1.0,) if self.halving is None else self.halving.rungs


def short(value: float) -> float:
    """Round a number to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")
