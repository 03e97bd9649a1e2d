"""Recipes with `search:` on the command line: the plan of a search, and one carried out in this process."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.cli import recipes as building
from sentdist.cli import summary as cli_searches
from sentdist.execution.searching import budgets as prices
from sentdist.plan.suggestions import PlannedSearch
from sentdist.stages.context import Context
from sentdist.stages.planning import planned
from sentdist.stages.planning.resolve import FileResolver
from sentdist.store import searches
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


def test_a_recipe_with_a_search_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan looks at files and encoders of its own."""
    made: list[FileResolver] = []
    monkeypatch.setattr(planned, "FileResolver", lambda **values: made.append(FileResolver(**values)) or made[-1])
    done = CliRunner().invoke(app, ["plan", str(RECIPES / "search.yaml"), "--store", str(tmp_path)])
    assert done.exit_code == 0 and len(made) == 1, done.output


def test_a_test_set_that_is_not_there_is_reported_before_a_search(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, evaluation={"tasks": ["sts=pairs/absent"]}) | {
        "methods": {"fine_tuned": {"objective": {"name": "info_nce"}}},
        "search": {"suggest": "random", "samples": 2, "space": {"training.learning_rate": {"log": [1e-4, 1e-2]}}},
    }
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(values))
    command = ["sweep", str(recipe), "--local", "--store", str(tmp_path / "store"), "--data", str(write_data(tmp_path / "data"))]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "absent" in done.output and not (tmp_path / "store").exists(), done.output


@pytest.mark.parametrize("is_same", [True, False])
def test_a_plan_says_minutes_and_how_many_trials_of_this_very_search_there_are(
    is_same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PlannedSearch] = []
    before = SimpleNamespace(identity="another", trials=[None] * 3)

    def find(store: ArtifactStore, name: str) -> SimpleNamespace:
        return before

    def shown(planned: PlannedSearch, context: Context) -> None:
        asked.append(planned)
        cli_searches.print_space(planned, context)

    monkeypatch.setattr(building, "print_space", shown)
    monkeypatch.setattr(prices.Forecasts, "seconds", lambda forecasts, train: 150.0)
    monkeypatch.setattr(searches, "find_search", find)
    command = ["plan", str(RECIPES / "search.yaml"), "--store", str(tmp_path)]
    first = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert first.exit_code == 0 and "about 2 min." in first.output and "In the store" not in first.output, first.output
    before.identity = asked[0].identity if is_same else "a third"
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert ("In the store: 3 trials of this search; it goes on from there." in again.output) == is_same


def test_what_dev_chose_is_reported_with_its_own_price_and_that_of_its_method(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [SimpleNamespace(number=number, state=state, paid_s=paid)
              for number, state, paid in ((4, "finished", 10.0), (7, "finished", 20.0), (1, "pruned", 3.0), (2, "failed", 1.0))]  # fmt: skip
    finalists = [
        SimpleNamespace(number=number, method="rcl", place=place, dev=80.0 - place, suggestion={"training.learning_rate": 1e-4})
        for place, number in ((1, 7), (2, 4))
    ]
    record = SimpleNamespace(
        name="mine", reason="all trials are made", trials=trials, finalists=finalists,
        of_method=lambda name: trials if name == "rcl" else [],
    )  # fmt: skip
    budget = SimpleNamespace(hours=0.01)
    planned = SimpleNamespace(
        recipe=SimpleNamespace(methods={"rcl": SimpleNamespace(title="RCL")}), methods=["rcl", "other"],
        search=SimpleNamespace(budget=budget),
    )  # fmt: skip
    cli_searches.print_choice(SimpleNamespace(planned=planned, record=record))  # type: ignore[arg-type]
    said = capsys.readouterr().out
    rows = [re.split(r"  +", line.strip()) for line in said.splitlines() if line.strip().startswith("RCL")]
    assert [(row[1], row[3], row[4]) for row in rows] == [("1", "79.00", "20 s"), ("2", "78.00", "10 s")]
    assert rows[0][5:] == ["2 finished, 1 pruned, 1 failed", "34 s"] and rows[1][5:] == []
    none = "other: no trial came to its end, so nothing is chosen, and it is not compared."
    assert f"{none} One takes about 20 s: with a budget of about 2 min, finalists included, the same command goes on from here." in said
    budget.hours = None
    cli_searches.print_choice(SimpleNamespace(planned=planned, record=record))  # type: ignore[arg-type]
    assert f"{none}\n" in capsys.readouterr().out, "a budget of trials is no time"
    budget.hours, trials = 1.0, [SimpleNamespace(number=9, state="failed", paid_s=2.0)]
    cli_searches.print_choice(SimpleNamespace(planned=planned, record=SimpleNamespace(**vars(record) | {"of_method": lambda name: trials})))  # type: ignore[arg-type]
    assert "other: all of its trials failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("beside_s", "said"),
    [(0.0, "One takes about 3 min: with a budget of about 15 min"), (3600.0, "One takes about 63 min: with a budget of about 2.1 h")],
)
def test_a_method_whose_trial_came_half_way_says_what_a_whole_one_takes(
    beside_s: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a training needs beside, as RCL's entropy encoders and banks, is paid once, however far the training has come."""
    rung = RungReached(
        number=1, share=0.5, key="k", step=1, dev=1.0, last_dev=1.0, sentences=1, seconds=90.0, paid_s=90.0 + beside_s
    )  # fmt: skip
    half = SearchTrial(number=1, method="other", suggestion={}, train="t", state="running", rungs=(rung,))
    record = SimpleNamespace(name="mine", reason="the budget is spent", trials=[half], finalists=[], of_method=lambda name: [half])
    planned = SimpleNamespace(
        recipe=SimpleNamespace(methods={}), methods=["other"], search=SimpleNamespace(budget=SimpleNamespace(hours=0.2))
    )
    cli_searches.print_choice(SimpleNamespace(planned=planned, record=record))  # type: ignore[arg-type]
    assert f"{said}, finalists included" in capsys.readouterr().out
