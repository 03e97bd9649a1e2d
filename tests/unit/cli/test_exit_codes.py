"""Exit codes, as a table over all commands: 2 for what can be corrected in what was typed, 1 for what fails; in one line on stderr."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from sentdist.cli import app, building
from sentdist.errors import DataError, SentdistError, StoreError
from sentdist.plan.unroll import Plan
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


def test_an_option_that_there_is_not_and_a_value_of_another_kind_are_mistakes() -> None:
    for words, command in COMMANDS.items():
        unknown = CliRunner().invoke(app, [*words, "--no-such-option"])
        assert unknown.exit_code == 2 and not unknown.stdout, unknown.output
        for option in command.params:
            if option.param_type_name == "option" and re.search("int|float", _kind(option)):
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


def test_a_store_that_is_none_is_a_mistake_of_every_command(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    Path("pairs.csv").write_text("one,two\n" + "".join(f"a dog of {number},it is {number} years old\n" for number in range(60)))
    Path("file").write_text("mine")
    for words in [words for words in ENOUGH if words not in ELSEWHERE]:
        given = [str(tiny_encoder_dir) if word == "ENCODER" else word for word in ENOUGH[words]]
        done = CliRunner().invoke(app, [*words, *given, "--store", "file"])
        assert done.exit_code == 2 and "--store file: found a file; expected a folder" in done.stderr, (words, done.output)
        assert len(done.stderr.splitlines()) == 1 and Path("file").read_text() == "mine" and not Path("out").exists(), words


def _caused(error: SentdistError, number: int | None) -> SentdistError:
    error.__cause__ = None if number is None else OSError(number, os.strerror(number))
    return error


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """`report` of a sweep, which fails by an error. The folder of caches is tmp_path / "cache"."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(error: BaseException, *options: str) -> Result:
        def fail(*_: object, **named: object) -> None:
            raise error

        monkeypatch.setattr(sweep, "load_sweep", fail)
        return CliRunner().invoke(app, [*options, "report", "demo", "--store", str(tmp_path)])

    return run


ENDS = [
    (_caused(DataError(**SAID), None), 2), (_caused(DataError(**SAID), errno.ENOENT), 2), (_caused(DataError(**SAID), errno.EIO), 1),
    (_caused(DataError(**SAID), errno.EACCES), 1), (_caused(StoreError(**SAID), None), 2), (_caused(StoreError(**SAID), errno.ENOENT), 1),
    (OSError(errno.EIO, "it clicks", "/mnt/file"), 1),
]  # fmt: skip


def test_a_disk_that_fails_is_a_failure_and_a_file_that_is_not_there_a_mistake(fails: Callable[..., Result]) -> None:
    for error, code in ENDS:
        done = fails(error)
        assert done.exit_code == code and len(done.stderr.splitlines()) == 1 and not done.stdout, (error, done.output)
    assert done.stderr.startswith("/mnt/file: "), "the file that could not be read"
    assert [fails(error).exit_code for error in (BrokenPipeError(), KeyboardInterrupt())] == [1, 130]


def test_an_unexpected_error_is_one_line_that_names_where_its_traceback_is(fails: Callable[..., Result], tmp_path: Path) -> None:
    for error in (RuntimeError("bad\nworse"), EOFError(), MemoryError()):
        answer = fails(error)
        assert answer.exit_code == 1 and len(answer.stderr.splitlines()) == 1 and type(error).__name__ in answer.stderr
        named = re.search(r"The traceback is in (\S+)\.$", answer.stderr.strip())
        assert named is not None
        kept = Path(named[1])
        assert kept.is_relative_to(tmp_path / "cache") and stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert "Traceback (most recent call last)" in kept.read_text()
    assert isinstance(fails(RuntimeError("bad"), "--debug").exception, RuntimeError)


def test_the_traceback_finds_another_place_where_there_is_no_cache(fails: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    answer = fails(RuntimeError("bad"))
    kept = Path(answer.stderr.strip().removesuffix(".").rpartition(" ")[2])
    assert answer.exit_code == 1 and "RuntimeError: bad" in kept.read_text()
    kept.unlink()


@pytest.mark.parametrize("words", [("leaks", DEMO, "--out"), ("schema", "--out")], ids=" ".join)
def test_a_file_is_not_written_in_the_place_of_a_folder(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "store"))
    Path("folder").mkdir()
    for place in ("folder", ""):
        done = CliRunner().invoke(app, [*words, place])
        assert done.exit_code == 2 and f"--out {place or '.'}: found" in done.stderr, done.output
    if words[0] == "schema":
        assert CliRunner().invoke(app, [*words, "new.json"]).exit_code == 0 and "properties" in json.loads(Path("new.json").read_text())


# Options without effect: refused before anything is loaded.
NEEDS = [
    ("search ENCODER dog --corpus FILE --gpus-per-worker 1", "--gpus-per-worker", "--workers"),
    ("search ENCODER dog --corpus FILE --query-column text", "--query-column", "--queries"),
    ("search ENCODER dog --corpus FILE --gpus-per-worker 0", "--gpus-per-worker", "--workers"),
    ("evaluate ENCODER --gpu-type A100", "--gpu-type", "--workers"),
    ("similarity ENCODER dog cat --directions one", "--directions", "--relation"),
    ("similarity ENCODER dog cat --overwrite", "--overwrite", "--out"),
    ("compare ENCODER minilm-l6 --rope 0", "--rope", "--bayes"),
]


def test_what_an_option_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a dog runs\n")
    for command, option, needs in NEEDS:
        words = [{"ENCODER": str(tmp_path / "nowhere"), "FILE": str(tmp_path / "texts.txt")}.get(word, word) for word in command.split()]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2 and f"{option}: found no {needs}; expected {needs} beside it" in " ".join(done.output.split()), (
            done.output
        )
    for words, said in (
        (
            ("evaluate", "minilm-l6", "--workers", "2", "--gpus-per-worker", "0", "--gpu-type", "A100"),
            "--gpu-type: found A100 with --gpus-per-worker 0",
        ),
        (("evaluate", "minilm-l6", "--revision", "main"), "found revision 'main'"),
        (
            ("evaluate", "minilm-l6", "--tasks", "scenes-sts", "--precision", "tf32", "--gpus-per-worker", "0"),
            "found a computation on CPUs",
        ),
    ):
        done = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "store")])
        assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("command", ["plan", "leaks"])
def test_a_value_that_the_grid_or_search_replaces_is_refused(command: str, tmp_path: Path) -> None:
    """The sweep ran its own values, under the name that was asked for another one."""
    for recipe, override, varied in (
        ("demo.yaml", "methods.rcl.phis=[0.03]", "sweep.methods.rcl.phis"), ("demo.yaml", "methods.rcl.phis.0=0.03", "sweep.methods.rcl.phis"),
        ("search.yaml", "training.learning_rate=1e-4", "search.space.training.learning_rate"),
    ):  # fmt: skip
        done = CliRunner().invoke(app, [command, str(RECIPES / recipe), "--set", override, "--store", str(tmp_path)])
        assert done.exit_code == 2 and f"--set {override}: found a field that {varied} varies" in " ".join(done.output.split()), done.output
    planned, _ = building._planned(RECIPES / "demo.yaml", ["methods.rcl.phis=[0.03]", "sweep={}"], str(tmp_path), None)
    assert isinstance(planned, Plan) and planned.recipe.methods["rcl"].phis == (0.03,), "without its grid"
