"""Write the recipes of `sentdist train` and `tune` for a user file: default settings, and a search space around them."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sentdist.errors import RecipeError
from sentdist.recipe.dotted import with_path
from sentdist.recipe.specs import Shape
from sentdist.recipe.stage import Json, slug
from sentdist.recipe.wording import not_one_of

UNITS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}
LEAST_MINUTES = 1  # loading an encoder and running the first trial take tens of seconds
RATES: Json = {"choice": [1e-5, 2e-5, 5e-5, 1e-4]}
EPOCHS: Json = {"choice": [1, 2, 3]}
TEMPERATURES: Json = {"choice": [0.02, 0.05, 0.1]}
BATCHES = (16, 32, 64)
# The entropy encoders for the banks of RCL. One rate and one batch size, so that all suggestions share them.
ENTROPY: dict[str, Json] = {
    "objective": {"name": "entropy", "phi": 0.01, "temperature": 0.05},
    "training": {"learning_rate": 2e-5, "batch_size": BATCHES[0]},
    "select": False,
    "reported": False,
}


@dataclass(frozen=True, kw_only=True)
class Tunable:
    """A method that `train` and `tune` can use."""

    title: str
    shapes: tuple[Shape, ...]  # of the rows it is for
    objective: dict[str, Json]
    space: dict[str, Json]  # field of the method -> axis, in addition to the settings of training
    phis: tuple[float, ...] | None = None  # of the entropy encoders whose banks it reads; None: it reads none
    asked: bool = False  # only if named by the user: a trial takes several trainings


CONTRASTIVE: tuple[Shape, ...] = ("pairs", "faq", "triplets")
TUNABLE: dict[str, Tunable] = {
    "contrastive": Tunable(
        title="Contrastive", shapes=CONTRASTIVE, objective={"name": "info_nce", "temperature": 0.05},
        space={"objective.temperature": TEMPERATURES}
    ),
    "symmetric": Tunable(
        title="Contrastive, both directions", shapes=CONTRASTIVE, objective={"name": "symmetric_info_nce", "temperature": 0.05},
        space={"objective.temperature": TEMPERATURES},
    ),
    "margin": Tunable(
        title="Triplet margin", shapes=("triplets",), objective={"name": "triplet", "distance": "cosine", "margin": 0.2},
        space={"objective.margin": {"choice": [0.1, 0.2, 0.4]}},
    ),
    "rcl": Tunable(
        title="RCL", shapes=CONTRASTIVE, phis=(0.01,), asked=True,
        objective={"name": "rcl", "temperature": 0.05, "regulator_temperature": 0.3, "regulator_weight": 0.1},
        space={
            "objective.temperature": TEMPERATURES, "objective.regulator_weight": {"choice": [0.03, 0.1, 0.3]},
            "phis": {"choice": [[0.01], [0.01, 0.02], [-0.1, 0.1]]},
        },
    ),
    "ranking": Tunable(title="CoSENT", shapes=("graded",), objective={"name": "cosent"},
        space={"objective.temperature": {"choice": [0.025, 0.05, 0.1]}}),
    "regression": Tunable(title="Regression", shapes=("graded",), objective={"name": "regression", "loss": "mse"}, space={}),
}  # fmt: skip


def hours_of(budget: str) -> float:
    """Parse a time such as "30m", "2h", "90s", "1.5h" or "1d" to hours.

    Raises:
        RecipeError: no valid time, or less than a minute, in which no trial finishes.
    """
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d+)?)\s*([smhd])\s*", budget)
    hours = 0.0 if found is None else float(found[1]) * UNITS[found[2]]
    if 60 * hours < LEAST_MINUTES:
        expected = "a minute or more, such as 30m, 2h or 90s"
        raise RecipeError(where="--budget", found=budget, expected=expected, remedy="Write a number and s, m, h or d.")
    return hours


def methods_for(shape: Shape, wanted: Sequence[str]) -> dict[str, Tunable]:
    """Return the methods for rows of a shape: the default ones, or those in `wanted`.

    Raises:
        RecipeError: a name of no method for this shape.
    """
    fitting = {name: one for name, one in TUNABLE.items() if shape in one.shapes}
    for name in wanted:
        if name not in fitting:
            raise RecipeError(where="--methods", found=not_one_of(name, tuple(fitting)), expected="", remedy=f"The rows are {shape}.")
    return {name: one for name, one in fitting.items() if (name in wanted if wanted else not one.asked)}


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """The request to `sentdist train` or `tune`, and the facts on the file."""

    command: Literal["train", "tune"] = "tune"
    name: str
    file: str
    shape: Shape
    num_rows: int  # training rows
    num_apart: int  # largest set of training rows without a text in common: the largest possible batch
    corpus: dict[str, Json]  # what the user has set for the file
    held_out: Mapping[str, Json]  # of the final trainings, which need no dev rows
    encoders: Sequence[tuple[str, str | None]]  # (checkpoint, commit); each has separate methods, so that all get as many trials
    hours: float = 0.0  # of the budget
    poolings: Mapping[str, str] = field(default_factory=dict)  # of encoders that declare another than mean
    trials: int | None = None  # maximum per method; None: as many as fit the budget
    methods: Sequence[str] = ()
    max_length: int = 128  # tokens

    @property
    def recipe_name(self) -> str:
        """The name of the recipe and of its sweep."""
        return slug(self.name).replace(".", "-")

    @property
    def methods_tried(self) -> dict[str, Tunable]:
        """The methods to try; raises RecipeError as `methods_for`."""
        return methods_for(self.shape, self.methods)

    @property
    def default_method(self) -> str:
        """The method of the first training, with the first encoder."""
        return f"{next(iter(self.methods_tried))}{_places(self)[0].suffix}"

    def untouched_of(self, method: str) -> str:
        """Return the name of the row for the untouched encoder of a method."""
        suffix = next(one.suffix for one in _places(self) if not one.suffix or method.endswith(one.suffix))
        return f"untouched{suffix}"

    @property
    def default_training(self) -> dict[str, Json]:
        """Settings of the first training: large batches and a higher rate for contrastive losses, small batches for graded pairs."""
        batch = self.batch_sizes[0 if self.shape == "graded" else -1]
        rate = 5e-5 if batch == BATCHES[-1] else 2e-5
        return {"batch_size": batch, "epochs": 1, "learning_rate": rate, "max_length": self.max_length}

    @property
    def batch_sizes(self) -> list[int]:
        """Batch sizes to try: at least four batches per epoch, of rows without a text in common.

        Raises:
            RecipeError: fewer rows than the smallest batch.
        """
        least = BATCHES[0]
        if min(self.num_rows, self.num_apart) < least:
            found = f"{self.num_rows} rows to train on, {self.num_apart} without a text in common"
            expected = f"at least {least}: no two rows of a batch share a text"
            raise RecipeError(where=self.file, found=found, expected=expected, remedy="Add rows with other texts.")
        return [size for size in BATCHES if size * 4 <= self.num_rows and size <= self.num_apart] or [least]


def training_values(
    asked: TuneRequest,
    *,
    method: str | None = None,
    suggestion: Mapping[str, Json] | None = None,
    seeds: Sequence[int] = (0,),
    limit: int | None = None,
) -> dict[str, Json]:
    """Return the values of the recipe that trains one method on all rows except the test rows, and scores the untouched encoders.

    Args:
        method: None: the default one for the rows.
        suggestion: Values of the search space; None: the default settings.
        limit: Maximum number of training rows.

    Raises:
        RecipeError: as `methods_for` and `TuneRequest.batch_sizes`.
    """
    values = _values(asked, only=method or asked.default_method, limit=limit)
    for path, value in (suggestion or {}).items():
        values = with_path(values, path, value, where=path)
    corpus: dict[str, Json] = {"kind": "own", "file": asked.file, **asked.corpus, "held_out": dict(asked.held_out)}
    corpus |= {} if limit is None else {"limit": limit}
    return values | {"corpus": corpus, "seeds": list(seeds)}


def search_values(asked: TuneRequest, *, limit: int | None = None) -> dict[str, Json]:
    """Return the values of the recipe that searches on the dev rows.

    Raises:
        RecipeError: as `training_values`.
    """
    values, batches = _values(asked, limit=limit), asked.batch_sizes
    space: dict[str, Json] = {"training.learning_rate": RATES, "training.epochs": EPOCHS}
    if len(batches) > 1:
        space["training.batch_size"] = {"choice": [*batches]}
    for place, (name, one) in itertools.product(_places(asked), asked.methods_tried.items()):
        space |= {f"methods.{name}{place.suffix}.{field}": axis for field, axis in one.space.items()}
    return values | {
        "name": f"{asked.recipe_name}-search",
        "selection": {"task": "own", "every_fraction": 0.5},
        "search": {
            "suggest": "tpe",
            **({} if asked.trials is None else {"samples": asked.trials}),
            "space": space,
            "halving": {"rungs": [0.5, 1.0], "keep": 0.5},
            "budget": {"hours": round(asked.hours, 4)},
        },
    }


def _values(asked: TuneRequest, *, only: str | None = None, limit: int | None) -> dict[str, Json]:
    """Return the values that both recipes share, with the default settings. only: a method; None: all."""
    rows: dict[str, Json] = {}
    for place in _places(asked):
        rows |= _rows_at(place, {name: one for name, one in asked.methods_tried.items() if only in (None, f"{name}{place.suffix}")})
    first = _choices(asked)[0]
    return {
        "name": asked.recipe_name,
        "about": f"sentdist {asked.command} {asked.file}: {asked.shape}, {', '.join(one.title for one in asked.methods_tried.values())}.",
        "encoder": {field: value for field, value in first.items() if value is not None},
        "corpus": {"kind": "own", "file": asked.file, **asked.corpus, **({} if limit is None else {"limit": limit})},
        "training": asked.default_training,
        "evaluation": {"tasks": ["own"], "max_length": asked.max_length},
        "seeds": [0],
        "baseline": next(iter(rows)),
        "methods": rows,
        "runtime": {"engine": "torch", "workers": 1, "cpus_per_worker": 1},
    }


@dataclass(frozen=True, kw_only=True)
class _Place:
    """How the methods of one encoder are written in the recipe."""

    suffix: str = ""  # of their names
    of: str = ""  # suffix of their titles
    at: dict[str, Json] = field(default_factory=dict)  # the encoder, if there are several


def _choices(asked: TuneRequest) -> list[dict[str, Json]]:
    """Return the encoders as recipe sections; with pooling if any of them declares another than mean."""
    return [
        {"checkpoint": name, "revision": revision, **({"pooling": asked.poolings.get(name, "mean")} if asked.poolings else {})}
        for name, revision in asked.encoders
    ]


def _places(asked: TuneRequest) -> list[_Place]:
    choices = _choices(asked)
    if len(choices) == 1:
        return [_Place()]
    names = _short_names([str(one["checkpoint"]) for one in choices])
    return [
        _Place(suffix=f"-{number}", of=f", {name}", at={"encoder": one})
        for number, (name, one) in enumerate(zip(names, choices, strict=True), start=1)
    ]


def _rows_at(place: _Place, methods: Mapping[str, Tunable]) -> dict[str, Json]:
    """Return the untouched encoder, the entropy encoder if a method needs one, and a row for each method."""
    rows: dict[str, Json] = {f"untouched{place.suffix}": {"title": f"Untouched{place.of or ' encoder'}", **copy.deepcopy(place.at)}}
    if any(one.phis for one in methods.values()):
        rows[f"entropy{place.suffix}"] = copy.deepcopy(ENTROPY | place.at)
    for name, one in methods.items():
        banks: dict[str, Json] = {} if one.phis is None else {"bank": f"entropy{place.suffix}", "phis": [*one.phis]}
        rows[f"{name}{place.suffix}"] = {
            "title": f"{one.title}{place.of}",
            **copy.deepcopy({"objective": one.objective} | place.at),
            **banks,
        }
    return rows


def _short_names(checkpoints: Sequence[str]) -> list[str]:
    """Return the shortest ends of paths that distinguish all; with numbers if a path occurs twice (two commits)."""
    parts = [checkpoint.rstrip("/").split("/") for checkpoint in checkpoints]
    for size in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-size:]) for one in parts]
        if len({*names}) == len(names):
            return names
    return [f"{one[-1]} ({number})" for number, one in enumerate(parts, start=1)]
