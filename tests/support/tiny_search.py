"""A search over two methods of the tiny recipe, planned; its trainings take a second each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.suggestions import PlannedSearch, searched
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.store.searches import SearchRecord
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import Tracker
from tests.support.tiny_data import tiny_values

RATES: Json = {"log": [1e-4, 1e-2], "steps": 5}
PHIS: Json = {"choice": [[0.01], [0.02], [0.01, 0.02]]}
SEARCH: dict[str, Json] = {
    "suggest": "random",
    "samples": 3,
    "space": {"training.learning_rate": RATES, "methods.rcl.phis": PHIS},
    "halving": {"rungs": [0.3, 1.0], "keep": 0.5},
    "seed": 1,
}


def tiny_search(
    encoder: Path, data: Path, store: Path, *, changes: dict[str, Json] | None = None, **search: Json
) -> tuple[PlannedSearch, Context]:
    values = tiny_values(encoder, name="tiny", training={"batch_size": 8, "epochs": 1, "max_length": 20}, search=SEARCH | search)
    values["selection"] = {"task": "stsb-dev", "every_fraction": 0.33}
    values |= changes or {}
    recipe = recipe_from_values(values, where="tiny")
    resolver = FileResolver(data_root=data)
    planned = searched(recipe, resolver)
    runtime = recipe.runtime.model_copy(update={"engine": "torch"})
    return planned, Context(
        store=ArtifactStore(store), data_root=str(data), runtime=runtime, folders=resolver.folders, shares=planned.search.shares
    )  # fmt: skip


def outcome(record: SearchRecord) -> list[tuple[object, ...]]:
    """What must be the same however often a search was killed."""
    return [(one.number, one.method, one.suggestion, one.train, one.state, one.dev) for one in record.trials]


class Killed(BaseException):
    """The process is gone."""


class KilledAfter(Tracker):
    """Ends the process of a search after so many changes."""

    def __init__(self, changes: int, *given: Any) -> None:
        super().__init__(*given)
        self._left = changes

    def watch_search(self, record: SearchRecord, running: str = "RUNNING") -> None:
        super().watch_search(record, running)
        self._left -= 1
        if self._left == 0:
            raise Killed
