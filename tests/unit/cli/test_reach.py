"""Every option of every command reaches what it controls: commands are run as they are typed, and what stands at their end is noted."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from sentdist import cli
from sentdist.cli import app
from sentdist.cli.options import check_folder
from sentdist.errors import DataError
from sentdist.execution import health
from sentdist.execution.banks import owner
from sentdist.execution.board import client
from sentdist.execution.cluster import connection, nodes
from sentdist.report import paper_page, sweep_report
from sentdist.services import servers
from sentdist.services.state import State
from sentdist.store import searches
from sentdist.store.store import ArtifactStore
from sentdist.tracking import tracker as tracking
from tests.support.planning import RECIPES

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]
Found = dict[str, tuple[str, object]]
DEMO = str(RECIPES / "demo.yaml")
END = typer.Exit(7)
COMMIT, OTHER_COMMIT = "1" * 40, "2" * 40


class Reach(NamedTuple):
    """words: of a command; ENCODER, FILE and TMP stand for an encoder's folder, a file of two columns and an empty folder.
    spies: functions that only note what they get, as "module:name", with what they give back or raise.
    found: for each option where its value is in what they got: the end of a path of numbers of arguments and names of fields."""

    words: str
    spies: dict[str, object]
    found: Found


ON_RECIPE, PLANNED = f"{DEMO} --set seeds=[7] --store TMP/store --data TMP", "sentdist.stages.planning.planned:requested"
OF_RECIPE: Found = {"--set": ("0.seeds", (7,)), "--store": ("store", "TMP/store"), "--data": ("data", Path("TMP"))}
OVER_WORKERS = "--workers 3 --gpus-per-worker 0.5 --gpu-type H100"
OF_WORKERS: Found = {"--workers": ("workers", 3), "--gpus-per-worker": ("gpus_per_worker", 0.5), "--gpu-type": ("gpu_type", "H100")}
USED = f"--revision {COMMIT} --pooling cls --max-length 9 --precision bf16"
OF_USE: Found = {
    "--revision": ("revision", COMMIT), "--pooling": ("pooling", "cls"), "--max-length": ("max_length", 9), "--precision": ("precision", "bf16"),
}  # fmt: skip
ON_FILE = "FILE --encoder enc --columns anchor=one,positive=two --encoding utf-8 --max-length 21 --data TMP --out here"
OF_FILE: Found = {
    "--encoder": ("encoders.0", "enc"), "--columns": ("fields.columns", {"anchor": "one", "positive": "two"}),
    "--encoding": ("fields.encoding", "utf-8"), "--max-length": ("max_length", 21), "--data": ("data", Path("TMP")),
}  # fmt: skip
PROMPTS = "--prompt sp: --query-prompt qp: --document-prompt dp:"
SAME = SimpleNamespace(stage=SimpleNamespace(key="same"), notes=(), prompts=())
LOADED = SimpleNamespace(with_prompt=lambda text: SimpleNamespace(query_prompt=text))
SHARED, LOAD = "sentdist.execution.parallel.sharing:shared_out", "sentdist.inference.ready_encoder:LoadedEncoder.load"
REQUEST, SCORES = "sentdist.stages.planning.planned:own_request", "sentdist.inference.planned_scores:PlannedScores.of"

REACHES = [
    Reach(f"plan {ON_RECIPE}", {PLANNED: END}, OF_RECIPE),
    Reach(f"run {ON_RECIPE}", {PLANNED: END}, OF_RECIPE),
    Reach(f"sweep {ON_RECIPE}", {PLANNED: END}, OF_RECIPE),
    Reach(f"run {DEMO} --local --store TMP", {"sentdist.cli.recipes:carry_out": END}, {"--local": ("local", True)}),
    Reach(f"sweep {DEMO} --local --store TMP", {"sentdist.cli.recipes:carry_out": END}, {"--local": ("local", True)}),
    Reach(f"leaks {ON_RECIPE}", {"sentdist.stages.planning.planned:planned": END}, OF_RECIPE | {"--set": ("overrides", ["seeds=[7]"])}),
    Reach(f"submit {ON_RECIPE}", {"sentdist.execution.jobs:use_servers_of": None, "sentdist.execution.jobs:submit_sweep": END},
          {"--set": ("1.0", f"rayjobs.sweep {DEMO} --set 'seeds=[7]'"), "--store": ("SENTDIST_STORE", "TMP/store"), "--data": ("SENTDIST_DATA", "TMP")}),
    Reach(f"train {ON_FILE} --store here", {REQUEST: None, "sentdist.api.recipes:trained_here": END},
          OF_FILE | {"--out": ("out", Path("here")), "--store": ("store", "here")}),
    Reach(f"tune {ON_FILE} --budget 30m --trials 3 --methods contrastive,rcl --name mine --local",
          {REQUEST: SimpleNamespace(asked=SimpleNamespace(recipe_name="mine", file="f")), "sentdist.cli.train:_check_folder": None,
           "sentdist.execution.tuning:Tuning": END},
          OF_FILE | {"--budget": ("hours", 0.5), "--trials": ("trials", 3), "--methods": ("methods", ["contrastive", "rcl"]), "--name": ("name", "mine"),
                     "--out": ("1.0", Path("here/search.yaml")), "--local": ("2.1", "LocalBackend")}),
    Reach(f"evaluate o/one --tasks stsb,scenes-faq {USED} {PROMPTS} {OVER_WORKERS} --data TMP --store TMP/store", {SCORES: END},
          OF_USE | OF_WORKERS | {"--tasks": ("0.1", ["stsb", "scenes-faq"]), "--prompt": ("prompts.sentence", "sp:"), "--data": ("data", Path("TMP")),
                                 "--query-prompt": ("prompts.query", "qp:"), "--document-prompt": ("prompts.document", "dp:")}),
    Reach("evaluate ENCODER --mteb STS12 --out here --format json", {"sentdist.cli.scoring:score_by_mteb": END},
          {"--mteb": ("0.1", ["STS12"]), "--out": ("0.2", Path("here")), "--format": ("output", "json")}),
    Reach(f"compare o/one o/two --tasks stsb {USED} {PROMPTS} --other-revision {OTHER_COMMIT} --other-pooling max --other-prompt osp: "
          "--other-query-prompt oqp: --other-document-prompt odp: --data TMP --store TMP/store", {SCORES: SAME},
          OF_USE | {"--tasks": ("1.1", ["stsb"]), "--revision": ("0.0.revision", COMMIT), "--pooling": ("0.0.pooling", "cls"), "--prompt": ("0.prompts.sentence", "sp:"), "--query-prompt": ("0.prompts.query", "qp:"),
                    "--document-prompt": ("0.prompts.document", "dp:"), "--other-revision": ("1.0.revision", OTHER_COMMIT), "--data": ("1.data", Path("TMP")),
                    "--other-pooling": ("1.0.pooling", "max"), "--other-prompt": ("1.prompts.sentence", "osp:"),
                    "--other-query-prompt": ("1.prompts.query", "oqp:"), "--other-document-prompt": ("1.prompts.document", "odp:")}),
    Reach("compare ENCODER minilm-l6 --mteb STS12 --out here --format json --bayes --rope 2", {"sentdist.cli.scoring:compare_by_mteb": END},
          {"--mteb": ("0.1", ["STS12"]), "--out": ("0.2", Path("here")), "--format": ("output", "json"), "--bayes": ("0.3", "partial"),
           "--rope": ("0.3.rope", 2.0)}),
    Reach(f"encode ENCODER FILE --column one --out out.npy {OVER_WORKERS}", {SHARED: END}, OF_WORKERS),
    Reach(f"encode o/one FILE --column one --id two --normalize --prompt sp: --dtype float16 --out out.parquet {USED}",
          {"sentdist.cli.encoders:find_checkpoint": Path("ENCODER"), LOAD: LOADED, SHARED: nullcontext(None),
           "sentdist.inference.ready_encoder:encode_file": END},
          OF_USE | {"--column": ("3.1.columns", ("one",)),
           "--id": ("3.1.id_column", "two"), "--normalize": ("normalize", True), "--prompt": ("prompt", "sp:"), "--dtype": ("dtype", "float16"),
           "--out": ("3.2", Path("out.parquet"))}),
    Reach(f"search ENCODER dog --embeddings made.npy {OVER_WORKERS}", {SHARED: END}, OF_WORKERS),
    Reach("search ENCODER dog --embeddings made.npy", {LOAD: LOADED, "sentdist.inference.nearest:SearchedFiles.check": END},
          {"--embeddings": ("embeddings", Path("TMP/made.npy"))}),
    Reach(f"search o/one --queries FILE --query-column two --corpus FILE --column one --id two --show two -k 3 --relation a=2 --query-prompt qp: --document-prompt dp: {USED}",
          {"sentdist.cli.nearest:find_checkpoint": Path("ENCODER"), SHARED: nullcontext(None), LOAD: LOADED,
           "sentdist.inference.nearest:SearchedFiles.check": None, "sentdist.inference.nearest:embed_queries": SimpleNamespace(vectors=None),
           "sentdist.inference.nearest:SameEncoder.of": None, "sentdist.inference.nearest:CorpusSearch": END},
          OF_USE | {"--corpus": ("texts.files.files.0", Path("FILE")),
           "--column": ("texts.columns", ("one",)), "--id": ("texts.id_column", "two"), "--show": ("texts.shown", ("two",)), "-k": ("depth", 3), "--relation": ("4.2.a", 2.0),
           "--queries": ("4.1.0", "the dog runs"), "--query-column": ("4.1.1", "birds"), "--query-prompt": ("query_prompt", "qp:"),
           "--document-prompt": ("2.0.prompt", "dp:")}),
    Reach(f"similarity o/one FILE --column one --column two --relation a=2 --directions one --prompt sp: --out out.csv {USED}",
          {"sentdist.cli.encoders:find_checkpoint": Path("ENCODER"), LOAD: LOADED, "sentdist.inference.similarity:pair_scorer": LOADED,
           "sentdist.inference.similarity:pair_batches": None, "sentdist.inference.similarity:write_scores": END},
          OF_USE | {"--column": ("3.0.columns", ("one", "two")),
           "--relation": ("2.1.a", 2.0), "--directions": ("directions", "one"), "--prompt": ("1.0.prompt", "sp:"), "--out": ("4.2", Path("out.csv"))}),
    Reach(f"export o/one --to new --revision {COMMIT} --pooling cls",
          {"sentdist.cli.encoders:find_checkpoint": Path("ENCODER"), "sentdist.api.encoders:export_encoder": END},
          {"--to": ("1.1", Path("new")), "--revision": ("1.0.revision", COMMIT), "--pooling": ("1.0.pooling", "cls")}),
    Reach("stop --all", {"sentdist.execution.cluster.connection:connect": None, "sentdist.execution.board.client:stop_sweeps": END}, {"--all": ("1.0", None)}),
    Reach("leave --within 30 --all", {"sentdist.execution.cluster.connection:connect": None, "sentdist.execution.cluster.nodes:leave": END},
          {"--within": ("within_s", 30.0), "--all": ("everywhere", True)}),
    Reach("track --rebuild mine --uri http://h:1 --store TMP", {"sentdist.tracking.tracker:rebuild": END}, {"--rebuild": ("0.2", "mine"), "--uri": ("0.1", "http://h:1")}),
    Reach("report --paper rcl --store TMP --out here", {"sentdist.report.paper_page:report_paper": END}, {"--paper": ("0.1", "rcl")}),
    Reach("doctor --store TMP/store --data TMP", {"sentdist.execution.health:examine": END}, {"--data": ("0.1", Path("TMP"))}),
    Reach("pin o/one --revision main", {"sentdist.inference.export:commit_of": END}, {"--revision": ("revision", "main")}),
    Reach("up --ray-port 7001 --dashboard-port 7002 --mlflow-port 7003 --cpus 2 --gpus 0 --object-store-bytes 90000000 --metrics",
          {"sentdist.services.state:state_of": SimpleNamespace(), "sentdist.services.servers:up": END},
          {"--ray-port": ("asked.ray", 7001), "--dashboard-port": ("asked.dashboard", 7002), "--mlflow-port": ("asked.mlflow", 7003), "--cpus": ("cpus", 2),
           "--gpus": ("gpus", 0), "--object-store-bytes": ("object_store_bytes", 90_000_000), "--metrics": ("metrics", True)}),
]  # fmt: skip

# Options whose effect stands in a test of the command; --store of every command in test_exit_codes.
ELSEWHERE = {
    "plan": "--trials --on --format", "objectives": "--markdown", "schema": "--out", "leaks": "--out", "encode": "--overwrite",
    "similarity": "--overwrite", "search": "--format", "export": "--format", "push": "--dry-run --private --licence --language",
    "report": "--out", "store drop": "--alone --yes", "store gc": "--older-than-hours --dry-run",
}  # fmt: skip


def _call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    """Puts something that notes its arguments in the place of a function. answer: what it gives back or raises."""

    def put(module: object, name: str, answer: object = None, calls: Calls | None = None) -> Calls:
        reported: Calls = [] if calls is None else calls

        def note(*given: Any, **named: Any) -> object:
            reported.append((given, named))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(module, name, note)
        return reported

    return put


def _all_fields(value: object, path: str, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Everything in a value, however deep, with the path to it."""
    yield path, value
    if id(value) in seen or isinstance(value, str | bytes | Path):
        return
    seen.add(id(value))
    if isinstance(value, partial):
        value = value.keywords
    if isinstance(value, Mapping):
        parts = [(str(name), one) for name, one in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(str(place), one) for place, one in enumerate(value)]
    elif isinstance(value, BaseModel):
        parts = list(value)
    elif is_dataclass(value):
        parts = [(one.name, getattr(value, one.name)) for one in fields(value)]
    else:
        parts = list(vars(value).items()) if isinstance(value, SimpleNamespace | ArtifactStore) else []
    for name, one in parts:
        yield from _all_fields(one, f"{path}.{name}", seen)


