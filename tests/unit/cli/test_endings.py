"""How `run` and `sweep` end: exit codes, what goes to MLflow, what is said and named next; the building itself is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.cli import recipes as building
from sentdist.cli import summary as endings
from sentdist.errors import ResourceError
from sentdist.evaluation.significance import Difference
from sentdist.execution import build_recipe
from sentdist.execution.cluster import connection
from sentdist.plan.stage import Json
from sentdist.plan.unroll import Trial
from sentdist.report import kept_report
from sentdist.report import page_head as sweep_ending
from sentdist.report.comparisons import Comparison
from sentdist.store import searches, sweep
from sentdist.tracking import mlflow_tracker
from sentdist.tracking import search_runs as rebuild
from tests.support.planning import RECIPES
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

DEMO = str(RECIPES / "demo.yaml")
SERVER = "http://127.0.0.1:9"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Result, list[tuple[str, Any]]]]:
    """Runs a command whose building ends as it is set to; gives what it said, and what was done afterwards."""
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(connection, "connect_to_drive", lambda: None)
    done: list[tuple[str, Any]] = []

    def run(
        *words: str, well: tuple[bool, ...] = (True,), reportable: bool = True, uri: str | None = SERVER, is_away: bool = False
    ) -> tuple[Result, list[tuple[str, Any]]]:
        parts = [
            SimpleNamespace(name=f"part{number}", is_well=one, tuned=None, summary=SimpleNamespace(
                is_reportable=reportable, failures=() if one else (SimpleNamespace(key=f"key{number}", message="it diverged"),)))
            for number, one in enumerate(well)
        ]  # fmt: skip

        def carried_out(asked: Any, *given: object, tracking: str | None, **named: object) -> list[SimpleNamespace]:
            done.append(("carried out", tracking))
            done.append(("trials", len(asked.trials)))
            return parts

        monkeypatch.setattr(build_recipe, "build_recipe", carried_out)

        def brought(store: object, tracking: str, name: str, *, failures: dict[str, str]) -> None:
            if is_away:
                raise ResourceError(where="MLflow", found="nobody", expected="an answer", remedy="Look.")
            done.append(("rebuilt", (tracking, name, failures)))

        monkeypatch.setattr(endings, "print_outcome", lambda one, store: done.append(("reported", one.name)))
        monkeypatch.setattr(endings, "print_next", lambda name, store: done.append(("next", name)))
        monkeypatch.setattr(endings, "print_hits", lambda name, context: done.append(("hits", name)))
        monkeypatch.setattr(endings, "publish_report", lambda name, store, tracking: done.append(("report", (name, tracking))))
        monkeypatch.setattr(rebuild, "rebuild", brought)
        done.clear()
        return CliRunner().invoke(app, [*words, "--store", str(tmp_path / "store")], env={"MLFLOW_TRACKING_URI": uri}), done

    return run


Ended = Callable[..., tuple[Result, list[tuple[str, Any]]]]


@pytest.mark.parametrize("more", [(), ("--local",)])
def test_the_exit_code_is_1_if_anything_failed_in_any_part(more: tuple[str, ...], ended: Ended) -> None:
    for command, well, code in (("run", (True, True), 0), ("sweep", (True, False), 1), ("sweep", (False, True), 1)):
        answer, done = ended(command, DEMO, *more, well=well)
        assert answer.exit_code == code, answer.output
        assert [what for name, what in done if name == "reported"] == [f"part{number}" for number in range(len(well))]
        assert done[-2:] == [("next", "part0"), ("hits", "part0")], "also after a failure it is said how to go on"


def test_a_report_goes_to_mlflow_where_there_are_scores_and_of_a_sweep_on_a_cluster(ended: Ended) -> None:
    for words, reportable, is_reported in (
        (("sweep",), True, True), (("sweep",), False, False), (("run",), True, False), (("run", "--local"), True, True), (("sweep", "--local"), False, False),
    ):  # fmt: skip
        _, done = ended(words[0], DEMO, *words[1:], reportable=reportable)
        assert [what for name, what in done if name == "report"] == [("part0", SERVER)] * is_reported, words


def test_what_was_built_here_goes_to_mlflow_if_a_server_is_there(ended: Ended) -> None:
    answer, done = ended("sweep", DEMO, "--local", well=(True, False))
    assert ("carried out", SERVER) in done, "a search is shown while it goes on"
    brought = [what for name, what in done if name == "rebuilt"]
    assert answer.exit_code == 1 and brought == [(SERVER, "part0", {}), (SERVER, "part1", {"key1": "it diverged"})]
    answer, done = ended("sweep", DEMO, "--local", is_away=True)
    assert answer.exit_code == 0 and "`sentdist track --rebuild`" in answer.stderr and not [name for name, _ in done if name == "report"]
    for uri in (None, "file:///tmp/runs"):
        answer, done = ended("sweep", DEMO, "--local", uri=uri)
        assert answer.exit_code == 0 and not {"rebuilt", "report"} & {name for name, _ in done} and not dict(done)["carried out"]
        assert ("MLflow is left out: " in answer.stderr) == bool(uri)


GAIN = Difference(difference=2.0, error=0.1, low=1.8, high=2.2, p=0.001, table_p=0.001)


@pytest.mark.parametrize(
    ("is_search", "found", "is_registered"),
    [(True, None, True), (False, GAIN, True), (True, replace(GAIN, table_p=0.06), False), (False, replace(GAIN, difference=-2.0), False)],
)
def test_the_report_that_is_kept_has_the_trackers_pages_and_goes_there_too(
    is_search: bool, found: Difference | None, is_registered: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The encoder is registered unless a sweep that scores the untouched one does not show it to be better."""
    done: list[tuple[str, Any]] = []
    tracker = SimpleNamespace(
        log_search=lambda search: {"parallel": "a page"}, trials_page="the trials", warnings=["it was slow"],
        log_report=lambda found, folder: done.append(("logged", (found, sorted(path.name for path in folder.iterdir())))),
        register_best=lambda found: "models:/demo/3",
    )  # fmt: skip
    monkeypatch.setattr(mlflow_tracker, "make_tracker", lambda uri, store: tracker if uri == SERVER else None)
    monkeypatch.setattr(searches, "find_search", lambda store, name: "a search" if is_search else None)
    monkeypatch.setattr(sweep, "load_sweep", lambda store, name: name)
    chosen, untouched = SimpleNamespace(label="rcl"), SimpleNamespace(cell="base")
    compared = None if found is None else Comparison(system="rcl", other="base", relation="other", differences={"STS": found})
    gain = None if found is None else sweep_ending.Gain(chosen=chosen, untouched=untouched, column="STS", compared=compared)  # type: ignore[arg-type]
    monkeypatch.setattr(sweep_ending, "gain_over_untouched", lambda sweep, store: gain)

    def keep_report(store: object, name: str, folder: Path, *, links: object) -> str:
        (folder / "report.html").touch()
        done.append(("links", links))
        return f"store/reports/{name}/report.html"

    monkeypatch.setattr(kept_report, "keep_report", keep_report)
    store: Any = SimpleNamespace()
    endings.publish_report("demo", store, SERVER)
    assert done == [("links", {"parallel": "a page"} if is_search else {}), ("logged", ("demo", ["report.html"]))]
    said = capsys.readouterr()
    *lines, registered = said.out.splitlines()
    assert registered == (
        "Registered, as dev chose: models:/demo/3 (@best)" if is_registered else f"Not registered as @best: {gain and gain.line}"
    )
    assert lines == [
        "Report: store/reports/demo/report.html",
        "MLflow, trials best first: the trials",
        *["MLflow, parallel: a page"] * is_search,
    ]
    assert said.err == "MLflow: it was slow\n"


