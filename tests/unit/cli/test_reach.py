"""Every option of every command reaches what it controls: commands are run as they are typed, and what stands at their end is noted."""

from __future__ import annotations

import json
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
from sentdist.report import paper_page, sweep_report
from sentdist.run import health
from sentdist.run.banks import owner
from sentdist.run.board import client
from sentdist.run.cluster import connection, nodes
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
COMMIT = "1" * 40


class Reach(NamedTuple):
    """words: of a command; ENCODER, FILE and TMP stand for an encoder's folder, a file of two columns and an empty folder.
    spies: functions that only note what they get, as "module:name", with what they give back or raise.
    found: for each option where its value is in what they got: the end of a path of numbers of arguments and names of fields."""

    words: str
    spies: dict[str, object]
    found: Found


ON_RECIPE, PLANNED = f"{DEMO} --set seeds=[7] --store TMP/store --data TMP", "sentdist.stages.planning.planned:requested"
OF_RECIPE: Found = {"--set": ("0.seeds", (7,)), "--store": ("store", "TMP/store"), "--data": ("data", Path("TMP"))}
USED = f"o/one?revision={COMMIT}&pooling=cls&max_length=9&precision=bf16&normalize=true&prompt=sp:&query_prompt=qp:&document_prompt=dp:"
OF_USE: Found = {
    key: (key, value)
    for key, value in {"revision": COMMIT, "pooling": "cls", "max_length": 9, "precision": "bf16", "normalize": True}.items()
} | {"prompt": ("prompts.sentence", "sp:"), "query_prompt": ("prompts.query", "qp:"), "document_prompt": ("prompts.document", "dp:")}
START = f"--encoder enc?revision={COMMIT}&pooling=cls&max_length=21"
ON_FILE = f"FILE {START} --columns anchor=one,positive=two --encoding utf-8 --out here"
OF_FILE: Found = {
    "--encoder": ("encoders.0.max_length", 21), "--columns": ("fields.columns", {"anchor": "one", "positive": "two"}),
    "--encoding": ("fields.encoding", "utf-8"),
}  # fmt: skip
SAME = SimpleNamespace(stage=SimpleNamespace(key="same"), notes=(), prompts=())
LOADED = SimpleNamespace(with_prompt=lambda text: SimpleNamespace(query_prompt=text))
SHARED, LOAD = "sentdist.run.parallel.sharing:shared_out", "sentdist.inference.ready_encoder:LoadedEncoder.load"
REQUEST, SCORES = "sentdist.stages.planning.planned:own_request", "sentdist.inference.planned_scores:PlannedScores.of"
TO_SEARCH = {SHARED: nullcontext(None), LOAD: LOADED, "sentdist.inference.nearest:SearchedFiles.check": None}

