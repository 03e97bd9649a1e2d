"""A search that hosts and this process carry out alike: as many trials as Optuna needs before it suggests by the results reported to it."""

from __future__ import annotations

from pathlib import Path

from sentdist.plan.stage import Json
from sentdist.plan.suggestions import PlannedSearch
from sentdist.stages.context import Context
from tests.support.tiny_search import tiny_search


def small_search(store: Path) -> tuple[PlannedSearch, Context]:
    """Planned, with `encoder` and `data` beside the folder of the store."""
    changes: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
    changes["runtime"] = {"engine": "torch", "workers": 1, "cpus_per_worker": 1}
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    place = store.parent
    return tiny_search(place / "encoder", place / "data", store, changes=changes, suggest="tpe", samples=12, space=space)
