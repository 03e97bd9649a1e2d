"""The command line: quick answers, plans, a whole local run of a tiny recipe and of a search."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.store.searches import find_search
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
from tests.support.planning import RECIPES
from tests.support.tiny_data import tiny_values, write_data

ROOT = Path(__file__).parents[3]


DEMO = str(ROOT / "rayjobs" / "recipes" / "demo.yaml")


HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib", "scipy.stats")


LOADED = f"sorted(set(sys.modules) & set({HEAVY!r}))"  # an expression


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_a_plan_says_what_is_shared_and_what_comes_after(tmp_path: Path) -> None:
    answer = _call("plan", DEMO, "--store", str(tmp_path), "--set", "confirm_seeds=3")
    assert answer.exit_code == 0
    assert "43 stages, 26 differ: sharing saves 17." in answer.output
    assert "3 fresh seeds (confirm_seeds)" in " ".join(answer.output.split())
    assert not list(tmp_path.iterdir()), "planning writes nothing"


@pytest.fixture(scope="module")
def tiny_run(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A recipe, its data and its store after `sentdist sweep --no-grid --local`."""
    folder = tmp_path_factory.mktemp("cli")
    data, recipe, store = write_data(folder / "data"), folder / "tiny.yaml", folder / "store"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir)))
    answer = _call("sweep", str(recipe), "--no-grid", "--local", "--data", str(data), "--store", str(store))
    assert answer.exit_code == 0, answer.output
    return {"recipe": str(recipe), "data": str(data), "store": str(store), "output": answer.output}


def _places(run: dict[str, str]) -> list[str]:
    """Where its trainings lie, and the keys at their ends."""
    return [line.split()[-1] for line in _call("list", "train", "--store", run["store"]).output.splitlines()[1:]]


def test_a_local_run_tells_its_progress_and_scores_with_leaks_and_loads_no_ray(tiny_run: dict[str, str]) -> None:
    assert "done in" in tiny_run["output"] and "rcl" in tiny_run["output"]
    table = tiny_run["output"].partition("main score × 100")[2].partition("Best on dev")[0]
    assert "stsb-dev" in tiny_run["output"] and "leaked" in table
    given = ["sweep", tiny_run["recipe"], "--no-grid", "--local", "--data", tiny_run["data"], "--store", tiny_run["store"]]
    script = f"import sys; from sentdist.cli import app\napp({given!r}, standalone_mode=False)\nprint({LOADED})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "ray" not in done.stdout.splitlines()[-1] and "mlflow" not in done.stdout.splitlines()[-1]


def test_a_local_sweep_runs_the_grid_and_shares_what_a_run_built(tiny_run: dict[str, str]) -> None:
    answer = _call(
        *("sweep", tiny_run["recipe"], "--local", "--data", tiny_run["data"], "--store", tiny_run["store"]),
        *("--set", "name=grid", "--set", "methods.rcl.phis=[0.01]", "--set", "sweep={methods.rcl.objective.temperature: [0.05, 0.2]}"),
    )
    assert answer.exit_code == 0, answer.output
    assert "temperature=0.05" in answer.output and "temperature=0.2" in answer.output
    assert not [line for line in answer.output.splitlines() if "train" in line and "entropy" in line], "entropy encoders were in the store"


def _cells(output: str) -> dict[str, list[str]]:
    """The table of a plan, by stage."""
    rows = [line.split() for line in output.splitlines()]
    return {row[0]: row[1:] for row in rows if row and row[0] in ("corpus", "train", "bank", "scores") and len(row) > 4}


def test_a_plan_counts_what_is_there_and_what_is_to_build(tiny_run: dict[str, str]) -> None:
    places = ("--data", tiny_run["data"], "--store", tiny_run["store"])
    done = _call("plan", tiny_run["recipe"], *places)
    there = {"corpus": ["1", "–"], "train": ["4", "–"], "bank": ["2", "–"], "scores": ["3", "–"]}
    assert {kind: row[2:4] for kind, row in _cells(done.output).items()} == there, "mentioned, distinct, in the store, to build"
    assert "Nothing to build." in done.output
    more = _call("plan", tiny_run["recipe"], *places, "--set", "seeds=[0,7]")
    left = {"corpus": ["4", "1", "1", "–"], "train": ["8", "8", "4", "4"], "bank": ["4", "4", "2", "2"], "scores": ["5", "5", "3", "2"]}
    assert {kind: row[:4] for kind, row in _cells(more.output).items()} == left


def test_two_stages_are_explained_each_in_its_own_column(tiny_run: dict[str, str]) -> None:
    entropy, rcl = (next(place for place in _places(tiny_run) if place.startswith(f"train/{name}")) for name in ("entropy", "rcl"))
    for first, second in ((entropy, rcl), (rcl, entropy)):
        reported = _call("store", "diff", first, second, "--store", tiny_run["store"]).output
        assert re.findall(r"train/\S+", reported.partition("objective")[0]) == [first, second], reported
        rows = [re.split(r"[\s│]+", line.strip(" │")) for line in reported.splitlines()]
        (named,) = [row for row in rows if row[0] in ("objective.name", "objective.kind")]
        assert named[1:] == [place.removeprefix("train/").partition("+")[0].partition("-")[0] for place in (first, second)], reported
    assert "one stage" in _call("store", "diff", rcl, rcl, "--store", tiny_run["store"]).output
    record, _, uri = _call("store", "show", rcl, "--store", tiny_run["store"]).output.rstrip().rpartition("\n")
    assert json.loads(record)["place"] == rcl and uri.endswith(rcl)


