"""The recipes that `sentdist train` and `tune` write for a person's own file: default settings, and a space around them."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sentdist.errors import RecipeError
from sentdist.plan.dotted import with_path
from sentdist.plan.specs import Shape
from sentdist.plan.stage import Json, slug
from sentdist.plan.wording import not_one_of

UNITS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}
LEAST_MINUTES = 1  # loading an encoder and the first trial take tens of seconds
RATES: Json = {"choice": [1e-5, 2e-5, 5e-5, 1e-4]}
EPOCHS: Json = {"choice": [1, 2, 3]}
TEMPERATURES: Json = {"choice": [0.02, 0.05, 0.1]}
BATCHES = (16, 32, 64)
# The encoders that RCL's banks come from. One rate and one batch, so that all suggestions share them.
ENTROPY: dict[str, Json] = {
    "objective": {"name": "entropy", "phi": 0.01, "temperature": 0.05},
    "training": {"learning_rate": 2e-5, "batch_size": BATCHES[0]},
    "select": False,
    "reported": False,
}


@dataclass(frozen=True, kw_only=True)
class Tunable:
    """A method: for rows of which shapes, and which of its own fields are tried, beside the learning rate.

    space: by field of the method. phis: of the entropy encoders whose banks it reads; None: it reads none. asked: only by name, for a
    trial takes several trainings.
    """

    title: str
    shapes: tuple[Shape, ...]
    objective: dict[str, Json]
    space: dict[str, Json]
    phis: tuple[float, ...] | None = None
    asked: bool = False


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
    """Hours in "30m", "2h", "90s", "1.5h" or "1d".

    Raises:
        RecipeError: no such time, or less than a minute.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", budget)
    if found is None or not 0 < float(found[1]) < math.inf:
        raise RecipeError(
            where="--budget", found=budget, expected="a time such as 30m, 2h or 90s", remedy="Write a number and s, m, h or d."
        )
    hours = float(found[1]) * UNITS[found[2]]
    if 60 * hours < LEAST_MINUTES:
        raise RecipeError(
            where="--budget",
            found=budget,
            expected="a minute or more",
            remedy="Raise it: in less no method has a trial, so nothing is chosen.",
        )
    return hours


