"""The command line: quick answers, one-sentence errors, and a whole local run of a tiny recipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.execution import local_sweep, sigterm
from sentdist.store.forecast import forecast
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import tiny_values, write_data

ROOT = Path(__file__).parents[3]
DEMO = str(ROOT / "rayjobs" / "recipes" / "demo.yaml")
HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib", "scipy.stats")
LOADED = f"sorted(set(sys.modules) & set({HEAVY!r}))"  # an expression


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


QUICK = [  # words, exit code, a word that is reported
    (("plan", DEMO, "--store", "TMP"), 0, "sharing spares"),
    (("evaluate", "minilm-l6", "--tasks", "nosuch", "--store", "TMP"), 2, "nosuch"),
]


@pytest.mark.parametrize(("arguments", "code", "reported"), QUICK)
def test_quick_answers_load_nothing_heavy(arguments: tuple[str, ...], code: int, reported: str, tmp_path: Path) -> None:
    given = [str(tmp_path) if argument == "TMP" else argument for argument in arguments]
    script = f"import sys; from sentdist.cli import app\nsys.argv[1:] = {given!r}\ntry:\n    app()\nfinally:\n    print('loaded', {LOADED})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code and reported in done.stderr + done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_a_plan_says_what_is_shared_and_what_comes_after(tmp_path: Path) -> None:
    answer = _call("plan", DEMO, "--store", str(tmp_path), "--trials", "--set", "confirm_seeds=3")
    assert answer.exit_code == 0
    assert "Trials mention 43 stages, 26 differ: sharing spares 17." in answer.output
    assert "(to build)" in answer.output and "3 fresh seeds (confirm_seeds)" in " ".join(answer.output.split())
    assert not list(tmp_path.iterdir()), "planning writes nothing"
    ahead = forecast(sentdist.plan(DEMO, store=tmp_path), ArtifactStore(tmp_path))
    rows = {kind.kind: next(line for line in answer.output.splitlines() if line.split()[:1] == [kind.kind]) for kind in ahead.kinds}
    assert [("about" in rows[kind.kind]) for kind in ahead.kinds] == [kind.is_guessed and bool(kind.sentences) for kind in ahead.kinds]


def test_sigterm_ends_a_local_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has begun is put away, and its runs in MLflow are reported: nothing of that happens where the signal ends the process."""
    before, put_away = signal.getsignal(signal.SIGTERM), []
    monkeypatch.setattr(sigterm, "_received", None)

    def build(*given: object, **named: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise SystemExit("SystemExit is raised (sys.exit is called).") from None  # as Ray raises it
        finally:
            put_away.append(True)

    monkeypatch.setattr(local_sweep, "build_locally", build)
    try:
        assert _call("run", DEMO, "--local", "--store", str(tmp_path)).exit_code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
    assert put_away


@pytest.fixture(scope="module")
def tiny_run(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A recipe, its data and its store after `sentdist run --local`."""
    folder = tmp_path_factory.mktemp("cli")
    data, recipe, store = write_data(folder / "data"), folder / "tiny.yaml", folder / "store"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir)))
    answer = _call("run", str(recipe), "--local", "--data", str(data), "--store", str(store))
    assert answer.exit_code == 0, answer.output
    return {"recipe": str(recipe), "data": str(data), "store": str(store), "output": answer.output}


def _places(run: dict[str, str]) -> list[str]:
    """Where its trainings lie, and the keys at their ends."""
    return [line.split()[-1] for line in _call("store", "list", "train", "--store", run["store"]).output.splitlines()]


def test_a_local_run_tells_its_progress_and_scores_with_leaks_and_loads_no_ray(tiny_run: dict[str, str]) -> None:
    assert "done in" in tiny_run["output"] and "rcl" in tiny_run["output"]
    table = tiny_run["output"].partition("main score × 100")[2].partition("Best on dev")[0]
    assert "stsb-dev" in tiny_run["output"] and "leaked" in table
    given = ["run", tiny_run["recipe"], "--local", "--data", tiny_run["data"], "--store", tiny_run["store"]]
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
    assert "It adds about" not in done.output and "Nothing to build." in done.output
    more = _call("plan", tiny_run["recipe"], *places, "--set", "seeds=[0,7]", "--trials", "--on", "1xH100")
    left = {"corpus": ["4", "1", "1", "–"], "train": ["8", "8", "4", "4"], "bank": ["4", "4", "2", "2"], "scores": ["5", "5", "3", "2"]}
    assert {kind: row[:4] for kind, row in _cells(more.output).items()} == left
    assert "It adds about" in more.output and "Of what is finished, 4 trainings: forecast" in more.output
    marks = [line.rpartition("  (")[2] for line in more.output.splitlines() if line.startswith("scores/")]
    assert marks == [
        f"{'to build' if 'seed 7' in line else 'in the store'})" for line in more.output.splitlines() if line.startswith("scores/")
    ]


def test_two_stages_are_explained_each_in_its_own_column(tiny_run: dict[str, str]) -> None:
    entropy, rcl = (next(place for place in _places(tiny_run) if place.startswith(f"train/{name}")) for name in ("entropy", "rcl"))
    for first, second in ((entropy, rcl), (rcl, entropy)):
        reported = _call("explain", first, second, "--store", tiny_run["store"]).output
        assert re.findall(r"train/\S+", reported.partition("objective")[0]) == [first, second], reported
        rows = [re.split(r"[\s│]+", line.strip(" │")) for line in reported.splitlines()]
        (named,) = [row for row in rows if row[0] in ("objective.name", "objective.kind")]
        assert named[1:] == [place.removeprefix("train/").partition("+")[0].partition("-")[0] for place in (first, second)], reported
    assert "one stage" in _call("explain", rcl, rcl, "--store", tiny_run["store"]).output
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
    second = _call("compare", *keys, "--tasks", "stsb", *where, "--bayes", "--rope", "1").output
    found = re.search(r"stsb: first better ([\d.]+), equal ([\d.]+), second better ([\d.]+)", second)
    assert found is not None and sum(map(float, found.groups())) == pytest.approx(1.0, abs=0.02) and "within 1 points" in second, second
    assert "two encoders" in _call("compare", keys[0], keys[0], "--tasks", "stsb", *where).output


def test_a_report_is_printed_for_people_and_written_as_markdown(tiny_run: dict[str, str], tmp_path: Path) -> None:
    answer = _call("report", "tiny", "--store", tiny_run["store"], "--out", str(tmp_path))
    assert answer.exit_code == 0 and "Semantic textual similarity" in answer.output, answer.output
    assert not re.search(r"<\w|&lt;|\]\(|^#|\*\*|Citations", answer.output, re.MULTILINE)
    assert "<sub>" in (tmp_path / "report.md").read_text() and "## Citations" in (tmp_path / "report.md").read_text()
