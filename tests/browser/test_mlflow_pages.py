"""The MLflow pages of a finished sweep, opened in a real browser as a user opens them: each must show what it is there for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from infra.browser import HOW_TO_GET_ONE, Browser, found, open_browser
from sentdist.recipe.unroll import Plan
from sentdist.report.sweep_report import report_sweep
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import dev_score, save_sweep, sweep_record
from sentdist.tracking.runs import SearchRuns
from sentdist.tracking.tracker import Tracker, rebuild
from sentdist.tracking.views import view_pages
from tests.support.building import run_local
from tests.support.mlflow_fixtures import MlflowServer
from tests.support.synthetic_searches import made_up_search
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = [
    pytest.mark.browser,
    pytest.mark.nightly,
    pytest.mark.skipif(found() is None, reason=HOW_TO_GET_ONE),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),  # selenium's and mlflow's own
]


class Shown:
    """A sweep of the tiny data that was built without Ray and stands on a real server."""

    def __init__(self, plan: Plan, store: ArtifactStore, uri: str) -> None:
        self.plan = plan
        self.store = store
        self.uri = uri
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = client.get_experiment_by_name(plan.recipe.name)
        assert experiment is not None
        self.experiment = str(experiment.experiment_id)
        runs = client.search_runs([self.experiment])
        self.run_ids = {run.info.run_name: run.info.run_id for run in runs}
        self.num_runs = len(runs)

    def runs_page(self, view: str | None = None, mode: str = "TABLE") -> str:
        shared = f"&viewStateShareKey=sentdist-{view}&compareRunsMode={mode}" if view else ""
        return f"#/experiments/{self.experiment}/runs?workflowType=machine_learning{shared}"

    def run_page(self, name: str) -> str:
        return f"#/experiments/{self.experiment}/runs/{self.run_ids[name]}?workflowType=machine_learning"


@pytest.fixture(scope="module")
def shown(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("pages")
    grid = {"methods.rcl.phis": [[0.01], [0.01, 0.02]]}
    values = tiny_values(tiny_encoder_dir, about="Does RCL help in a tiny world?", seeds=[0, 1], sweep=grid)  # type: ignore[arg-type]
    plan, context = tiny_plan(values, data=write_data(folder / "data"), store=folder / "store")
    save_sweep(context.store, sweep_record(plan))
    run_local(plan, context)
    server = MlflowServer(folder / "mlflow")
    server.start()
    try:
        report_sweep(context.store, "tiny").write(folder / "report")
        for _ in range(2):  # the second time as after a restart: nothing may be there twice
            tracker = Tracker(server.uri, context.store)
            tracker.log_report(sweep_record(plan), folder / "report")
            assert tracker.register_best(sweep_record(plan)) == "models:/tiny/1", tracker.warnings
            rebuild(context.store, server.uri)
        yield Shown(plan, context.store, server.uri)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def browser(shown: Shown) -> Iterator[Browser]:
    with open_browser(shown.uri) as opened:
        yield opened


def rows(browser: Browser) -> list[str]:
    """Names of the runs in a table of runs, from top to bottom."""
    script = """return [...document.querySelectorAll('.ag-pinned-left-cols-container .ag-row')]
        .sort((one, other) => one.getAttribute('row-index') - other.getAttribute('row-index'))
        .map(row => row.querySelector('[col-id="attributes.`Run Name`"]')?.innerText.trim() ?? '')"""
    return [name.rpartition("\n")[2] for name in browser.chrome.execute_script(script)]  # above the name stands a colour, unseen


def columns(browser: Browser) -> list[str]:
    """Headers of a table of runs, from left to right."""
    script = """return [...document.querySelectorAll('.ag-header-cell')]
        .sort((one, other) => one.getBoundingClientRect().left - other.getBoundingClientRect().left)
        .map(cell => cell.innerText.trim())"""
    return [name for name in browser.chrome.execute_script(script) if name]


def test_an_experiment_opens_on_its_sweep_which_links_to_its_views(shown: Shown, browser: Browser) -> None:
    browser.visit(shown.runs_page())
    browser.wait_for_text("sweep tiny", f"{shown.num_runs} matching runs", "Does RCL help in a tiny world?")
    browser.visit(shown.run_page("sweep tiny"))
    browser.click("Trials, best first")
    browser.wait_for_text("fine_tuned · seed 0", f"{len(shown.plan.trials)} matching runs")


def test_the_trials_stand_best_first_with_their_scores_before_all_else(shown: Shown, browser: Browser) -> None:
    browser.visit(shown.runs_page("trials"))
    browser.wait_for_text("fine_tuned · seed 0", f"{len(shown.plan.trials)} matching runs")
    names = rows(browser)
    sweep = sweep_record(shown.plan)
    records = sweep.records(shown.store)
    by_dev = {trial.name: dev_score(trial, records) for trial in sweep.trials}
    assert sorted(names) == sorted(by_dev)  # all, and none twice
    chosen_by = [-math.inf if (found := by_dev[name]) is None else found[1] for name in names]
    assert chosen_by == sorted(chosen_by, reverse=True), "what dev knows nothing of stands last"
    shown_columns = columns(browser)
    assert shown_columns.index("best_dev_score") < shown_columns.index("stsb") < shown_columns.index("method") < shown_columns.index("seed")
    assert "Dataset" not in shown_columns


def test_the_charts_are_not_empty(shown: Shown, browser: Browser) -> None:
    browser.visit(shown.runs_page("charts", "CHART"))
    browser.wait_for_text("What the sweep compares", "(4)", "stsb_vs_fine_tuned", "dev_score", "train_s vs. stsb")
    trained = [trial for trial in shown.plan.trials if trial.seed is not None]
    browser.wait_for(lambda: browser.count(".barlayer .point") >= len(shown.plan.trials), what=lambda: "bar of every trial")
    browser.wait_for(lambda: browser.count(".scatterlayer .js-line") >= len(trained), what=lambda: "learning curve of every training")


def test_a_sweep_shows_its_table_and_its_report(shown: Shown, browser: Browser) -> None:
    browser.visit(shown.run_page("sweep tiny"))
    total = len(shown.plan.trials)
    browser.wait_for_text(f"{total} of {total} trials with scores", "Finished")
    assert "-" not in re.findall(r"Duration\s+(\S+)", browser.text)[0]
    browser.click("Show more")
    browser.wait_for_text("that the trials need", "models:/tiny/1")
    browser.click("Report")
    browser.wait_for_text("report/report.html", "table1.csv", "learning.png")
    browser.wait_for(lambda: browser.count("iframe"), what=lambda: "frame with the report")
    browser.chrome.switch_to.frame(0)
    browser.wait_for_text("Does RCL help in a tiny world?", "Intervals and p are corrected")
    browser.chrome.switch_to.default_content()


def test_a_trial_shows_its_parameters_scores_and_lineage(shown: Shown, browser: Browser) -> None:
    trial = "rcl (phis={0.01, 0.02}) · seed 1"
    browser.visit(shown.run_page(trial))
    browser.wait_for_text(trial, "objective.regulator_weight", "best_dev_score", "sentdist.stages")


def test_the_best_encoder_is_a_model_with_a_card(shown: Shown, browser: Browser) -> None:
    browser.visit("#/models/tiny/versions/1?workflowType=machine_learning")
    text = browser.wait_for_text("@ best", "chosen on dev by stsb-dev", "On the test sets, which were not used: stsb")
    assert "Source Run" in text and "sentdist.trial" in text and "sentdist.files" not in text
    browser.visit("#/models?workflowType=machine_learning")
    browser.wait_for_text("tiny", "Version 1")


def test_a_search_shows_how_each_trial_ended_and_its_parallel_coordinates(shown: Shown, browser: Browser) -> None:
    search = made_up_search(samples=6)
    states = {str(trial.number): trial.state for trial in search.trials}
    assert set(states.values()) == {"finished", "pruned", "failed"}
    client = MlflowClient(tracking_uri=shown.uri, registry_uri=shown.uri)
    running = search.model_copy(
        update={"trials": tuple(one.model_copy(update={"state": "running", "rungs": ()}) for one in search.trials[:4])}
    )
    for record in (running, search, search):  # the last as after a restart: nothing may be there twice
        runs_of = SearchRuns(record, shown.store)
        pages = view_pages(runs_of.publish(client), runs_of.views)
    experiment = client.get_experiment_by_name("tuned")
    assert experiment is not None
    runs = {run.data.params["trial"]: run for run in client.search_runs([experiment.experiment_id]) if "trial" in run.data.params}
    assert {number: run.data.tags["sentdist.state"] for number, run in runs.items()} == states
    ended = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
    assert {number: run.info.status for number, run in runs.items()} == {number: ended[state] for number, state in states.items()}
    browser.visit(pages["Search: trials, best on dev first"])
    browser.wait_for_text(f"{len(states)} matching runs", "sentdist.state", "pruned")
    browser.visit(pages["Search: charts"])
    browser.wait_for_text("6 matching runs", "log10 learning_rate", "phis", "regulator_weight", "{0.01, 0.02}")