REACHES = [
    Reach(f"plan {ON_RECIPE}", {PLANNED: END}, OF_RECIPE),
    Reach(f"sweep {ON_RECIPE} --no-grid", {PLANNED: END}, OF_RECIPE | {"--no-grid": ("0.sweep", {})}),
    Reach(f"sweep {DEMO} --local --store TMP", {"sentdist.cli.recipes:build_within": END}, {"--local": ("0.2", None)}),
    Reach(f"submit {DEMO} --set seeds=[7]", {"sentdist.run.jobs:use_servers_of": None, "sentdist.run.jobs:submit_sweep": END},
          {"--set": ("1.0", f"rayjobs.sweep {DEMO} --set 'seeds=[7]'")}),
    Reach(f"train {ON_FILE} --store here", {REQUEST: None, "sentdist.api.recipes:trained_here": END},
          OF_FILE | {"--out": ("out", Path("here")), "--store": ("store", "here")}),
    Reach(f"tune {ON_FILE} --budget 30m --trials 3 --methods contrastive,rcl --name mine --local",
          {REQUEST: SimpleNamespace(asked=SimpleNamespace(recipe_name="mine", file="f")), "sentdist.cli.train:_check_folder": None,
           "sentdist.run.tune:Tuning": END},
          OF_FILE | {"--budget": ("hours", 0.5), "--trials": ("trials", 3), "--methods": ("methods", ["contrastive", "rcl"]), "--name": ("name", "mine"),
                     "--out": ("1.0", Path("here/search.yaml")), "--local": ("2.1", "LocalBackend")}),
    Reach(f"evaluate {USED} --tasks stsb,scenes-faq --workers 3 --data TMP --store TMP/store", {SCORES: END},
          OF_USE | {"--tasks": ("0.1", ["stsb", "scenes-faq"]), "--workers": ("runtime.workers", 3), "--data": ("data", Path("TMP"))}),
    Reach("evaluate ENCODER --mteb STS12 --out here --format json", {"sentdist.cli.scoring:_score_by_mteb": END},
          {"--mteb": ("0.1", ["STS12"]), "--out": ("0.2", Path("here")), "--format": ("is_json", True)}),
    Reach(f"compare o/two {USED} --tasks stsb --data TMP --store TMP/store", {SCORES: SAME},
          OF_USE | {"--tasks": ("1.1", ["stsb"]), "--data": ("1.data", Path("TMP"))}),
    Reach(f"encode {USED} FILE --column one --id two --workers 3 --dtype float16 --out out.parquet",
          {"sentdist.cli.encoders:find_checkpoint": Path("ENCODER"), SHARED: nullcontext(None), LOAD: LOADED,
           "sentdist.inference.ready_encoder:encode_file": END},
          OF_USE | {"--column": ("columns", ("one",)), "--id": ("id_column", "two"), "--dtype": ("dtype", "float16"), "--workers": ("workers", 3),
                    "--out": ("2", Path("out.parquet"))}),
    Reach(f"encode {USED} FILE --pairs --column one --column two --relation a=2 --out out.csv",
          {"sentdist.cli.encoders:find_checkpoint": Path("ENCODER"), LOAD: LOADED, "sentdist.inference.similarity:pair_scorer": LOADED,
           "sentdist.inference.similarity:pair_batches": None, "sentdist.inference.similarity:write_scores": END},
          {"--column": ("columns", ("one", "two")), "--relation": ("1.a", 2.0), "--pairs": ("0.prompt", "sp:"), "--out": ("2", Path("out.csv"))}),
    Reach("search ENCODER dog --embeddings made.npy", {LOAD: LOADED, "sentdist.inference.nearest:SearchedFiles.check": END},
          {"--embeddings": ("embeddings", Path("TMP/made.npy"))}),
    Reach(f"search {USED} --queries QUERIES --corpus FILE --column one --show two -k 3 --relation a=2 --workers 3",
          {"sentdist.cli.nearest:find_checkpoint": Path("ENCODER"), "sentdist.inference.ready_encoder:LoadedEncoder.beside_workers": LOADED, **TO_SEARCH,
           "sentdist.inference.nearest:embed_queries": SimpleNamespace(vectors=None), "sentdist.inference.nearest:SameEncoder.of": None,
           "sentdist.inference.nearest:CorpusSearch": END},
          OF_USE | {"--corpus": ("texts.files.files.0", Path("FILE")), "--column": ("texts.columns", ("one",)), "--show": ("texts.shown", ("two",)),
                    "-k": ("depth", 3), "--relation": ("2.a", 2.0), "--queries": ("1.0", "one dog"), "--workers": ("workers", 3)}),
    Reach(f"export {USED} --out new", {"sentdist.cli.encoders:find_checkpoint": Path("ENCODER"), "sentdist.api.encoders:export_encoder": END},
          OF_USE | {"--out": ("1.1", Path("new"))}),
    Reach("stop --all", {"sentdist.run.cluster.connection:connect": None, "sentdist.run.board.client:stop_sweeps": END}, {"--all": ("1.0", None)}),
    Reach("report mine --rebuild-mlflow --store TMP", {"sentdist.tracking.tracker:rebuild": END}, {"--rebuild-mlflow": ("0.2", "mine")}),
    Reach("report --paper rcl --store TMP --out here", {"sentdist.report.paper_page:report_paper": END}, {"--paper": ("0.1", "rcl")}),
    Reach("up --cpus 2 --gpus 0", {"sentdist.services.state:state_of": SimpleNamespace(), "sentdist.services.servers:up": END},
          {"--cpus": ("cpus", 2), "--gpus": ("gpus", 0)}),
]  # fmt: skip