def test_encoders_are_scored_and_compared_by_their_keys(tiny_run: dict[str, str]) -> None:
    keys = [place.rpartition("-")[2] for place in _places(tiny_run)[:2]]
    where = ("--data", tiny_run["data"], "--store", tiny_run["store"])
    alone = [_call("evaluate", key, "--tasks", "stsb", *where) for key in keys]
    assert [answer.exit_code for answer in alone] == [0, 0] and "average" not in alone[0].output, "one task has no average"
    interval = re.search(r"([\d.-]+) +([\d.-]+) to ([\d.-]+) +\d+", alone[0].output)
    assert interval is not None and float(interval[2]) < float(interval[1]) < float(interval[3]), "a score has its interval and n"
    scores = [float(next(line for line in one.output.splitlines() if line.split()[:1] == ["stsb"]).split()[2]) for one in alone]
    both = _call("compare", *keys, "--tasks", "stsb,scenes-sts", *where)
    row = next(line.split() for line in both.output.splitlines() if line.split()[:1] == ["stsb"])
    assert [float(row[3]), float(row[4])] == scores and float(row[5]) == pytest.approx(scores[0] - scores[1], abs=0.011)
    assert both.exit_code == 0 and "(95 % interval " in both.output
    assert "two encoders" in _call("compare", keys[0], keys[0], "--tasks", "stsb", *where).output


def test_a_report_is_printed_for_people_and_written_as_markdown(tiny_run: dict[str, str], tmp_path: Path) -> None:
    answer = _call("report", "tiny", "--store", tiny_run["store"], "--out", str(tmp_path))
    assert answer.exit_code == 0 and "Semantic textual similarity" in answer.output, answer.output
    assert not re.search(r"<\w|&lt;|\]\(|^#|\*\*|Citations", answer.output, re.MULTILINE)
    assert "<sub>" in (tmp_path / "report.md").read_text() and "## Citations" in (tmp_path / "report.md").read_text()


TRIAL = {"name", "method", "seed", "fold", "params", "key", "state"}


STAGE = {"key", "kind", "place", "state", "inputs", "mentions", "sentences", "seconds"}


PLAN = {"recipe", "trials", "stages", "seconds"}


def _planned(*arguments: object) -> dict[str, Any]:
    answer = _call("plan", *arguments, "--format", "json")
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.fixture
def tiny(tiny_encoder_dir: Path, tmp_path: Path) -> tuple[object, ...]:
    """A recipe, with its data and store."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir, seeds=[0])))
    return tmp_path / "tiny.yaml", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store"


def test_a_plan_has_its_stages_before_and_after_they_are_built(tiny: tuple[object, ...], tmp_path: Path) -> None:
    before = _planned(*tiny)
    assert (
        before.keys() == PLAN
        and all(one.keys() == STAGE for one in before["stages"])
        and all(one.keys() == TRIAL for one in before["trials"])
    )
    plan = sentdist.plan(str(tiny[0]), data=str(tiny[2]), store=str(tiny[4]))
    assert [one["key"] for one in before["stages"]] == [stage.key for stage in plan.stages]
    assert [(one["name"], one["key"]) for one in before["trials"]] == [(trial.name, trial.key) for trial in plan.trials]
    assert {one["state"] for one in (*before["stages"], *before["trials"])} == {"missing"}
    assert before["seconds"] is None
    assert not (tmp_path / "store").exists(), "planning writes nothing"

    assert _call("sweep", *tiny, "--local").exit_code == 0
    after = _planned(*tiny)
    assert {one["state"] for one in (*after["stages"], *after["trials"])} == {"built"}
    assert {one["seconds"] for one in after["stages"]} == {0.0} and after["seconds"] == 0
    assert {one["place"] for one in after["stages"]} <= {one.record.place for one in ArtifactStore(str(tmp_path / "store")).artifacts()}

    grown = _planned(*tiny, "--set", "seeds=[0, 1]")
    left = [one for one in grown["stages"] if one["state"] == "missing"]
    assert {one["kind"] for one in left} >= {"train", "scores"} and len(left) < len(grown["stages"])
    assert grown["seconds"] == pytest.approx(sum(one["seconds"] for one in left if one["seconds"] is not None)) and grown["seconds"] > 0
    trained = [one for one in left if one["kind"] == "train"]
    assert all(one["seconds"] > 0 for one in trained)


def test_a_plan_says_the_space_the_trials_and_what_one_takes(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", str(RECIPES / "search.yaml"), "--store", str(tmp_path)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "1e-05 to 0.001, logarithmic, 9 steps" in done.output and "methods.rcl.phis" in done.output
    assert "One trial of rcl: 3,840 sentences to train on." in done.output
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
    assert "trial 1  fine_tuned (learning_rate=" in done.output and "chosen on dev (all trials" in done.output
    assert "Encoder: " in done.output
    store = ArtifactStore(tmp_path / "store")
    search, sweep = find_search(store, "tiny"), load_sweep(store, "tiny")
    assert search is not None
    (finalist,) = search.finalists
    assert {trial.seed: trial.key for trial in sweep.trials if trial.method == "fine_tuned"} == finalist.cells
    assert {trial.key for trial in sweep.trials} == {one.key for one in store.artifacts("scores")}, "nobody else is scored on test"
    assert dict(sweep.trials[1].params) == finalist.suggestion
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert again.exit_code == 0 and "begins" not in again.output
    later = find_search(store, "tiny")
    assert later is not None and later.finalists == search.finalists
