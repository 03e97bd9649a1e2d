"""A search in Ray Tune: the same suggestions and results as in one process, Tune's own tables, failed trials that are Tune's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sentdist.plan.stage import Json
from tests.support.tiny_data import write_data
from tests.support.tiny_search import outcome, tiny_search

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_thread")]  # as a worker with one CPU computes

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}


def test_a_search_in_tune_ends_as_one_in_this_process(cluster: Any, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    from ray import tune

    from sentdist.execution.searching.in_process import search_in_process
    from sentdist.execution.searching.on_cluster import search_on_cluster

    data = write_data(tmp_path / "data")
    space: Json = {"training.learning_rate": {"choice": [1e-4, 1e-2, 1e30]}}  # the last one diverges
    options: dict[str, Any] = {"changes": ONLY, "suggest": "grid", "samples": None, "space": space}
    planned, here = tiny_search(tiny_encoder_dir, data, tmp_path / "here", **options)
    alone = search_in_process(planned, here, print_line=lambda line: None)
    planned, there = tiny_search(tiny_encoder_dir, data, tmp_path / "there", **options)
    lines: list[str] = []
    found = search_on_cluster(planned, there, print_line=lines.append, at_once=1)
    assert outcome(found) == outcome(alone)
    assert found.finalists == alone.finalists and found.spent_sentences == alone.spent_sentences
    assert [one.state for one in found.trials].count("failed") == 1 and any("FAILED" in line for line in lines)

    kept = tune.ExperimentAnalysis(str(tmp_path / "there" / "tune" / "tiny"))
    configs = sorted((trial.config["trial"], trial.config["training.learning_rate"], trial.status) for trial in kept.trials)
    states = {one.number: one.state for one in found.trials}
    assert [(number, rate) for number, rate, _ in configs] == [(0, 1e-4), (1, 1e-2), (2, 1e30)]
    assert {number: status == "ERROR" for number, _, status in configs} == {number: state == "failed" for number, state in states.items()}
    assert {"config/training.learning_rate", "config/method", "dev_score", "share"} <= set(kept.dataframe().columns)
    assert tune.Tuner.can_restore(str(tmp_path / "there" / "tune" / "tiny"))
