"""The command line: quick answers, one-sentence errors, and a whole local run of a tiny recipe."""

from __future__ import annotations

import json
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

import sentdist
from sentdist import machine as sigterm
from sentdist.cli import app
from sentdist.execution import build_recipe as local_sweep
from sentdist.store.garbage import forecast
from sentdist.store.store import ArtifactStore
from tests.support.machine_speed import slower_than_reference
from tests.support.tiny_data import tiny_values, write_data

ROOT = Path(__file__).parents[3]
DEMO = str(ROOT / "rayjobs" / "recipes" / "demo.yaml")
HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib")
# Processor seconds, not wall seconds: other work on the machine must not fail a test.
PLAN_SECONDS = 1.0
HELP_SECONDS = 0.5


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def _processor_seconds(script: str) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def _script(*arguments: str) -> str:
    return (
        "import sys; from sentdist.cli import app\n"
        f"app({list(arguments)!r}, standalone_mode=False)\n"
        f"print('loaded', sorted(set(sys.modules) & set({HEAVY!r})))"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "./nosuch", "--to", "{tmp}/out"),
        ("encode", "./nosuch", "{tmp}/lines.txt", "--out", "{tmp}/out.npy"),
        ("report", "nosuch", "--store", "{tmp}"),
        ("report", "--paper", "nosuch", "--store", "{tmp}"),
        ("evaluate", "{tiny}", "--tasks", "nosuch", "--store", "{tmp}"),
        ("compare", "{tiny}", "minilm-l6", "--tasks", "nosuch", "--store", "{tmp}"),
    ],
)
def test_a_name_that_there_is_not_is_reported_before_anything_heavy_is_loaded(
    arguments: tuple[str, ...], tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("a line\n")
    given = [argument.format(tmp=tmp_path, tiny=tiny_encoder_dir) for argument in arguments]
    script = (
        "import sys; from sentdist.cli import app\n"
        f"sys.argv[1:] = {given!r}\n"
        "try:\n    app()\n"
        f"finally:\n    print(sorted(set(sys.modules) & set({(*HEAVY, 'scipy.stats')!r})))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nosuch" in done.stderr, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("arguments", "seconds"), [(("plan", DEMO), PLAN_SECONDS), (("--help",), HELP_SECONDS)])
def test_quick_answers_are_quick_and_load_nothing_heavy(arguments: tuple[str, ...], seconds: float, tmp_path: Path) -> None:
    if arguments[0] == "plan":
        arguments = (*arguments, "--store", str(tmp_path))
    most = seconds * slower_than_reference()
    for _ in range(2):  # a second time only where something was in the way of the first
        took, output = _processor_seconds(_script(*arguments))
        assert output.splitlines()[-1] == "loaded []"
        if took < most:
            break
    assert took < most


@pytest.mark.parametrize("group", [(), ("store",), ("bank",)])
def test_every_command_is_reported_in_one_line_of_a_narrow_terminal(group: tuple[str, ...]) -> None:
    listed = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": "80"}).output.partition("Commands:")[2]
    assert len(listed.splitlines()) > 2
    assert "..." not in listed


def test_a_plan_says_what_is_shared(tmp_path: Path) -> None:
    answer = _call("plan", DEMO, "--store", str(tmp_path), "--trials")
    assert answer.exit_code == 0
    assert "Trials mention 43 stages, 26 differ: sharing spares 17." in answer.output
    assert "(to build)" in answer.output
    assert not list(tmp_path.iterdir()), "planning writes nothing"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("plan", "demmo.yaml"), "expected a readable recipe"),
        (("plan", DEMO, "--set", "training.batch_sze=8"), 'did you mean "batch_size"'),
        (("run", DEMO, "--local", "--set", "encoder.checkpoint=./nowhere"), "expected a saved Hugging Face encoder"),
        (("plan", str(ROOT / "rayjobs/recipes/rcl_sts.yaml")), "no data root"),
        (("evaluate", "./nowhere", "--tasks", "scenes"), "expected a saved Hugging Face encoder"),
        (("evaluate", "minilm-l6", "--tasks", "stss"), '"stss" is no task. Did you mean sts or stsb'),
        (("explain", "abc", "def"), "expected one artifact"),
        (("store", "show", "abc"), "expected one artifact"),
        (("report", "unheard_of"), "expected a sweep that was started"),
        (("stop",), "found no sweep"),
        (("stop", "demo", "--all"), "found demo and --all"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path))
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    answer = _call(*arguments)
    assert answer.exit_code == 2
    assert sentence in answer.stderr
    assert "Traceback" not in answer.output
    assert len(answer.stderr.splitlines()) == 1


