"""A driver that is ended while it is inside Ray Tune ends, leaves nothing behind on the cluster, and search or sweep go on later."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.searching.in_process import search_in_process
from sentdist.plan.stage import Json
from sentdist.store.searches import RungReached, SearchEvent, SubmissionSeen, TrialSuggested
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_search import outcome, tiny_search
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.usefixtures("one_thread")]

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
SPACE: Json = {"training.learning_rate": {"choice": [1e-4, 1e-3, 1e-2]}}


def ends_at(
    kind: type[SearchEvent], number: int, error: BaseException, noted: list[SearchEvent]
) -> Callable[[Sequence[SearchEvent]], None]:
    """Raises an error in the driver when so many events of a kind are noted. noted: takes each event, those after the error, too."""

    def watch(events: Sequence[SearchEvent]) -> None:
        noted.append(events[-1])
        if isinstance(events[-1], kind) and sum(isinstance(event, kind) for event in events) == number:
            raise error

    return watch


@pytest.mark.parametrize(
    ("error", "kind", "number", "at_once"),
    # Of two trials at a time the one that is first at a rung is judged first, and which that is may differ.
    [(SystemExit(143), RungReached, 2, 1), (KeyboardInterrupt(), TrialSuggested, 2, None), (KeyboardInterrupt(), TrialSuggested, 2, 1)],
    ids=["at a rung", "at a suggestion", "between two trials"],
)
def test_a_search_whose_driver_ends_inside_tune(
    cluster: Any, tmp_path: Path, tiny_encoder_dir: Path, error: BaseException, kind: type[SearchEvent], number: int, at_once: int | None
) -> None:
    from sentdist.execution.searching.on_cluster import search_on_cluster

    data = write_data(tmp_path / "data")
    options: dict[str, Any] = {"changes": ONLY, "suggest": "grid", "samples": None, "space": SPACE}
    planned, here = tiny_search(tiny_encoder_dir, data, tmp_path / "here", **options)
    alone = search_in_process(planned, here, print_line=lambda line: None)
    planned, there = tiny_search(tiny_encoder_dir, data, tmp_path / "there", **options)
    noted: list[SearchEvent] = []
    started = time.monotonic()
    with pytest.raises(type(error)):
        search_on_cluster(planned, there, print_line=lambda line: None, watch=ends_at(kind, number, error, noted), at_once=at_once)
    interrupted_s = time.monotonic() - started
    last = [place for place, event in enumerate(noted) if isinstance(event, kind)][number - 1]
    assert {type(event) for event in noted[last + 1 :]} <= {SubmissionSeen}  # no trial goes on
    wait_for(
        lambda: not any(map(cluster.actors, ("_TrialMailbox", "ImplicitFunc", "BoardActor"))),
        what="Tune and the board to end",
        seconds=30.0,
    )
    started = time.monotonic()
    found = search_on_cluster(planned, there, print_line=lambda line: None, at_once=1)
    assert interrupted_s < 4 * (time.monotonic() - started)  # the rest of the search takes about as long
    assert outcome(found) == outcome(alone)


def test_a_sweep_whose_driver_ends_inside_tune(cluster: Any, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    from sentdist.execution.sweep import run_sweep

    methods: Json = {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}}
    values = tiny_values(tiny_encoder_dir, methods=methods, baseline="base", seeds=[0, 1, 2], runtime={"engine": "torch"})
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")

    def print_line(line: str) -> None:
        if line.startswith("trial "):
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        run_sweep(plan, context, print_line=print_line)
    wait_for(lambda: not any(map(cluster.actors, ("ImplicitFunc", "BoardActor"))), what="Tune and the board to end", seconds=30.0)
    assert not run_sweep(plan, context, print_line=lambda line: None).failures


def test_a_head_that_starts_no_process_ends_the_search(
    cluster: Any, tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentdist.execution.searching import on_cluster

    monkeypatch.setattr(on_cluster, "MAILBOX_S", 0.0)
    planned, context = tiny_search(tiny_encoder_dir, write_data(tmp_path / "data"), tmp_path / "store", changes=ONLY, space=SPACE)
    with pytest.raises(ResourceError, match="no process for the search within 0 s"):
        on_cluster.search_on_cluster(planned, context, print_line=lambda line: None)
    wait_for(
        lambda: not any(map(cluster.actors, ("_TrialMailbox", "ImplicitFunc", "BoardActor"))), what="what it started to end", seconds=60.0
    )
