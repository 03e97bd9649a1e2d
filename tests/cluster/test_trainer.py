"""Ray Train with DeepSpeed on two workers: the parameters of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.trained import assert_same_results
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]  # test_two_hosts shows the same on two hosts


def test_rcl_on_two_workers_gives_the_parameters_of_one_process(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Everything at once: ZeRO-2 trainings, a bank embedded by a pool of workers and looked up in the object store."""
    from sentdist.execution.sweep import run_sweep

    data = write_data(tmp_path / "data", num_rows=32)
    methods = tiny_values(tiny_encoder_dir)["methods"]
    assert isinstance(methods, dict) and isinstance(methods["rcl"], dict)
    values = tiny_values(
        tiny_encoder_dir,
        methods={"entropy": methods["entropy"], "rcl": methods["rcl"] | {"phis": [0.01]}},
        baseline=None,
        runtime={"workers": 2},
    )
    values["runtime"] = {"workers": 2, "zero_stage": 2}
    plan, on_ray = tiny_plan(values, data=data, store=tmp_path / "on-ray")
    _, here = tiny_plan(values, data=data, store=tmp_path / "here")
    summary = run_sweep(plan, on_ray, print_line=lambda line: None)
    assert not summary.failures, summary.lines
    run_local(plan, here)
    assert_same_results(plan, here, on_ray)
    assert not list((tmp_path / "on-ray" / "running").glob("*"))
    wait_for(lambda: not cluster.actors("TrainController"), what="the end of the last training's controller")