def test_debug_shows_where_an_error_came_from() -> None:
    answer = _call("--debug", "plan", "demmo.yaml")
    assert answer.exception is not None
    assert type(answer.exception).__name__ == "RecipeError"


@pytest.mark.parametrize("code", [None, "SystemExit is raised (sys.exit is called)."], ids=["plain", "as Ray raises it"])
def test_sigterm_ends_a_local_run_in_order(code: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has begun is put away, and its runs in MLflow are reported: nothing of that happens where the signal ends the process."""
    before, put_away = signal.getsignal(signal.SIGTERM), []
    monkeypatch.setattr(sigterm, "_received", None)

    def build(*given: object, **named: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit as ending:
            raise SystemExit(code or ending.code) from None
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


def test_a_local_run_tells_its_progress_and_scores(tiny_run: dict[str, str]) -> None:
    assert "done in" in tiny_run["output"]
    assert "stsb-dev" in tiny_run["output"]
    assert "rcl" in tiny_run["output"].splitlines()[-2] or "rcl" in tiny_run["output"]


def test_a_local_run_needs_no_ray(tiny_run: dict[str, str]) -> None:
    again = _script("run", tiny_run["recipe"], "--local", "--data", tiny_run["data"], "--store", tiny_run["store"])
    loaded = _processor_seconds(again)[1].splitlines()[-1]
    assert "ray" not in loaded and "mlflow" not in loaded, loaded


def test_a_local_sweep_runs_the_grid_and_shares_what_a_run_built(tiny_run: dict[str, str]) -> None:
    answer = _call(
        *("sweep", tiny_run["recipe"], "--local", "--data", tiny_run["data"], "--store", tiny_run["store"]),
        *("--set", "name=grid", "--set", "methods.rcl.phis=[0.01]", "--set", "sweep={methods.rcl.objective.temperature: [0.05, 0.2]}"),
    )
    assert answer.exit_code == 0, answer.output
    assert "temperature=0.05" in answer.output and "temperature=0.2" in answer.output
    assert not [line for line in answer.output.splitlines() if "train" in line and "entropy" in line], "entropy encoders were in the store"


def test_a_sweep_in_which_dev_chose_nothing_names_its_report_all_the_same(tiny_run: dict[str, str]) -> None:
    answer = _call(
        *("sweep", tiny_run["recipe"], "--local", "--data", tiny_run["data"], "--store", tiny_run["store"]),
        *("--set", "name=unchosen", "--set", "selection=null", "--set", "methods.rcl.phis=[0.01]", "--set", "seeds=[0, 1]"),
    )
    report = f"  sentdist report unchosen --store {tiny_run['store']}"
    assert answer.exit_code == 0 and answer.output.splitlines()[-2:] == ["Next:", report], answer.output


def test_a_plan_says_how_many_trials_confirm_what_dev_chooses(tmp_path: Path) -> None:
    """They were built without a word in the plan."""
    answer = _call("plan", DEMO, "--store", str(tmp_path), "--set", "confirm_seeds=3")
    reported = "Then the cell that dev chooses and the baseline are trained with 3 fresh seeds (confirm_seeds): not counted above."
    assert reported in " ".join(answer.output.split())
    assert "confirm_seeds" not in _call("plan", DEMO, "--store", str(tmp_path)).output


def test_what_was_run_is_not_planned_again(tiny_run: dict[str, str]) -> None:
    answer = _call("plan", tiny_run["recipe"], "--data", tiny_run["data"], "--store", tiny_run["store"])
    assert "Nothing to build." in answer.output
    more = _call("plan", tiny_run["recipe"], "--data", tiny_run["data"], "--store", tiny_run["store"], "--set", "seeds=[7, 8]")
    assert "at the speed of earlier runs" in more.output


def _cells(output: str) -> dict[str, list[str]]:
    """The table of a plan, by stage."""
    rows = [line.split() for line in output.splitlines()]
    return {row[0]: row[1:] for row in rows if row and row[0] in ("corpus", "train", "bank", "scores") and len(row) > 4}


def test_a_plan_counts_what_is_there_and_what_is_to_build(tiny_run: dict[str, str]) -> None:
    places = ("--data", tiny_run["data"], "--store", tiny_run["store"])
    done = _call("plan", tiny_run["recipe"], *places)
    there = {"corpus": ["1", "–"], "train": ["4", "–"], "bank": ["2", "–"], "scores": ["3", "–"]}
    assert {kind: row[2:4] for kind, row in _cells(done.output).items()} == there, "mentioned, distinct, in the store, to build"
    assert "It adds about" not in done.output
    more = _call("plan", tiny_run["recipe"], *places, "--set", "seeds=[0,7]", "--trials", "--on", "1xH100")
    left = {"corpus": ["4", "1", "1", "–"], "train": ["8", "8", "4", "4"], "bank": ["4", "4", "2", "2"], "scores": ["5", "5", "3", "2"]}
    assert {kind: row[:4] for kind, row in _cells(more.output).items()} == left
    assert "It adds about" in more.output and "Of what is finished, 4 trainings: forecast" in more.output
    marks = [line.rpartition("  (")[2] for line in more.output.splitlines() if line.startswith("scores/")]
    assert marks == [
        f"{'to build' if 'seed 7' in line else 'in the store'})" for line in more.output.splitlines() if line.startswith("scores/")
    ]


def test_what_a_plan_only_guesses_is_reported_as_a_guess(tmp_path: Path) -> None:
    ahead = forecast(sentdist.plan(DEMO, store=tmp_path), ArtifactStore(tmp_path))
    output = _call("plan", DEMO, "--store", str(tmp_path)).output
    reported = {kind.kind: "about" in next(line for line in output.splitlines() if line.split()[:1] == [kind.kind]) for kind in ahead.kinds}
    assert reported == {kind.kind: kind.is_guessed and bool(kind.sentences) for kind in ahead.kinds} and set(reported.values()) == {
        True,
        False,
    }


def test_a_leak_stands_beside_the_score_that_a_run_prints(tiny_run: dict[str, str]) -> None:
    assert "leaked" in tiny_run["output"].partition("main score × 100")[2].partition("Best on dev")[0]


def test_scores_of_two_encoders_are_reported_in_their_order(tiny_run: dict[str, str]) -> None:
    places = [
        line.split()[-1].rpartition("-")[2] for line in _call("store", "list", "train", "--store", tiny_run["store"]).output.splitlines()
    ]
    arguments = ("--tasks", "stsb,scenes-sts", "--data", tiny_run["data"], "--store", tiny_run["store"])
    alone = [_call("evaluate", place, *arguments).output for place in places[:2]]
    scores = [float(next(line for line in output.splitlines() if line.split()[:1] == ["stsb"]).split()[2]) for output in alone]
    row = next(line.split() for line in _call("compare", *places[:2], *arguments).output.splitlines() if line.split()[:1] == ["stsb"])
    assert [float(row[3]), float(row[4])] == scores and float(row[5]) == pytest.approx(scores[0] - scores[1], abs=0.011)


def test_two_stages_are_explained_each_in_its_own_column(tiny_run: dict[str, str]) -> None:
    listed = _call("store", "list", "train", "--store", tiny_run["store"])
    places = [line.split()[-1] for line in listed.output.splitlines()]
    entropy, rcl = (next(place for place in places if place.startswith(f"train/{name}")) for name in ("entropy", "rcl"))
    for first, second in ((entropy, rcl), (rcl, entropy)):
        reported = _call("explain", first, second, "--store", tiny_run["store"]).output
        assert re.findall(r"train/\S+", reported.partition("objective")[0]) == [first, second], reported
        rows = [re.split(r"[\s│]+", line.strip(" │")) for line in reported.splitlines()]
        (named,) = [row for row in rows if row[0] in ("objective.name", "objective.kind")]
        assert named[1:] == [place.removeprefix("train/").partition("+")[0].partition("-")[0] for place in (first, second)], reported


def test_the_store_can_be_looked_at(tiny_run: dict[str, str]) -> None:
    listed = _call("store", "list", "train", "--store", tiny_run["store"])
    places = [line.split()[-1] for line in listed.output.splitlines()]
    assert len(places) >= 3
    shown = _call("store", "show", places[0], "--store", tiny_run["store"])
    record, _, uri = shown.output.rstrip().rpartition("\n")
    assert json.loads(record)["place"] == places[0]
    assert uri.endswith(places[0])
    entropy, rcl = (next(place for place in places if place.startswith(f"train/{name}")) for name in ("entropy", "rcl"))
    explained = _call("explain", entropy, rcl, "--store", tiny_run["store"])
    assert "objective" in explained.output
    assert "one stage" in _call("explain", places[0], places[0], "--store", tiny_run["store"]).output
    assert "0 orphans removed." in _call("store", "gc", "--older-than-hours", "0", "--store", tiny_run["store"]).output


def test_a_trained_encoder_can_be_scored_by_its_key(tiny_run: dict[str, str]) -> None:
    listed = _call("store", "list", "train", "--store", tiny_run["store"])
    place = listed.output.split()[-1]
    arguments = ("--tasks", "stsb", "--data", tiny_run["data"], "--store", tiny_run["store"])
    answer = _call("evaluate", place.rpartition("-")[2], *arguments)
    assert answer.exit_code == 0, answer.output
    assert "spearman" in answer.output and "average" not in answer.output, "one task has no average"
    interval = re.search(r"([\d.-]+) +([\d.-]+) to ([\d.-]+) +\d+", answer.output)
    assert interval is not None and float(interval[2]) < float(interval[1]) < float(interval[3]), "a score has its interval and n"


def test_two_encoders_are_compared_by_the_test_of_reports(tiny_run: dict[str, str]) -> None:
    places = [
        line.split()[-1].rpartition("-")[2] for line in _call("store", "list", "train", "--store", tiny_run["store"]).output.splitlines()
    ]
    arguments = ("--tasks", "stsb", "--data", tiny_run["data"], "--store", tiny_run["store"])
    answer = _call("compare", places[0], places[1], *arguments)
    assert answer.exit_code == 0, answer.output
    assert "(95 % interval " in answer.output and " points " in answer.output
    second = _call("compare", places[0], places[1], *arguments, "--bayes", "--rope", "1").output
    found = re.search(r"stsb: first better ([\d.]+), equal ([\d.]+), second better ([\d.]+)", second)
    assert found is not None and sum(map(float, found.groups())) == pytest.approx(1.0, abs=0.02) and "within 1 points" in second, second
    assert "within 0 points" in _call("compare", places[0], places[1], *arguments, "--bayes", "--rope", "0").output
    assert "two encoders" in _call("compare", places[0], places[0], *arguments).output


@pytest.mark.parametrize(("command", "overrides"), [("sweep", ["sweep={}"]), ("run", ["seeds=[1]"]), ("run", [])])
def test_the_job_that_is_named_has_the_same_overrides(command: str, overrides: list[str], tmp_path: Path) -> None:
    given = [word for override in overrides for word in ("--set", override)]
    asked = [command, DEMO, *given, "--store", str(tmp_path)]
    done = CliRunner().invoke(app, asked, env={"RAY_ADDRESS": "127.0.0.1:1", "RAY_AUTH_MODE": "disabled", "SENTDIST_DATA": None})
    (line,) = [line for line in done.output.splitlines() if "ray job submit" in line]
    words = shlex.split(line.partition("python -m ")[2])
    assert words == [f"rayjobs.{command}", DEMO, *given, "--store", str(tmp_path)]


def test_a_report_is_printed_for_people_and_written_as_markdown(tiny_run: dict[str, str], tmp_path: Path) -> None:
    answer = _call("report", "tiny", "--store", tiny_run["store"], "--out", str(tmp_path))
    assert answer.exit_code == 0 and "Semantic textual similarity" in answer.output, answer.output
    assert not re.search(r"<\w|&lt;|\]\(|^#|\*\*|Citations", answer.output, re.MULTILINE)
    assert "<sub>" in (tmp_path / "report.md").read_text() and "## Citations" in (tmp_path / "report.md").read_text()


def test_a_report_that_cannot_be_written_is_reported(tiny_run: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        refused = _call("report", "tiny", "--store", tiny_run["store"], "--out", str(place))
        assert refused.exit_code == 2 and "expected a folder, which is made" in refused.output, refused.output
    assert (tmp_path / "file").read_text() == "mine"


def test_the_package_is_its_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sentdist", "--version"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "sentdist" in done.stdout, done.stderr


def test_a_store_without_a_sweep_has_nothing_for_mlflow(tmp_path: Path) -> None:
    done = _call("track", "--rebuild", "--store", str(tmp_path), "--uri", "http://127.0.0.1:1")
    assert done.exit_code == 0 and done.output == f"{tmp_path} has no sweep: nothing was written.\n"
