"""What is asked for on the command line reaches what it controls: of commands that need a cluster, servers or the hub, without them."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import sentdist
from sentdist import cli
from sentdist.cli import app, scoring
from sentdist.cli import nearest as nearest_command
from sentdist.cli.options import check_folder
from sentdist.errors import DataError
from sentdist.execution import health
from sentdist.execution.banks import owner
from sentdist.execution.board import client as stop_sweeps
from sentdist.execution.cluster import connection
from sentdist.execution.cluster import nodes as leaving
from sentdist.execution.parallel import embed as parallel_nearest
from sentdist.execution.parallel import file_encoder
from sentdist.inference import planned_scores
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.plan.recipe import load_recipe
from sentdist.plan.specs import EncoderUse
from sentdist.report import evaluated, paper_page, sweep_report
from sentdist.services import servers
from sentdist.services.state import State
from sentdist.store import searches
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking import mlflow_tracker
from sentdist.tracking import search_runs as rebuild
from tests.support.planning import RECIPES
from tests.support.tiny_encoders import SENTENCES

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


def _call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    """Puts something that notes its arguments in the place of a function; answer: what it gives back."""

    def put(module: object, name: str, answer: object = None) -> Calls:
        reported: Calls = []

        def note(*given: Any, **named: Any) -> object:
            reported.append((given, named))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(module, name, note)
        return reported

    return put


@pytest.fixture
def joined(listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is not there."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    listen(connection, "connect")


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize(("words", "name"), [(("stop", "demo"), "demo"), (("stop", "--all"), None)])
def test_the_sweep_that_is_named_is_stopped_and_all_only_where_that_is_said(
    words: tuple[str, ...], name: str | None, listen: Callable[..., Calls]
) -> None:
    reported = listen(stop_sweeps, "stop_sweeps", [stop_sweeps.StoppedSweep(sweep="demo", num_ended=2)])
    done = _call(*words)
    assert done.exit_code == 0 and reported == [((name,), {})], done.output
    assert "demo: stopped, and with it 2 unfinished stages that nothing else needs." in done.output


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize(("more", "within_s", "everywhere"), [((), 60.0, False), (("--within", "30", "--all"), 30.0, True)])
def test_a_host_leaves_in_the_time_that_is_said_and_takes_the_others_along_only_if_asked(
    more: tuple[str, ...], within_s: float, everywhere: bool, listen: Callable[..., Calls]
) -> None:
    reported = listen(leaving, "leave", ["10.0.0.1", "10.0.0.2"])
    done = _call("leave", *more)
    assert done.exit_code == 0 and reported == [((), {"within_s": within_s, "everywhere": everywhere})], done.output
    assert f"2 hosts to go within {within_s:g} s: 10.0.0.1, 10.0.0.2." in done.output


@pytest.mark.parametrize("within", ["inf", "nan", "1e9", "0", "90000"])
def test_a_time_that_is_none_is_refused_before_a_cluster_is_asked(within: str, listen: Callable[..., Calls]) -> None:
    reported = listen(leaving, "leave", ["10.0.0.1"])
    done = _call("leave", "--within", within)
    assert done.exit_code == 2 and not reported and "--within" in done.output, done.output


@pytest.mark.usefixtures("joined")
def test_banks_are_listed_under_their_headings_and_dropped_by_name(listen: Callable[..., Calls]) -> None:
    bank = owner.BankFacts(
        label="phi-0.01", key="abc123", owner="o", encoder="e", num_sentences=12_345, width=384, dtype="float16", num_bytes=9_500_000,
        num_shards=3, nodes=("10.0.0.1", "10.0.0.2"), num_spilled=2, age_s=9.0, idle_s=71.0,
    )  # fmt: skip
    listen(owner, "list_banks", [bank])
    head, row = (line.split("  ") for line in _call("bank", "list").output.splitlines() if "MB" in line or "abc123" in line)
    columns, cells = ([cell.strip() for cell in line if cell.strip()] for line in (head, row))
    assert dict(zip(columns, cells, strict=True)) == {
        "bank": "phi-0.01", "key": "abc123", "sentences": "12,345", "width": "384", "dtype": "float16", "MB": "9.5", "shards": "3",
        "on disk": "2", "idle s": "71", "nodes": "10.0.0.1, 10.0.0.2",
    }  # fmt: skip
    listen(owner, "list_banks", [])
    assert _call("bank", "list").output == "No banks are in the memory of this cluster: they are freed 15 min after their last use.\n"
    reported = listen(owner, "drop_bank", bank)
    assert _call("bank", "drop", "phi").output == "phi-0.01 dropped.\n" and reported == [(("phi",), {})]


@pytest.fixture
def brought_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[State, servers.Hardware]]:
    """What `sentdist up` would start."""
    asked: list[tuple[State, servers.Hardware]] = []

    def up(state: State, hardware: servers.Hardware, print_line: object) -> None:
        asked.append((state, hardware))
        state.prepare()
        state.password_file.write_text("password")

    monkeypatch.setattr(servers, "up", up)
    monkeypatch.setattr(health, "compiler", lambda: health.Finding(subject="compiler", state="good", text="fine"))
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_ENV_OF", "SENTDIST_METRICS"):
        monkeypatch.delenv(name, raising=False)
    return asked


def test_servers_get_the_ports_store_and_hardware_that_were_asked_for(
    brought_up: list[tuple[State, servers.Hardware]], tmp_path: Path
) -> None:
    more = ("--cpus", "2", "--gpus", "0", "--object-store-bytes", "90000000", "--metrics")
    done = _call("up", "--ray-port", "7001", "--dashboard-port", "7002", "--mlflow-port", "7003", *more, "--store", "mine")
    ((state, hardware),) = brought_up
    assert done.exit_code == 0, done.output
    assert (state.ports.ray, state.ports.dashboard, state.ports.mlflow) == (7001, 7002, 7003)
    assert hardware == servers.Hardware(cpus=2, gpus=0, object_store_bytes=90_000_000, metrics=True)
    assert state.store == str(tmp_path / "mine"), "another command may be typed in another folder"
    assert "GPUs       0\n" in done.output


def test_servers_that_nothing_is_said_of_get_what_there_is(brought_up: list[tuple[State, servers.Hardware]], tmp_path: Path) -> None:
    assert _call("up").exit_code == 0
    assert brought_up[0][1] == servers.Hardware() and brought_up[0][0].store == str(tmp_path / ".sentdist/store")


def test_the_password_of_a_store_is_not_printed(brought_up: list[tuple[State, servers.Hardware]]) -> None:
    done = _call("up", "--store", "s3://me:very-secret@host/store")
    assert brought_up[0][0].store == "s3://me:very-secret@host/store"
    assert done.exit_code == 0 and "store      s3://host/store" in done.output and "very-secret" not in done.output


@pytest.mark.parametrize(("state", "code"), [("good", 0), ("note", 0), ("bad", 2)])
def test_servers_are_not_started_where_no_compiler_is(
    state: Any, code: int, brought_up: list[tuple[State, servers.Hardware]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "compiler", lambda: health.Finding(subject="compiler", state=state, text="said of it"))
    done = _call("up")
    assert done.exit_code == code and len(brought_up) == (code == 0), done.output


def test_doctor_ends_with_1_if_one_finding_of_several_is_bad(listen: Callable[..., Calls], tmp_path: Path) -> None:
    for states, code in ((("good", "note"), 0), (("good", "bad", "good"), 1), (("note",), 0), (("bad", "note"), 1)):
        reported = listen(health, "examine", [health.Finding(subject=state, state=state, text="it is so") for state in states])  # type: ignore[arg-type]
        done = _call("doctor", "--store", tmp_path / "store", "--data", tmp_path)
        assert done.exit_code == code and reported == [((str(tmp_path / "store"), tmp_path), {})], (states, done.output)


def test_a_search_over_workers_has_their_number_gpus_and_depth(
    tiny_encoder_dir: Path, tmp_path: Path, listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES))
    reported = listen(parallel_nearest, "search_over_workers", typer.Exit(7))
    made = _call("encode", tiny_encoder_dir, tmp_path / "lines.txt", "--out", tmp_path / "lines.npy")
    assert made.exit_code == 0, made.output
    monkeypatch.chdir(tmp_path)
    loads = listen(LoadedEncoder, "beside_workers", LoadedEncoder.load(EncoderUse(checkpoint=str(tiny_encoder_dir))))
    over = ("--workers", "2", "--gpus-per-worker", "0.5", "--gpu-type", "H100")
    monkeypatch.setattr(nearest_command, "MANY_QUERIES", 1)
    done = _call("search", tiny_encoder_dir, "a dog", "--embeddings", "lines.npy", "-k", "3", *over)
    assert len(loads) == 1, "this machine's GPUs are the workers'"
    assert "1 queries are embedded first, on this machine's CPU" in done.output
    ((_, searched, reader, _), named) = reported[0]
    assert done.exit_code == 7 and named["depth"] == 3, done.output
    assert (named["runtime"].workers, named["runtime"].gpus_per_worker, named["runtime"].gpu_type) == (2, 0.5, "H100")
    assert searched.embeddings == reader.embeddings == tmp_path / "lines.npy", "workers are started in other folders"


def test_a_file_is_encoded_over_workers_only_where_that_is_asked(
    tiny_encoder_dir: Path, tmp_path: Path, listen: Callable[..., Calls]
) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES))
    reported = listen(file_encoder.WorkerEncoding, "on_cluster", typer.Exit(7))
    command = ("encode", tiny_encoder_dir, tmp_path / "lines.txt", "--out", tmp_path / "lines.npy")
    for more, code in (((), 0), (("--gpus-per-worker", "1"), 2), (("--workers", "3", "--gpus-per-worker", "0.5"), 7)):
        done = _call(*command, "--overwrite", *more)
        assert done.exit_code == code, done.output
    (((loaded, runtime), _),) = reported
    assert loaded.encoder.device.type == "cpu", "this machine's GPUs are the workers'"
    assert (runtime.workers, runtime.gpus_per_worker) == (3, 0.5)


@pytest.mark.parametrize(
    ("more", "over_workers", "workers", "gpus"),
    [
        (("--workers", "3", "--gpu-type", "H100"), True, 3, None),
        ((), False, 1, None),
        (("--gpus-per-worker", "0"), False, 1, 0.0),  # in this process, and not on its GPU
        (("--workers", "1"), True, 1, None),
        (("--workers", "3"), True, 3, None),
        (("--workers", "3", "--gpus-per-worker", "0"), True, 3, 0.0),
        (("--workers", "3", "--gpus-per-worker", "0.5"), True, 3, 0.5),
    ],
)
def test_scoring_over_workers_has_their_number_and_gpus(
    more: tuple[str, ...], over_workers: bool, workers: int, gpus: float | None, listen: Callable[..., Calls], tmp_path: Path
) -> None:
    reported = listen(scoring, "_scored", typer.Exit(7))
    done = _call("evaluate", "minilm-l6", "--tasks", " scenes-sts , scenes-faq", "--store", tmp_path, *more)
    (((asked,), named),) = reported
    assert done.exit_code == 7 and named == {"over_workers": over_workers, "is_quiet": False}, done.output
    assert [task.name for task in asked.stage.tasks] == ["scenes-sts", "scenes-faq"]
    assert asked.context.runtime.workers == workers and (gpus is None or asked.context.runtime.gpus_per_worker == gpus)
    assert asked.context.runtime.gpu_type == ("H100" if "--gpu-type" in more else None)


def test_a_precision_that_no_device_here_has_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    done = _call("evaluate", "minilm-l6", "--tasks", "scenes-sts", "--precision", "tf32", "--gpus-per-worker", "0", "--store", tmp_path)
    assert done.exit_code == 2 and "found a computation on CPUs" in done.output, done.output


@pytest.mark.parametrize(("num_groups", "reported"), [(3, "1,200 (3 apart)"), (1200, "1,200")])
def test_a_score_says_how_many_of_its_items_stand_for_themselves(
    num_groups: int, reported: str, listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = evaluated.ScoreLine(task="scenes-sts", measure="spearman", score=80.0, num_items=1200, num_groups=num_groups)
    listen(scoring, "_scored", SimpleNamespace(record=SimpleNamespace(results={})))
    listen(evaluated, "score_lines", [line])
    monkeypatch.setattr(ArtifactStore, "folder", lambda *_: tmp_path)
    shown = _call("evaluate", "minilm-l6", "--tasks", "scenes-sts", "--store", tmp_path).output
    assert reported in shown and ("apart" in reported) == ("apart" in shown)


@pytest.mark.parametrize("refused", [("--tasks", "sts"), ("--workers", "2"), ("--gpus-per-worker", "1"), ("--gpu-type", "L4")])
def test_what_mteb_takes_no_notice_of_is_refused_beside_it(refused: tuple[str, str], tmp_path: Path) -> None:
    done = _call("evaluate", "minilm-l6", "--mteb", "STS12", "--out", tmp_path / "out", *refused)
    assert done.exit_code == 2 and f"found {refused[0]} beside --mteb" in " ".join(done.output.split()), done.output


def test_each_encoder_of_a_comparison_has_its_own_options(listen: Callable[..., Calls], tmp_path: Path) -> None:
    reported = listen(planned_scores, "planned_evaluation", (SimpleNamespace(key="same", tasks=()), None, ()))
    mine, other = ("--revision", "1" * 40, "--pooling", "cls"), ("--other-revision", "2" * 40, "--other-pooling", "max")
    done = _call(
        "compare",
        "o/one",
        "o/other",
        "--tasks",
        "scenes-sts",
        *mine,
        *other,
        "--max-length",
        "9",
        "--precision",
        "bf16",
        "--store",
        tmp_path,
    )
    assert done.exit_code == 2 and "twice" in done.output, done.output
    uses = [given[0] for given, _ in reported]
    assert [(use.checkpoint, use.revision, use.pooling) for use in uses] == [("o/one", "1" * 40, "cls"), ("o/other", "2" * 40, "max")]
    assert {(use.max_length, use.precision) for use in uses} == {(9, "bf16")}


@pytest.mark.parametrize(("uri", "links"), [(None, {}), ("http://127.0.0.1:5001", {"parallel": "a page"})])
def test_the_report_of_a_search_links_to_the_server_that_is_named(
    uri: str | None, links: dict[str, str], listen: Callable[..., Calls], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(searches, "find_search", lambda store, name: "a search")
    asked = listen(mlflow_tracker, "make_tracker", SimpleNamespace(search_pages=lambda search: {"parallel": "a page"}))
    reported = listen(sweep_report, "report_sweep", typer.Exit(7))
    done = _call("report", "demo", "--store", tmp_path, *(("--uri", uri) if uri else ()))
    assert done.exit_code == 7, done.output
    assert reported[0][1] == {"links": links} and [given[0] for given, _ in asked] == ([uri] if uri else [])


def test_who_names_no_sweep_is_shown_those_of_the_store_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENTDIST_STORE", raising=False)
    plan = sentdist.plan(RECIPES / "demo.yaml", store=tmp_path / "mine")
    save_sweep(ArtifactStore(tmp_path / "mine"), sweep_record(plan))
    assert "Name a sweep: demo." in _call("report", "--store", tmp_path / "mine").output
    assert "Run `sentdist sweep RECIPE` first." in _call("report").output


@pytest.mark.parametrize("paper", [False, True])
def test_a_report_that_names_no_folder_lies_in_one_of_its_own(
    paper: bool, listen: Callable[..., Calls], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searches, "find_search", lambda store, name: "a search")
    made = sweep_report.Report(name="mine", lead="", markdown="# Mine\n", html="", files={})
    listen(paper_page if paper else sweep_report, "report_paper" if paper else "report_sweep", made)
    done = _call("report", *(("--paper", "rcl") if paper else ("mine",)), "--store", tmp_path / "store")
    assert done.exit_code == 0 and (tmp_path / ".sentdist/reports/mine/report.md").read_text() == "# Mine\n", done.output


def test_mlflow_is_brought_up_to_date_for_the_sweep_that_is_named(listen: Callable[..., Calls], tmp_path: Path) -> None:
    found = SimpleNamespace(name="demo", num_scored=3, num_trials=5, num_runs=9, not_understood=[])
    for words, name in (((), None), (("demo",), "demo")):
        reported = listen(rebuild, "rebuild", [found])
        done = _call("track", "--rebuild", *words, "--store", tmp_path, "--uri", "http://me:secret@host:1")
        assert done.exit_code == 0 and reported[0][0][1:] == ("http://me:secret@host:1", name)
        assert done.output.startswith("demo: 3 of 5 trials with scores; 9 runs up to date\n") and "secret" not in done.output


def test_nothing_is_tracked_without_being_asked_to_and_the_exit_code_says_so(tmp_path: Path) -> None:
    done = _call("track", "--store", tmp_path)
    assert done.exit_code == 2 and "Nothing done" in done.stderr


def test_every_option_of_tune_stands_in_the_recipe_that_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentdist.execution.tuning import Tuning

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Tuning, "run", lambda self: None)
    rows = [f"{number},a dog of {number} years,it is {number} years old" for number in range(60)]
    (tmp_path / "Meine Möbel.csv").write_text("id,one,two\n" + "\n".join(rows) + "\n")
    shaped = ("--shape", "pairs", "--columns", "one, two", "--max-length", "21", "--trials", "3", "--methods", "contrastive, rcl")
    done = _call("tune", "Meine Möbel.csv", "--budget", "30m", *shaped, "--store", "place", "--out", "here", "--local")
    assert done.exit_code == 0, done.output
    recipe = load_recipe(tmp_path / "here/search.yaml")
    assert recipe.name == "tune-meine-mobel-search" and recipe.search is not None and recipe.search.samples == 3
    assert (recipe.training.max_length, recipe.evaluation.max_length) == (21, 21)
    corpus: Any = recipe.corpus
    assert (corpus.shape, list(corpus.columns), corpus.file) == ("pairs", ["one", "two"], str(tmp_path / "Meine Möbel.csv"))
    assert {name.partition("-")[0] for name in recipe.methods if recipe.methods[name].objective is not None} >= {"contrastive", "rcl"}


@pytest.mark.parametrize("name", ["run", "sweep", "report"])
def test_a_job_is_the_command_of_its_name_with_all_that_follows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[list[str]] = []
    monkeypatch.setattr(cli, "app", lambda words, prog_name: reported.append(words))
    monkeypatch.setattr(sys, "argv", [f"rayjobs/{name}.py", "demo", "--set", "a=1"])
    runpy.run_module(f"rayjobs.{name}", run_name="__main__")
    assert reported == [[name, "demo", "--set", "a=1"]]


def test_the_recipes_of_one_folder_stand_together_those_of_subfolders_after_them() -> None:
    listed = [line.partition(".yaml")[0].rpartition("recipes/")[2] for line in _call("recipes").output.splitlines()]
    assert len(listed) == len(list(RECIPES.rglob("*.yaml")))
    assert [name.count("/") for name in listed] == sorted(name.count("/") for name in listed) and listed[0].count("/") == 0


def test_a_plan_keeps_the_schema_that_its_recipe_names(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("# yaml-language-server: $schema=recipe.schema.json\n" + (RECIPES / "demo.yaml").read_text())
    assert _call("plan", recipe, "--store", tmp_path / "store").exit_code == 0 and (tmp_path / "recipe.schema.json").is_file()


def test_a_link_that_leads_nowhere_is_no_place_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for place in (tmp_path / "link", tmp_path / "link" / "below"):
        with pytest.raises(DataError, match="expected a folder, which is made"):
            check_folder(place)
    check_folder(tmp_path / "new" / "one")