# Options whose effect stands in a test of the command; --store of every command in test_exit_codes.
ELSEWHERE = {
    "plan": "--on --format --leaks", "encode": "--overwrite", "search": "--format", "compare": "--format", "list": "--format",
    "export": "--to-hub --send --onnx --licence", "report": "--out", "store drop": "--yes", "store gc": "--dry-run",
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
    (tmp_path / "queries.txt").write_text("one dog\n")
    places = {
        "TMP": str(tmp_path),
        "QUERIES": str(tmp_path / "queries.txt"),
        "FILE": str(tmp_path / "file.csv"),
        "ENCODER": str(tiny_encoder_dir),
    }

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

    shown = {(row.words.split()[0], option) for row in REACHES for option in row.found if option.startswith("-") and option != "--store"}
    shown |= {(command, option) for command, named in ELSEWHERE.items() for option in named.split()}
    found = set(options(typer.main.get_command(app), ""))
    assert found - shown == set() and shown - found == set()


@pytest.fixture
def joined(listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is not there."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    listen(connection, "connect")


@pytest.mark.usefixtures("joined")
def test_commands_of_a_cluster_say_what_they_have_done(listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch) -> None:
    reported = listen(client, "stop_sweeps", [client.StoppedSweep(sweep="demo", num_ended=2)])
    assert "demo: stopped, with 2 unfinished stages" in _call("stop", "demo").output and reported == [(("demo",), {})]
    left = listen(nodes, "leave", ["10.0.0.1", "10.0.0.2"])
    monkeypatch.setattr(sys, "argv", ["leave", "--within", "30", "--all"])
    runpy.run_module("rayjobs.leave", run_name="__main__")
    assert left == [((), {"within_s": 30, "everywhere": True})]
    bank = owner.BankFacts(
        label="phi-0.01", key="abc123", owner="o", encoder="e", num_sentences=12_345, width=384, dtype="float16", num_bytes=9_500_000,
        num_shards=3, nodes=("10.0.0.1", "10.0.0.2"), num_spilled=2, age_s=9.0, idle_s=71.0,
    )  # fmt: skip
    listen(owner, "list_banks", [bank])
    (found,) = json.loads(_call("list", "banks", "--format", "json").output)
    assert found["label"] == "phi-0.01" and found["num_sentences"] == 12_345 and found["nodes"] == "10.0.0.1, 10.0.0.2"
    listen(owner, "list_banks", [])
    assert _call("list", "banks").output == "No banks.\n"


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


def test_mlflow_is_brought_up_to_date_where_that_is_asked(
    listen: Callable[..., Calls], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@host:1")
    found = SimpleNamespace(name="demo", num_scored=3, num_trials=5, num_runs=9, not_understood=[])
    reported = listen(tracking, "rebuild", [found])
    done = _call("report", "--rebuild-mlflow", "--store", tmp_path)
    assert done.exit_code == 0 and reported[0][0][1:] == ("http://me:secret@host:1", None) and "secret" not in done.output
    assert done.output.startswith("demo: 3 of 5 trials with scores; 9 runs up to date\n")


@pytest.mark.parametrize("what", ["objectives", "tasks", "recipes", "encoders", "sweeps", "artifacts", "train"])
def test_each_list_has_the_same_rows_as_a_table_and_as_json(what: str, tmp_path: Path) -> None:
    rows = json.loads(_call("list", what, "--format", "json", "--store", tmp_path).output)
    lines = _call("list", what, "--store", tmp_path).output.splitlines()
    assert len(lines) == len(rows) + 1 if rows else lines == [f"No {what}."]
    assert all(str(value) in line for row, line in zip(rows, lines[1:], strict=False) for value in row.values() if value is not None)


def test_a_job_is_the_command_of_its_name_with_all_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[list[str]] = []
    monkeypatch.setattr(cli, "app", lambda words, prog_name: reported.append(words))
    for name in ("sweep", "report"):
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
