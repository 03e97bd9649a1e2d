"""Exit codes, as a table over all commands: 2 for what can be corrected in what was typed, 1 for what fails; in one line on stderr."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import DataError, SentdistError, StoreError
from sentdist.store import sweep
from tests.support.planning import RECIPES

DEMO = str(RECIPES / "demo.yaml")
SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}


def _commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words."""
    for name, one in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        nested = getattr(one, "commands", None)
        yield from [((name,), one)] if nested is None else [((name, below), command) for below, command in nested.items()]


def _kind(option: Any) -> str:
    """Of its values, by typer's version."""
    return str(getattr(getattr(option, "type_descriptor", None), "annotation", None) or option.type).lower()


COMMANDS = dict(_commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_option_that_there_is_not_and_a_value_of_another_kind_are_mistakes(words: tuple[str, ...]) -> None:
    unknown = CliRunner().invoke(app, [*words, "--no-such-option"])
    assert unknown.exit_code == 2 and not unknown.stdout, unknown.output
    numbers = [one for one in COMMANDS[words].params if one.param_type_name == "option" and re.search("int|float", _kind(one))]
    for option in numbers:
        wrong = CliRunner().invoke(app, [*words, option.opts[0], "many"])
        assert wrong.exit_code == 2 and option.opts[0] in wrong.stderr, (option.opts, wrong.output)


# What must be said for a command to come as far as its store.
ENOUGH: dict[tuple[str, ...], tuple[str, ...]] = {
    ("plan",): (DEMO,), ("run",): (DEMO, "--local"), ("sweep",): (DEMO, "--local"), ("tune",): ("pairs.csv", "--local"), ("train",): ("pairs.csv",), ("models",): (),
    ("leaks",): (DEMO,), ("evaluate",): ("minilm-l6", "--tasks", "scenes-sts"), ("compare",): ("minilm-l6", "ENCODER", "--tasks", "scenes-sts"),
    ("encode",): ("ENCODER", "pairs.csv", "--column", "one", "--out", "out.npy"), ("similarity",): ("ENCODER", "a", "b"),
    ("search",): ("ENCODER", "a", "--corpus", "pairs.csv", "--column", "one"), ("export",): ("ENCODER", "--to", "out"), ("push",): ("abcdef", "me/mine"),
    ("report",): ("demo",), ("explain",): ("abcdef", "abcdee"), ("track",): ("--rebuild",), ("store", "list"): (), ("store", "show"): ("abcdef",),
    ("store", "check"): (), ("store", "drop"): ("abcdef",), ("store", "gc"): (), ("up",): (), ("doctor",): (), ("submit",): (DEMO,),
}  # fmt: skip
ELSEWHERE = (("up",), ("doctor",), ("submit",))  # start servers, go on to the next finding, or leave the store to a cluster


def test_every_command_with_a_store_stands_in_the_table() -> None:
    with_store = {words for words, one in COMMANDS.items() if any("--store" in option.opts for option in one.params)}
    assert with_store == set(ENOUGH)


@pytest.mark.parametrize("words", [words for words in ENOUGH if words not in ELSEWHERE], ids=" ".join)
def test_a_store_that_is_none_is_a_mistake_of_every_command(
    words: tuple[str, ...], tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    Path("pairs.csv").write_text("one,two\n" + "".join(f"a dog of {number},it is {number} years old\n" for number in range(60)))
    Path("file").write_text("mine")
    given = [str(tiny_encoder_dir) if word == "ENCODER" else word for word in ENOUGH[words]]
    done = CliRunner().invoke(app, [*words, *given, "--store", "file"])
    assert done.exit_code == 2 and "--store file: found a file; expected a folder" in done.stderr, done.output
    assert len(done.stderr.splitlines()) == 1 and Path("file").read_text() == "mine" and not Path("out").exists()


def _caused(error: SentdistError, number: int | None) -> SentdistError:
    error.__cause__ = None if number is None else OSError(number, os.strerror(number))
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (_caused(DataError(**SAID), None), 2),
        (_caused(DataError(**SAID), errno.ENOENT), 2),
        (_caused(DataError(**SAID), errno.EISDIR), 2),
        (_caused(DataError(**SAID), errno.EIO), 1),
        (_caused(DataError(**SAID), errno.EACCES), 1),
        (_caused(StoreError(**SAID), None), 2),
        (_caused(StoreError(**SAID), errno.ENOENT), 1),
        (_caused(StoreError(**SAID), errno.ENOSPC), 1),
        (OSError(errno.EIO, "it clicks", "/mnt/file"), 1),
        (OSError(errno.ENOENT, "not there", "/mnt/file"), 1),  # unexpected
    ],
    ids=lambda value: f"{type(value).__name__} by {getattr(value, '__cause__', None) or value}",
)
def test_a_disk_that_fails_is_a_failure_and_a_file_that_is_not_there_a_mistake(
    error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sweep, "load_sweep", fail)
    done = CliRunner().invoke(app, ["report", "demo", "--store", str(tmp_path)])
    assert done.exit_code == code and len(done.stderr.splitlines()) == 1 and not done.stdout, done.output


def test_a_disk_that_fails_under_a_command_is_reported_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "it clicks", "/mnt/file")

    monkeypatch.setattr(sweep, "load_sweep", fail)
    done = CliRunner().invoke(app, ["report", "demo", "--store", str(tmp_path)])
    assert done.stderr.startswith("/mnt/file: ") and "a disk or file server that answers" in done.stderr, done.output


@pytest.mark.parametrize(("words", "is_said"), [(("plan", DEMO, DEMO), True), (("models", "minilm-l6", "mine"), False)])
def test_who_names_two_recipes_is_shown_that_a_command_takes_one(words: tuple[str, ...], is_said: bool) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and ("one recipe a command" in done.stderr) == is_said, done.output


def test_brackets_in_an_error_are_shown_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DataError(where="a[bold]b[/bold]", found="[red]", expected="that", remedy="None.")

    monkeypatch.setattr(sweep, "load_sweep", fail)
    done = CliRunner().invoke(app, ["report", "demo", "--store", str(tmp_path)])
    assert "a[bold]b[/bold]: found [red]; expected that" in done.stderr and done.exit_code == 2


@pytest.mark.parametrize("words", [("leaks", DEMO, "--out"), ("schema", "--out")], ids=" ".join)
@pytest.mark.parametrize("place", ["folder", ""])
def test_a_folder_where_a_file_is_to_be_written_is_a_mistake(
    words: tuple[str, ...], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`leaks --out FOLDER` ended as an unexpected error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "store"))
    Path("folder").mkdir()
    done = CliRunner().invoke(app, [*words, place])
    assert done.exit_code == 2 and f"{words[-1]} {place or '.'}: found" in done.stderr, done.output
    assert "expected a file that can be written" in done.stderr and len(done.stderr.splitlines()) == 1
