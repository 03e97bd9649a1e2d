"""Users and passwords that stand in an address are printed by no command, and kept in no record, log, message or file."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.data.mirror import ORIGIN
from sentdist.errors import DataError, brief, first_line, named
from sentdist.run.connection import reason
from sentdist.services.processes import free_port
from sentdist.text import without_secrets
from sentdist.tracking.server import Server
from sentdist.tracking.tracker import MlflowRun as Run
from tests.support.planning import RECIPES

COMMAND: Any = typer.main.get_command(app)
SECRET = "s3cr3tw0rd"
STORE = f"nofs://me:{SECRET}@store.example/artifacts"  # pyarrow knows no such address, and says so with all of it
DATA = f"nofs://me:{SECRET}@data.example/sets"


def test_what_lets_somebody_in_is_hidden_and_nothing_else() -> None:
    for written, shown in [
        ("http://me:word@host:5000/prefix/", "http://host:5000/prefix/"),
        ("postgresql://me:w@rd@db:5432/mlflow?sslmode=require", "postgresql://db:5432/mlflow?sslmode=require"),
        ("postgresql://db/mlflow?user=me&password=word", "postgresql://db/mlflow?user=me&password=…"),
        ("s3://KEY:wo/rd@bucket/prefix?region=eu", "s3://bucket/prefix?region=eu"),
        ("https://b.example/o?X-Amz-Credential=a%2Fb&X-Amz-Signature=ff#x", "https://b.example/o?X-Amz-Credential=…&X-Amz-Signature=…#x"),
        ("two: http://me:word@a, https://token@b/c.", "two: http://a, https://b/c."),
        ("hf://datasets/owner/name@commit/part", "hf://datasets/owner/name@commit/part"),
        ("http://host:5001/page@2?viewStateShareKey=ab", "http://host:5001/page@2?viewStateShareKey=ab"),
        ("hub:owner/name@commit, me@host.example", "hub:owner/name@commit, me@host.example"),
    ]:
        assert without_secrets(written) == without_secrets(shown) == shown


def _commands() -> Iterator[tuple[str, ...]]:
    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words
        for name, one in (inner or {}).items():
            yield from walk(one, (*words, name))

    return walk(COMMAND, ())


def _command(words: tuple[str, ...]) -> Any:
    found = COMMAND
    for word in words:
        found = found.commands[word]
    return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's files, and an environment that names servers with passwords in their addresses; none of them is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{SECRET}@127.0.0.1:{free_port()}")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://me:{SECRET}@127.0.0.1:{free_port()}")
    monkeypatch.setenv("RAY_ADDRESS", f"ray://me:{SECRET}@127.0.0.1:{free_port()}")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    Path("pairs.csv").write_text("question,answer\n" + "".join(f"what is {number}?,it is {number}\n" for number in range(40)))
    return tmp_path


def _called(words: tuple[str, ...], *options: str) -> str:
    """What a command says, what it requires made up."""
    known = {"recipe": str(RECIPES / "demo.yaml"), "file": "pairs.csv", "texts": "pairs.csv", "what": "artifacts", "other": "98fedcba"}
    required = [one for one in _command(words).params if one.required]
    needed = [known.get(one.name, "abcdef12") for one in required if one.param_type_name == "argument"]
    needed += [word for one in required if one.param_type_name == "option" for word in (one.opts[0], "out.npy")]
    answer = CliRunner().invoke(app, [*words, *needed, *MORE.get(words, ()), *options])
    return answer.stdout + answer.stderr


def _hidden(said: str, folder: Path) -> bool:
    kept = [path for path in folder.rglob("*") if path.is_file() and path.name != ORIGIN]  # that one is in a private folder
    return SECRET not in said and not any(SECRET.encode() in path.read_bytes() for path in kept)


STARTING = {("up",)}  # it starts servers, and shows the link with their own password on purpose
MORE = {
    ("encode",): ("--column", "question", "--out", "out.npy"),
    ("search",): ("word", "--corpus", "pairs.csv", "--column", "question"),
    ("report",): ("demo",),
    ("export",): ("--out", "out"),
}
OPTIONS = {
    option: {words for words in _commands() if option in {name for one in _command(words).params for name in one.opts}}
    for option in ("--store", "--data")
}


def test_no_command_says_a_secret_of_an_address(world: Path) -> None:
    for words in sorted(set(_commands()) - STARTING):
        assert _hidden(_called(words, *(("--store", str(world / "store")) if words in OPTIONS["--store"] else ())), world)
        for option, address, host in (("--store", STORE, "store.example"), ("--data", DATA, "data.example")):
            if words in OPTIONS[option]:
                said = _called(words, option, address)
                assert _hidden(said, world) and host in said, said


def test_no_message_of_ours_says_a_secret_of_an_address() -> None:
    address = f"https://me:{SECRET}@host.example/x"
    error = OSError(f"connection to {address} refused")
    ours = DataError(where=address, found=str(error), expected=address, remedy=f"Ask {address}." + "x" * 9000)
    server = Server(f"http://me:{SECRET}@127.0.0.1:{free_port()}")
    assert server.attempt("find it", lambda client: client.get_experiment("1")) is None
    texts = [str(ours), repr(pickle.loads(pickle.dumps(ours))), named(error), first_line(error), brief({"at": address}), reason(error)]
    texts += [*server.warnings, server.page, Run(uri=server.uri, experiment="1", run_id="2").url or ""]
    assert len(texts) == 9 and all(SECRET not in text for text in texts)
    assert all("host.example" in text for text in texts[:6]) and all("127.0.0.1" in text for text in texts[6:])


def test_a_long_message_is_not_cut_within_a_secret() -> None:
    """What is cut out of a message may be the @ by which a password is known."""
    address = f"https://me:{SECRET}{'w' * 90}@host.example"
    for place in range(0, 1200, 7):
        for text in (f"{'x' * place} {address} {'y' * 20_000}", f"{'x' * 20_000} {address} {'y' * place}"):
            assert SECRET[:3] not in str(DataError(where="here", found=text, expected=text, remedy=text)), place
