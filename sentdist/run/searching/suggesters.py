"""Suggest trials by Ray Tune's searchers (grid, random, quasi-random, TPE), one for each method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from ray import tune
from ray.tune.result import TRAINING_ITERATION
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import generate_variants

from sentdist.errors import ResourceError
from sentdist.recipe.search import Axis, short
from sentdist.recipe.stage import Json

SCORE = "dev_score"  # reported by trials; the objective of the search
MODE = "max"


def tune_domain(axis: Axis) -> Any:
    """Return a field's values as a Tune domain. Ordered values that are not a range are searched by index, which keeps neighbours near."""
    values = axis.values
    if axis.choice is not None:
        return tune.choice(list(range(len(axis.choice))))
    if values is not None:
        return tune.randint(0, len(values))
    if axis.log is not None:
        return tune.loguniform(*axis.log)
    assert axis.uniform is not None
    return tune.uniform(*axis.uniform)


def value_at(axis: Axis, found: Any) -> Json:
    """Return the value of a field for a searcher's answer."""
    values = axis.values
    return short(float(found)) if values is None else values[int(found)]


class TunedSuggester:
    """Suggests trials of one method by a Tune searcher, and reports their scores to it by name.

    Args:
        axes: searched fields, by path.
        first: values that TPE tries first, if each is on its axis.
    """

    def __init__(self, axes: Mapping[str, Axis], *, suggest: str, seed: int, first: Mapping[str, Json] | None = None) -> None:
        self._axes = dict(axes)
        self.searcher = _searcher(self._axes, suggest=suggest, seed=seed, first=first or {})

    def ask(self, name: str) -> dict[str, Json] | None:
        """Return a suggestion, whose score is reported under `name`; None if there are no more."""
        if not self._axes:
            return {}
        found = self.searcher.suggest(name)
        return None if found is None else {path: value_at(axis, found[path]) for path, axis in self._axes.items()}

    def tell(self, name: str, score: float, *, rung: int) -> None:
        """Report a trial's score at a rung (numbered from 1)."""
        if self._axes:
            self.searcher.on_trial_result(name, {SCORE: score, TRAINING_ITERATION: rung})

    def end(self, name: str, score: float | None, *, is_pruned: bool = False) -> None:
        """Report the end of a trial: with its score, pruned, or (neither) failed."""
        if not self._axes:
            return
        result = None if score is None or is_pruned else {SCORE: score}
        self.searcher.on_trial_complete(name, result, error=score is None and not is_pruned)


def _searcher(axes: Mapping[str, Axis], *, suggest: str, seed: int, first: Mapping[str, Json]) -> Searcher:
    space = {path: tune_domain(axis) for path, axis in axes.items()}
    match suggest:
        case "grid":
            return _Variants({path: tune.grid_search(list(range(len(axis.values or ())))) for path, axis in axes.items()}, seed=seed)
        case "random":
            return _Variants(space, seed=seed)
        case "quasi_random":
            return _QuasiRandom(axes, seed=seed)
        case "tpe":
            places = {path: axis.values.index(first[path]) for path, axis in axes.items() if axis.values and first.get(path) in axis.values}
            return _tpe(space, seed=seed, first=places if len(places) == len(axes) else None)
    raise TypeError(f"unknown suggester {suggest}")


class _Variants(Searcher):
    """Draws of Tune's BasicVariantGenerator, one at a time. That class makes trials itself and cannot be used for one method."""

    def __init__(self, space: dict[str, Any], *, seed: int) -> None:
        super().__init__(metric=SCORE, mode=MODE)
        self._variants = self._drawn(space, np.random.RandomState(seed))
        self._is_over = False

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return next(self._variants, None)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...

    @staticmethod
    def _drawn(space: dict[str, Any], draw: np.random.RandomState) -> Iterator[dict[str, Any]]:
        is_grid = any("grid_search" in one for one in space.values() if isinstance(one, dict))
        while True:
            for _, found in generate_variants({"config": space}, random_state=draw):
                yield found["config"]
            if is_grid:
                return


class _QuasiRandom(Searcher):
    """Points of a scrambled Sobol sequence: they fill the space more evenly than random ones (Bergstra and Bengio 2012)."""

    def __init__(self, axes: Mapping[str, Axis], *, seed: int) -> None:
        from scipy.stats import qmc

        super().__init__(metric=SCORE, mode=MODE)
        self._axes = dict(axes)
        self._points = qmc.Sobol(d=max(1, len(self._axes)), scramble=True, rng=np.random.default_rng(seed))

    def suggest(self, trial_id: str) -> dict[str, Any]:
        (point,) = self._points.random(1)
        return {path: self._at(axis, float(share)) for (path, axis), share in zip(self._axes.items(), point, strict=True)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...

    @staticmethod
    def _at(axis: Axis, share: float) -> float:
        values = axis.values
        return axis.at(share) if values is None else min(int(share * len(values)), len(values) - 1)


def _tpe(space: dict[str, Any], *, seed: int, first: dict[str, int] | None) -> Searcher:
    """Optuna's tree-structured Parzen estimator (Bergstra et al. 2011). Running trials count as bad: concurrent ones spread out."""
    try:
        import optuna
        from ray.tune.search.optuna import OptunaSearch
    except ImportError:
        raise ResourceError(
            where="search.suggest: tpe", found="no Optuna", expected="the package optuna",
            remedy="Install it with `pip install optuna`, or suggest at random.",
        ) from None  # fmt: skip
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found: Searcher = OptunaSearch(
        OptunaSearch.convert_search_space(space),
        metric=SCORE,
        mode=MODE,
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        points_to_evaluate=None if first is None else [first],
    )
    return found
