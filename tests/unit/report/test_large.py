"""The report of a sweep of a hundred cells is there in seconds, and still complete."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sentdist.plan.stage import Json
from sentdist.report.sweep_report import report_sweep
from tests.support.machine_speed import slower_than_reference
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


@pytest.mark.nightly
def test_a_hundred_cells_take_seconds(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Processor seconds of a table of one task and a hundred rows, with its figures."""
    rates: Json = [1e-5 * number for number in range(1, 100)]
    methods: Json = {"base": {}, "fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}}}
    values = tiny_values(tiny_encoder_dir, methods=methods, baseline="base", headline="fine_tuned", sweep={"training.learning_rate": rates})
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    assert len(plan.trials) == 100
    fill_store(context.store, plan, noise=lambda trial: 1.5, num_items={"stsb": 1379})
    started = time.process_time()
    report = report_sweep(context.store, "tiny")
    assert time.process_time() - started < 20 * slower_than_reference()
    table = report.markdown.split("## ")[1]
    assert sum(line.startswith("| fine_tuned") for line in table.splitlines()) == 99
    assert report.html.count('<th scope="row">fine_tuned') >= 99
    drawn = {line.split(",")[1] for line in str(report.files["learning.csv"]).splitlines()[1:]}
    assert 1 < len(drawn) <= 8, "no more learning curves than colours"