Ending = Callable[..., list[str]]
WELL, ILL = {"base": 3.0, "fine_tuned": 1.0, "rcl": 0.8}, {"base": 0.5, "fine_tuned": 1.0, "rcl": 0.8}  # noise of a method's scores


@pytest.fixture
def ending(tiny_encoder_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ending:
    """What stands below the table of a sweep whose trials came out as they are set to, line by line."""
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "store"))

    def end(noise: dict[str, float], *, skip: Callable[[Trial], bool] = lambda trial: False, **changes: Json) -> list[str]:
        values = tiny_values(tiny_encoder_dir, seeds=[0, 1], **changes)
        plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
        fill_store(context.store, plan, noise=lambda trial: noise[trial.method], num_items={"stsb": 60}, skip=skip)
        endings.print_next(plan.recipe.name, context.store)
        return capsys.readouterr().out.splitlines()

    return end


def _typed(said: list[str]) -> list[str]:
    """The commands that are named next."""
    return [line.split()[1] for line in said[said.index("Next:") + 1 :]]


def test_a_gain_is_shown_by_the_reports_own_test(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    for place, (noise, num_seeds, said) in enumerate(((WELL, 8, "better"), (WELL, 2, "not shown"), (ILL, 8, "worse"))):
        seeds: Json = list(range(num_seeds))
        plan, context = tiny_plan(
            tiny_values(tiny_encoder_dir, seeds=seeds), data=write_data(tmp_path / "data"), store=tmp_path / f"store{place}"
        )
        fill_store(context.store, plan, noise=lambda trial, noise=noise: noise[trial.method], num_items={"stsb": 60})
        found = sweep.load_sweep(context.store, "tiny")
        gain = sweep_ending.gain_over_untouched(found, context.store)
        assert gain is not None and gain.untouched.cell == "base" and gain.is_shown == (said == "better"), gain
        assert gain.line.startswith(f"fine_tuned is {said}"), gain.line
    without = found.model_copy(update={"trials": tuple(trial for trial in found.trials if trial.train is not None)})
    assert sweep_ending.gain_over_untouched(without, context.store) is None, "there is nothing to compare with"


def test_a_sweep_in_which_nothing_is_above_the_untouched_encoder_says_so_and_names_no_export(ending: Ending) -> None:
    """It ended with `export` of an encoder that was worse than the one it began with."""
    said = ending(ILL)
    (line,) = [one for one in said if one.startswith("No trained row is above the untouched encoder on test (stsb): base has ")]
    assert ", the best trained row, rcl, " in line and line.endswith(" Use the encoder as it was, or train otherwise."), line
    assert _typed(said) == ["report"]


def test_a_sweep_without_a_baseline_says_that_nothing_is_tested_and_how_to_name_one(ending: Ending) -> None:
    (line,) = [one for one in ending(WELL, baseline=None) if "baseline" in one]
    assert line.startswith("Nothing is tested against a baseline: say `baseline: base`")
    methods: Json = {"only": {"objective": {"name": "info_nce", "temperature": 0.05}}}
    (alone,) = [one for one in ending({"only": 1.0}, baseline=None, methods=methods) if "baseline" in one]
    assert "`base: {}`" in alone


def test_a_sweep_of_which_a_part_is_finished_names_its_report(ending: Ending) -> None:
    """No cell has all its seeds, so that dev has chosen none."""
    assert ending(WELL, skip=lambda trial: True) == []
    said = ending(WELL, skip=lambda trial: trial.method == "rcl" or trial.seed == 1)
    assert not any(line.startswith("Best on dev: ") for line in said) and _typed(said)[0] == "report"


def test_what_ctrl_c_keeps_is_said_with_the_exit_code_of_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **named: object) -> None:
        raise KeyboardInterrupt

    for name in ("build_within", "build_on_cluster"):
        monkeypatch.setattr(building, name, stopped)
    for command, more, said in (
        ("sweep", (), "go on from their last checkpoints."),
        ("run", ("--local",), "a training that ran starts over."),
    ):
        answer = CliRunner().invoke(app, [command, DEMO, *more, "--store", str(tmp_path / "store")])
        assert answer.exit_code == 130 and answer.output.rstrip().endswith(said), answer.output
