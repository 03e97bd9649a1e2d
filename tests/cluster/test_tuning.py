"""A search in Ray Tune, whose driver is ended meanwhile: suggestions and results of one in this process, tables of Tune for it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from sentdist.recipe.stage import Json
from sentdist.store.searches import SearchRecord
from sentdist.tracking.tracker import Tracker
from tests.support.tiny_data import write_data
from tests.support.tiny_search import outcome, tiny_search
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_thread")]  # as a worker with one CPU computes
ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}


class EndedAtTheSecondRung(Tracker):
    """As SIGTERM ends a driver."""

    def watch_search(self, record: SearchRecord, running: str = "RUNNING") -> None:
        if sum(len(trial.rungs) for trial in record.trials) == 2:
            raise SystemExit(143)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_search_in_tune_ends_as_one_in_this_process(cluster: Any, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    from ray import tune

    from sentdist.run.local import search_in_process
    from sentdist.run.sweep import search_on_cluster

    data = write_data(tmp_path / "data")
    space: Json = {"training.learning_rate": {"choice": [1e-4, 1e-2, 1e30]}}  # the last one diverges
    options: dict[str, Any] = {"changes": ONLY, "suggest": "grid", "samples": None, "space": space}
    planned, here = tiny_search(tiny_encoder_dir, data, tmp_path / "here", **options)
    alone = search_in_process(planned, here, Tracker(), print_line=lambda line: None)
    planned, there = tiny_search(tiny_encoder_dir, data, tmp_path / "there", **options)
    lines: list[str] = []
    with pytest.raises(SystemExit):
        search_on_cluster(planned, there, EndedAtTheSecondRung(), print_line=lines.append, at_once=1)
    gc.collect()  # files that Tune leaves open where its driver is ended would be reported in another test
    gone = ("ImplicitFunc", "BoardActor")
    wait_for(lambda: not any(map(cluster.actors, gone)), what="Tune and the board to end", seconds=90.0)  # workers have 60 s to close
    found = search_on_cluster(planned, there, Tracker(), print_line=lines.append, at_once=1)
    assert outcome(found) == outcome(alone)
    assert found.finalists == alone.finalists and found.spent_sentences == alone.spent_sentences
    assert [one.state for one in found.trials].count("failed") == 1 and any("FAILED" in line for line in lines)
    kept = tune.ExperimentAnalysis(str(tmp_path / "there" / "tune" / "tiny"))
    failed = {one.number for one in found.trials if one.state == "failed"}
    rates = {trial.config["trial"]: trial.config["training.learning_rate"] for trial in kept.trials}
    assert {number: rate for number, rate in enumerate((1e-4, 1e-2, 1e30)) if number in rates} == rates and failed <= set(rates)
    assert {trial.config["trial"] for trial in kept.trials if trial.status == "ERROR"} == failed
    assert {"config/training.learning_rate", "config/method", "dev_score", "share"} <= set(kept.dataframe().columns)
