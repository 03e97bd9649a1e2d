"""Every option of every command reaches what it controls: commands are run as they are typed, and what stands at their end is noted."""

from __future__ import annotations

import inspect
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from sentdist import cli
from sentdist.api import recipes as api_recipes
from sentdist.cli import app, encoders, recipes
from sentdist.inference.opening import parse_encoder
from sentdist.run import bank_owner as owner
from sentdist.run import client, connection, health, losses, sharing, tune
from sentdist.services import servers
from sentdist.services.state import State
from sentdist.stages import planned
from tests.support.planning import RECIPES

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]
DEMO = str(RECIPES / "demo.yaml")


# Options whose effect stands in a test of the command; --store of every command in test_exit_codes.
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


@pytest.fixture
def joined(listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is not there."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    listen(connection, "connect")


@pytest.mark.usefixtures("joined")
def test_commands_of_a_cluster_say_what_they_have_done(listen: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch) -> None:
    reported = listen(client, "stop_sweeps", {"demo": 2})
    assert "demo: stopped, with 2 unfinished stages" in _call("stop", "demo").output and reported == [(("demo",), {})]
    left = listen(losses, "leave", ["10.0.0.1", "10.0.0.2"])
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


FIELDS = {"columns": {"anchor": "a"}, "encoding": "cp1252"}
# A command -> the function that its options reach, and its arguments.
OPTIONS: list[tuple[str, Any, str, dict[str, object]]] = [
    ("sweep demo --set seeds=[7] --no-grid --store S --data D", recipes, "_planned", {"overrides": ["seeds=[7]", "sweep={}"], "store": "S", "data": Path("D")}),
    ("train F --encoder minilm-l6 --columns anchor=a --encoding cp1252", planned, "own_request", {"file": "F", "command": "train", "fields": FIELDS}),
    ("train F --out O --store S", api_recipes, "trained_here", {"out": Path("O"), "store": "S"}),
    ("tune F --encoder minilm-l6 --columns anchor=a --encoding cp1252 --budget 2h --trials 3 --methods rcl,margin --name n", planned, "own_request",
     {"encoders": [parse_encoder("minilm-l6")], "fields": FIELDS, "hours": 2.0, "trials": 3, "methods": ["rcl", "margin"], "name": "n"}),
    ("tune F --out O --budget 2h --local --store S", tune, "Tuning", {"store": "S", "budget_s": 7200.0}),
    ("encode minilm-l6 F --column c --id i --dtype float16 --workers 2 --out O.parquet", encoders, "_encode_file",
     {"file": "F", "out": Path("O.parquet"), "columns": ["c"], "id_column": "i", "dtype": "float16", "workers": 2}),
    ("encode minilm-l6 F --pairs --column a --column b --relation r=2 --out O.csv", encoders, "_score_pairs",
     {"texts": ["F"], "columns": ["a", "b"], "weights": {"r": 2.0}, "out": Path("O.csv")}),
    ("search minilm-l6 q --corpus F --column c --show s", encoders, "found_texts", {"name": "F", "columns": ["c"], "shown": ["s"]}),
    ("search minilm-l6 --queries Q --embeddings E.npy", encoders, "found_texts", {"name": "Q"}),
    ("search minilm-l6 q --embeddings E.npy --workers 3", sharing, "shared_out", {"workers": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("command", "module", "function", "expected"), OPTIONS)
def test_an_option_reaches_the_function_that_it_controls(
    command: str, module: Any, function: str, expected: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    listen: Callable[..., Calls],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    signature = inspect.signature(getattr(module, function))
    listen(planned, "own_request")
    reported = listen(module, function, typer.Exit(7))
    answer = _call(*command.split())
    assert answer.exit_code == 7, answer.output
    ((given, named),) = reported
    found = signature.bind(*given, **named).arguments
    assert {name: found[name] for name in expected} == expected