@pytest.mark.parametrize("row", REACHES, ids=lambda row: " ".join(row.words.split()[:1]))
def test_what_is_asked_for_reaches_what_it_controls(
    row: Reach, listen: Callable[..., Calls], tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI", "SENTDIST_METRICS", "SENTDIST_ENV_OF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.csv").write_text("one,two\na man,the dog runs\nbirds sing,birds\n")
    places = {"TMP": str(tmp_path), "FILE": str(tmp_path / "file.csv"), "ENCODER": str(tiny_encoder_dir)}

    def placed(value: Any) -> Any:
        text = reduce(lambda found, name: found.replace(name, places[name]), places, str(value))
        return type(value)(text) if isinstance(value, str | Path) else value

    calls: Calls = []
    for spy, answer in row.spies.items():
        module, _, name = spy.partition(":")
        *holders, last = name.split(".")
        listen(reduce(getattr, holders, import_module(module)), last, placed(answer), calls)
    done = _call(*placed(row.words).split(" "))
    reported = [
        one for number, (given, named) in enumerate(calls) for part in (given, named) for one in _all_fields(part, str(number), set())
    ]
    for option, (path, value) in row.found.items():
        values = [one for at, one in reported if f".{at}".endswith(f".{path}")]
        assert placed(value) in values or value in [type(one).__name__ for one in values], (option, path, values, done.output)


def test_every_option_stands_in_a_row_above_or_in_a_test_of_its_command() -> None:
    def options(command: Any, words: str) -> Iterator[tuple[str, str]]:
        for name, below in getattr(command, "commands", {}).items():
            yield from options(below, f"{words} {name}".strip())
        if not hasattr(command, "commands"):
            yield from ((words, one.opts[0]) for one in command.params if one.param_type_name == "option" and one.opts[0] != "--store")

    shown = {(row.words.split()[0], option) for row in REACHES for option in row.found if option != "--store"}
    shown |= {(command, option) for command, named in ELSEWHERE.items() for option in named.split()}
    found = set(options(typer.main.get_command(app), ""))
    assert found - shown == set() and shown - found == set()


@pytest.fixture
def joined(listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is not there."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    listen(connection, "connect")


@pytest.mark.usefixtures("joined")
def test_commands_of_a_cluster_say_what_they_have_done(listen: Callable[..., Calls]) -> None:
    reported = listen(client, "stop_sweeps", [client.StoppedSweep(sweep="demo", num_ended=2)])
    assert "demo: stopped, with 2 unfinished stages" in _call("stop", "demo").output and reported == [(("demo",), {})]
    left = listen(nodes, "leave", ["10.0.0.1", "10.0.0.2"])
    assert "2 hosts to go within 60 s: 10.0.0.1, 10.0.0.2." in _call("leave").output
    assert left.pop() == ((), {"within_s": 60.0, "everywhere": False})
    for within in ("inf", "nan", "0", "90000"):
        assert _call("leave", "--within", within).exit_code == 2 and not left


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
    assert _call("bank", "list").output.startswith("No banks")
    reported = listen(owner, "drop_bank", bank)
    assert _call("bank", "drop", "phi").output == "phi-0.01 dropped.\n" and reported == [(("phi",), {})]


@pytest.mark.parametrize(("compiler", "code"), [("note", 0), ("bad", 2)])
def test_servers_are_started_where_a_compiler_is_and_a_password_is_not_printed(
    compiler: Any, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[State] = []

    def up(state: State, hardware: servers.Hardware, print_line: object) -> None:
        asked.append(state)
        state.prepare()
        state.password_file.write_text("password")

    monkeypatch.setattr(servers, "up", up)
    monkeypatch.setattr(health, "compiler", lambda: health.Finding(subject="compiler", state=compiler, text="said of it"))
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_ENV_OF"):
        monkeypatch.delenv(name, raising=False)
    for store, root, shown in (
        ("mine", str(tmp_path / "mine"), str(tmp_path / "mine")),
        ("s3://me:very-secret@h/s", "s3://me:very-secret@h/s", "s3://h/s"),
    ):
        done = _call("up", "--store", store)
        assert done.exit_code == code and [one.store for one in asked[-1:]] == [root] * (code == 0), done.output
        assert (f"store      {shown}\n" in done.output) == (code == 0) and "very-secret" not in done.output


@pytest.mark.parametrize("refused", [("--tasks", "sts"), ("--workers", "2")])
def test_what_mteb_takes_no_notice_of_is_refused_beside_it(refused: tuple[str, str], tmp_path: Path) -> None:
    done = _call("evaluate", "minilm-l6", "--mteb", "STS12", "--out", tmp_path / "out", *refused)
    assert done.exit_code == 2 and f"found {refused[0]} beside --mteb" in " ".join(done.output.split()), done.output


def test_a_report_lies_in_a_folder_of_its_own(listen: Callable[..., Calls], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searches, "find_search", lambda store, name: "a search")
    made = sweep_report.Report(name="mine", lead="", markdown="# Mine\n", html="", files={})
    listen(sweep_report, "report_sweep", made)
    done = _call("report", "mine", "--store", tmp_path / "store")
    assert done.exit_code == 0 and (tmp_path / ".sentdist/reports/mine/report.md").read_text() == "# Mine\n", done.output
    listen(paper_page, "report_paper", made)
    done = _call("report", "--paper", "rcl", "--store", tmp_path / "store", "--out", "there")
    assert done.exit_code == 0 and Path("there/report.md").is_file()


def test_mlflow_is_brought_up_to_date_only_where_that_is_asked(listen: Callable[..., Calls], tmp_path: Path) -> None:
    found = SimpleNamespace(name="demo", num_scored=3, num_trials=5, num_runs=9, not_understood=[])
    reported = listen(tracking, "rebuild", [found])
    done = _call("track", "--rebuild", "--store", tmp_path, "--uri", "http://me:secret@host:1")
    assert done.exit_code == 0 and reported[0][0][1:] == ("http://me:secret@host:1", None) and "secret" not in done.output
    assert done.output.startswith("demo: 3 of 5 trials with scores; 9 runs up to date\n")
    assert _call("track", "--store", tmp_path).exit_code == 2 and len(reported) == 1
    listen(tracking, "rebuild", [])
    assert _call("track", "--rebuild", "--store", tmp_path).output == f"{tmp_path} has no sweep: nothing was written.\n"


def test_a_job_is_the_command_of_its_name_with_all_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[list[str]] = []
    monkeypatch.setattr(cli, "app", lambda words, prog_name: reported.append(words))
    for name in ("run", "sweep", "report"):
        monkeypatch.setattr(sys, "argv", [f"rayjobs/{name}.py", "demo", "--set", "a=1"])
        runpy.run_module(f"rayjobs.{name}", run_name="__main__")
        assert reported.pop() == [name, "demo", "--set", "a=1"]


def test_a_plan_keeps_the_schema_that_its_recipe_names(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("# yaml-language-server: $schema=recipe.schema.json\n" + Path(DEMO).read_text())
    assert _call("plan", recipe, "--store", tmp_path / "store").exit_code == 0 and (tmp_path / "recipe.schema.json").is_file()


def test_a_folder_is_made_where_nothing_else_stands(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "link", tmp_path / "link" / "below", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataError) as refused:
            check_folder(place)
        assert refused.value.where == f"--out {place}"
    check_folder(tmp_path / "new" / "one")
