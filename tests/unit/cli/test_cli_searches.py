"""Recipes with `search:` on the command line: the plan of a search, and one carried out in this process."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.cli import searches as cli_searches
from sentdist.store.searches import RungReached, SearchTrial, load_search
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
from tests.support.planning import RECIPES
from tests.support.tiny_data import tiny_values, write_data


def test_a_plan_says_the_space_the_trials_and_what_one_takes(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", str(RECIPES / "search.yaml"), "--store", str(tmp_path)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "1e-05 to 0.001, logarithmic, 9 steps" in done.output and "methods.rcl.phis" in done.output
    assert "One trial of rcl: 3,840 sentences to train on, no speed is known yet." in done.output
    assert "What dev chooses, 2 seeds: 3 trainings more, 5,760 sentences, no speed is known yet." in done.output
    assert not (tmp_path / "searches").exists()


def test_a_search_in_this_process_ends_with_its_finalists_on_test(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, seeds=[0, 1]) | {
        "methods": {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}},
        "search": {"suggest": "random", "samples": 2, "space": {"training.learning_rate": {"log": [1e-4, 1e-2]}}, "budget": {"hours": 1}},
        "runtime": {"engine": "torch"},
    }
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(values))
    command = ["sweep", str(recipe), "--local", "--store", str(tmp_path / "store"), "--data", str(write_data(tmp_path / "data"))]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "trial 1  fine_tuned (learning_rate=" in done.output and "what dev chose (all trials are made)" in done.output
    assert "Encoder: " in done.output
    store = ArtifactStore(tmp_path / "store")
    search, sweep = load_search(store, "tiny"), load_sweep(store, "tiny")
    (finalist,) = search.finalists
    assert {trial.seed: trial.key for trial in sweep.trials if trial.method == "fine_tuned"} == finalist.cells
    assert {trial.key for trial in sweep.trials} == {one.key for one in store.artifacts("scores")}, "nobody else is scored on test"
    assert dict(sweep.trials[1].params) == finalist.suggestion
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert again.exit_code == 0 and "begins" not in again.output
    assert [one.finalists for one in (load_search(store, "tiny"), search)] == [search.finalists] * 2


def _printed(
    trials: list[SimpleNamespace | SearchTrial],
    finalists: list[SimpleNamespace],
    capsys: pytest.CaptureFixture[str],
    **budget: float | None,
) -> str:
    """What is said at the end of a search of rcl and of another method, which has no finalist."""
    record = SimpleNamespace(name="mine", reason="all trials are made", trials=trials, finalists=finalists, of_method=lambda name: trials)
    recipe = SimpleNamespace(methods={"rcl": SimpleNamespace(title="RCL")})
    planned = SimpleNamespace(recipe=recipe, methods=["rcl", "other"], search=SimpleNamespace(budget=SimpleNamespace(**budget)))
    cli_searches.print_choice(SimpleNamespace(planned=planned, record=record))  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_what_dev_chose_is_reported_with_its_own_price_and_that_of_its_method(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [SimpleNamespace(number=number, state=state, paid_s=paid)
              for number, state, paid in ((4, "finished", 10.0), (7, "finished", 20.0), (1, "pruned", 3.0), (2, "failed", 1.0))]  # fmt: skip
    finalists = [
        SimpleNamespace(number=number, method="rcl", place=place, dev=80.0 - place, suggestion={"training.learning_rate": 1e-4})
        for place, number in ((1, 7), (2, 4))
    ]
    said = _printed(trials, finalists, capsys, hours=0.01)
    rows = [re.split(r"  +", line.strip()) for line in said.splitlines() if line.strip().startswith("RCL")]
    assert [(row[1], row[3], row[4]) for row in rows] == [("1", "79.00", "20 s"), ("2", "78.00", "10 s")]
    assert rows[0][5:] == ["2 finished, 1 pruned, 1 failed", "34 s"] and rows[1][5:] == []
    assert "other: no trial came to its end" in said and "One takes about 20 s: with a budget of about 2 min" in said
    assert "One takes" not in _printed(trials, finalists, capsys, hours=None), "a budget of trials is no time"
    assert "other: all of its trials failed" in _printed(trials[-1:], [], capsys, hours=1.0)
    # What a training needs beside, as RCL's entropy encoders and banks, is paid once, however far the training has come.
    rung = RungReached(number=1, share=0.5, key="k", step=1, dev=1.0, last_dev=1.0, sentences=1, seconds=90.0, paid_s=3690.0)
    half = SearchTrial(number=1, method="other", suggestion={}, train="t", state="running", rungs=(rung,))
    assert "One takes about 63 min: with a budget of about 2.1 h" in _printed([half], [], capsys, hours=0.2)