def methods_for(shape: Shape, wanted: Sequence[str]) -> dict[str, Tunable]:
    """The methods for rows of a shape: those of the default space, or those that are named.

    Raises:
        RecipeError: a name of none of them.
    """
    fitting = {name: one for name, one in TUNABLE.items() if shape in one.shapes}
    for name in wanted:
        if name not in fitting:
            raise RecipeError(where="--methods", found=not_one_of(name, tuple(fitting)), expected="", remedy=f"The rows are {shape}.")
    return {name: one for name, one in fitting.items() if (name in wanted if wanted else not one.asked)}


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What a person asks `sentdist train` or `tune` for, and what is known of the file.

    num_rows: that train; num_apart: of them without a text in common, as those of a batch are, at most. corpus: what a person said of
    the file. held_out: of the final trainings, which need no dev rows. encoders: checkpoint and commit; each has its own methods, so that
    all get the same number of trials. poolings: of those that declare another than the mean. hours: of the budget. trials: of each method
    at most; None: as many as the budget has time for.
    """

    command: Literal["train", "tune"] = "tune"
    name: str
    file: str
    shape: Shape
    num_rows: int
    num_apart: int
    corpus: dict[str, Json]
    held_out: Mapping[str, Json]
    encoders: Sequence[tuple[str, str | None]]
    hours: float = 0.0
    poolings: Mapping[str, str] = field(default_factory=dict)
    trials: int | None = None
    methods: Sequence[str] = ()
    max_length: int = 128

    @property
    def recipe_name(self) -> str:
        """The name of the recipe and of its sweep."""
        return slug(self.name).replace(".", "-")

    @property
    def methods_tried(self) -> dict[str, Tunable]:
        """RecipeError as `methods_for`."""
        return methods_for(self.shape, self.methods)

    @property
    def default_method(self) -> str:
        """The method of the first training, of the first encoder."""
        return f"{next(iter(self.methods_tried))}{_places(self)[0].suffix}"

    def untouched_of(self, method: str) -> str:
        """The row of the encoder that a method trains, as it was."""
        suffix = next(one.suffix for one in _places(self) if not one.suffix or method.endswith(one.suffix))
        return f"untouched{suffix}"

    @property
    def default_training(self) -> dict[str, Json]:
        """The settings of the first training. Contrastive losses gain by large batches, which take a higher rate; graded pairs by steps."""
        batch = self.batch_sizes[0 if self.shape == "graded" else -1]
        rate = 5e-5 if batch == BATCHES[-1] else 2e-5
        return {"batch_size": batch, "epochs": 1, "learning_rate": rate, "max_length": self.max_length}

    @property
    def batch_sizes(self) -> list[int]:
        """Those to try: four batches an epoch at least, of rows that share no text.

        Raises:
            RecipeError: fewer rows than the smallest batch.
        """
        least = BATCHES[0]
        if self.num_rows < least:
            raise RecipeError(
                where=self.file, found=f"{self.num_rows} rows to train on", expected=f"{least} at least", remedy="Give more rows."
            )
        if self.num_apart < least:
            raise RecipeError(
                where=self.file, found=f"{self.num_apart} different texts in a column of the {self.num_rows} rows to train on",
                expected=f"{least} at least, for no two rows of a batch share a text", remedy="Give rows with other texts.",
            )  # fmt: skip
        return [size for size in BATCHES if size * 4 <= self.num_rows and size <= self.num_apart] or [least]


def training_values(
    asked: TuneRequest,
    *,
    method: str | None = None,
    suggestion: Mapping[str, Json] | None = None,
    seeds: Sequence[int] = (0,),
    limit: int | None = None,
) -> dict[str, Json]:
    """The values of the recipe that trains one method on all rows but those for test, beside the untouched encoders.

    method: None takes the default one for the rows, with the default settings. suggestion: values of the search's space. limit: training
    rows at most.

    Raises:
        RecipeError: as `methods_for` and `TuneRequest.batch_sizes`.
    """
    values = _values(asked, only=method or asked.default_method, limit=limit)
    for path, value in (suggestion or {}).items():
        values = with_path(values, path, value, where=path)
    corpus: dict[str, Json] = {"kind": "own", "file": asked.file, **asked.corpus, "held_out": dict(asked.held_out), **_limited(limit)}
    return values | {"corpus": corpus, "seeds": list(seeds)}


def search_values(asked: TuneRequest, *, limit: int | None = None) -> dict[str, Json]:
    """The values of the recipe that searches on dev rows.

    Raises:
        RecipeError: as `training_values`.
    """
    values, batches = _values(asked, limit=limit), asked.batch_sizes
    space: dict[str, Json] = {"training.learning_rate": RATES, "training.epochs": EPOCHS}
    if len(batches) > 1:
        space["training.batch_size"] = {"choice": [*batches]}
    for place in _places(asked):
        space |= _space_at(place, asked.methods_tried)
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
    """What both recipes share, with the default settings. only: a method; None: all."""
    rows: dict[str, Json] = {}
    for place in _places(asked):
        rows |= _rows_at(place, {name: one for name, one in asked.methods_tried.items() if only in (None, f"{name}{place.suffix}")})
    first = _choices(asked)[0]
    return {
        "name": asked.recipe_name,
        "about": f"sentdist {asked.command} {asked.file}: {asked.shape}, {', '.join(one.title for one in asked.methods_tried.values())}.",
        "encoder": {field: value for field, value in first.items() if value is not None},
        "corpus": {"kind": "own", "file": asked.file, **asked.corpus} | _limited(limit),
        "training": asked.default_training,
        "evaluation": {"tasks": ["own"], "max_length": asked.max_length},
        "seeds": [0],
        "baseline": next(iter(rows)),
        "methods": rows,
        "runtime": {"engine": "torch", "workers": 1, "cpus_per_worker": 1},
    }


def _limited(limit: int | None) -> dict[str, Json]:
    return {} if limit is None else {"limit": limit}


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where an encoder's methods stand in the recipe. suffix: of their names. of: the end of their titles. at: the encoder, where there are
    several."""

    suffix: str = ""
    of: str = ""
    at: dict[str, Json] = field(default_factory=dict)


def _choices(asked: TuneRequest) -> list[dict[str, Json]]:
    """The encoders as a recipe names them; their pooling is given where one of them has another than the mean."""
    return [
        {"checkpoint": name, "revision": revision, **({"pooling": asked.poolings.get(name, "mean")} if asked.poolings else {})}
        for name, revision in asked.encoders
    ]


def _places(asked: TuneRequest) -> list[_Place]:
    """One for each encoder."""
    choices = _choices(asked)
    if len(choices) == 1:
        return [_Place()]
    names = _short_names([str(one["checkpoint"]) for one in choices])
    return [
        _Place(suffix=f"-{number}", of=f", {name}", at={"encoder": one})
        for number, (name, one) in enumerate(zip(names, choices, strict=True), start=1)
    ]


def _rows_at(place: _Place, methods: Mapping[str, Tunable]) -> dict[str, Json]:
    """The encoder as it is, the one whose banks are read, and a row for each method."""
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


def _space_at(place: _Place, methods: Mapping[str, Tunable]) -> dict[str, Json]:
    """What is tried of each method's own fields."""
    return {f"methods.{name}{place.suffix}.{own}": copy.deepcopy(axis) for name, one in methods.items() for own, axis in one.space.items()}


def _short_names(checkpoints: Sequence[str]) -> list[str]:
    """As much of the end of each path as distinguishes all; of one that stands there twice (two commits), with its number."""
    parts = [checkpoint.rstrip("/").split("/") for checkpoint in checkpoints]
    for size in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-size:]) for one in parts]
        if len({*names}) == len(names):
            return names
    return [f"{one[-1]} ({number})" for number, one in enumerate(parts, start=1)]
