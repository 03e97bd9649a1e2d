"""A store that takes its time for each answer is asked for many stages at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.execution.plan_facts import search_disk_estimate
from sentdist.execution.searching.budgets import Forecasts, StoreBefore, spent_on
from sentdist.plan.stages import Train
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.text_stages import build_overlaps
from sentdist.store.garbage import forecast
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.tiny_data import write_data
from tests.support.tiny_search import tiny_search


class OneByOneError(AssertionError):
    """The store was asked for one stage after another."""


class SlowStore(ArtifactStore):
    """Gives its first answer when a second question was asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._numbers, self._second = iter(range(1_000_000)), threading.Event()

    def at(self, place: str) -> Artifact | None:
        if next(self._numbers) > 0:
            self._second.set()
        if not self._second.wait(2.0):
            raise OneByOneError(place)
        return super().at(place)


def _finalists(planned: PlannedSearch) -> Plan:
    return planned.plan([(method, planned.first(method)) for method in planned.methods])


def _training(planned: PlannedSearch) -> Train:
    return planned.train("rcl", planned.first("rcl"))


ASKING: dict[str, Callable[[PlannedSearch, Context], object]] = {
    "what is finished of a plan": lambda planned, context: forecast(_finalists(planned), context.store),
    "what a search writes": lambda planned, context: search_disk_estimate(planned, context, {}),
    "what a training would take": lambda planned, context: Forecasts(planned, context.store).sentences(_training(planned)),
    "what a training has taken": lambda planned, context: spent_on(
        _training(planned), context.store, earlier=StoreBefore(places=frozenset(), since=None), known=frozenset()
    ),
    "what can be compared": lambda planned, context: build_overlaps(_finalists(planned), context),
    "what was found": lambda planned, context: context.store.get_all(_finalists(planned).stages),
}


@pytest.mark.parametrize("asking", ASKING)
def test_a_slow_store_is_asked_for_many_stages_at_once(asking: str, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    planned, context = tiny_search(tiny_encoder_dir, write_data(tmp_path / "data"), tmp_path / "store")
    ASKING[asking](planned, replace(context, store=SlowStore(tmp_path / "store")))
