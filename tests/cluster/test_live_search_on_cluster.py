"""A search on a cluster as a person sees it in MLflow while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sentdist.store.searches import RungReached, SearchEvent
from sentdist.tracking.mlflow_tracker import MlflowTracker
from sentdist.tracking.search_runs import rebuild
from tests.cluster.test_live_search import Shown, a_search, live, shows
from tests.support.mlflow_fixtures import MlflowServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from mlflow import MlflowClient

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.usefixtures("one_thread")]


def test_trials_are_runs_while_a_search_runs_on_a_cluster(
    cluster: Any, server: MlflowServer, client: MlflowClient, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    from sentdist.execution.searching.on_cluster import search_on_cluster

    planned, context = a_search("live-search", tiny_encoder_dir, tmp_path)
    shown, meanwhile, lines = Shown(client, "live-search"), list[tuple[int, str, bool]](), list[str]()
    with live(server.uri, planned, context, lines.append) as following:

        def watch(events: Sequence[SearchEvent]) -> None:
            following.watch(events)
            if isinstance(last := events[-1], RungReached):
                wait_for(lambda: last.number in shown.trials, what="a run", seconds=60.0)
                run = shown.trials[last.number]
                meanwhile.append((last.number, run.info.status, "loss" in run.data.metrics))

        record = search_on_cluster(planned, context, print_line=lines.append, watch=watch, tracker=following.tracker, at_once=1)
    assert {one.state for one in record.trials} == {"finished", "pruned", "failed"}
    assert {status for _, status, _ in meanwhile} == {"RUNNING"}
    assert any(has_curve for _, _, has_curve in meanwhile), meanwhile
    shows(shown, record)
    assert not [line for line in lines if "tracking" in line]
    before = shown.state()
    rebuild(context.store, server.uri, "live-search")
    assert MlflowTracker(server.uri, context.store).log_search(record)
    assert shown.state() == before, "a rebuild adds nothing"
