"""Made-up searches whose best settings are known: records without a training."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sentdist.recipe.search import Search
from sentdist.recipe.stage import Json
from sentdist.store.searches import Finalist, SearchRecord, SearchRung, SearchTrial, TrialState

SPACE: dict[str, Json] = {
    "training.learning_rate": {"log": [1e-6, 1e-4], "steps": 9},
    "methods.rcl.phis": {"choice": [[0.01], [0.01, 0.02], [-0.1, 0.1]]},
    "methods.rcl.objective.regulator_weight": {"uniform": [0.0, 1.0]},
}
FIELDS = {"fine_tuned": ("training.learning_rate",), "rcl": tuple(SPACE)}
SENTENCES = 120_000  # of a whole training


def made_up_recipe(methods: Mapping[str, tuple[str, ...]] = FIELDS, **changes: Json) -> dict[str, Json]:
    """The values of a recipe with a search."""
    titles = {"fine_tuned": "Eq. 1", "rcl": "RCL"}
    return {
        "name": "tuned",
        "about": "Does RCL help when both methods are tuned alike?",
        "selection": {"task": "stsb-dev"},
        "seeds": [0, 1, 2],
        "methods": {name: {"title": titles.get(name, name), "objective": {"name": "info_nce"}} for name in methods},
        "search": {
            "suggest": "random", "samples": 24, "space": SPACE, "halving": {"rungs": [0.1, 0.3, 1.0]}, "finalists": 2, **changes,
        },
    }  # fmt: skip


def made_up_search(
    *, samples: int = 24, seed: int = 0, gain: float = 0.8, methods: Mapping[str, tuple[str, ...]] = FIELDS, failing: int = 1,
    finalists: tuple[Finalist, ...] = (), **changes: Json,
) -> SearchRecord:  # fmt: skip
    """Random suggestions and what came of them. The best rate is 3e-5; φ sets and weights add points (a φ set up to `gain`).

    failing: of the trials at the greatest rate that a method fails so many diverge. changes: of the recipe's `search`.
    """
    recipe = made_up_recipe(methods, samples=samples, **changes)
    search = Search.model_validate(recipe["search"])
    random = np.random.default_rng(seed)
    trials: list[SearchTrial] = []
    seen: dict[tuple[str, float], list[float]] = {}
    for number, method in enumerate([*methods] * samples):
        suggestion: dict[str, Json] = {}
        for path in methods[method]:
            values = search.space[path].values
            suggestion[path] = search.space[path].at(random.uniform()) if values is None else values[random.integers(len(values))]
        state: TrialState = "finished"
        rungs: list[SearchRung] = []
        for share in search.shares:
            if failing and number % 17 == 7 and share > 0.2:
                state = "failed"
                break
            dev = 76 + _worth(suggestion, gain) + random.normal(0, 0.12) - 2.5 * (1 - share) ** 2
            total = int(SENTENCES * share)
            rungs.append(SearchRung(share=share, step=total // 192, dev=dev, last_dev=dev - 0.05, sentences=total, seconds=total / 400))
            rivals = seen.setdefault((method, share), [])
            rivals.append(dev)
            if share < 1.0 and sum(other > dev for other in rivals) >= max(1, len(rivals) * (1 / 3)):
                state = "pruned"
                break
        error = "TrainingDiverged: the loss is nan" if state == "failed" else None
        trials.append(
            SearchTrial(
                number=number, method=method, suggestion=suggestion, train=f"{number:012x}", state=state, rungs=tuple(rungs), error=error,
                began=60.0 * number, ended=60.0 * (number + 1),
            )
        )  # fmt: skip
    return SearchRecord(
        name="tuned", identity="made up", recipe=recipe, methods=dict(methods), began=0.0, trials=tuple(trials), finalists=finalists,
        reason=f"all {samples} samples of each method were tried" if finalists else None, spent_s=60.0 * len(trials),
    )  # fmt: skip


def _worth(suggestion: Mapping[str, Json], gain: float) -> float:
    rate, phis, weight = (suggestion.get(path) for path in SPACE)
    points = 0.0 if rate is None else -1.6 * (math.log10(float(str(rate))) + 4.5) ** 2
    if phis is not None:
        points += gain * {1: 0.5, 2: 1.0}[len(phis)] * (0.3 if phis[0] < 0 else 1.0)  # type: ignore[arg-type, index, operator]
    return points + (0.0 if weight is None else 0.3 * float(str(weight)))
