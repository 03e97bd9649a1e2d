"""Mistakes and failures of all commands: exit codes, one line on stderr with what to type instead."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from sentdist.cli import app, recipes, summary
from sentdist.errors import DataError, ResourceError, SentdistError, StoreError
from sentdist.recipe.stage import Json
from sentdist.report import page_head, sweep_report
from sentdist.run import backend, connection
from sentdist.store import sweep
from sentdist.tracking import tracker as tracking
from tests.support.planning import RECIPES
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

DEMO = str(RECIPES / "demo.yaml")


SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}


def _commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words."""
    for name, one in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        nested = getattr(one, "commands", None)
        yield from [((name,), one)] if nested is None else [((name, below), command) for below, command in nested.items()]


COMMANDS = dict(_commands())


# What must be said for a command to come as far as its store.
ENOUGH: dict[tuple[str, ...], tuple[str, ...]] = {
    ("plan",): (DEMO,), ("sweep",): (DEMO, "--local"), ("tune",): ("pairs.csv", "--local"), ("train",): ("pairs.csv",), ("list",): ("artifacts",),
    ("evaluate",): ("minilm-l6", "--tasks", "scenes-sts"), ("compare",): ("minilm-l6", "ENCODER", "--tasks", "scenes-sts"),
    ("encode",): ("ENCODER", "pairs.csv", "--column", "question", "--out", "out.npy"),
    ("search",): ("ENCODER", "a", "--corpus", "pairs.csv", "--column", "question"), ("export",): ("ENCODER", "--out", "out"), ("report",): ("demo",),
    ("store", "show"): ("abcdef",), ("store", "check"): (), ("store", "drop"): ("abcdef",), ("store", "gc"): (), ("store", "diff"): ("abc", "def"),
    ("up",): (),
}  # fmt: skip


ELSEWHERE = (("up",),)  # starts servers


def test_every_command_with_a_store_stands_in_the_table() -> None:
    with_store = {words for words, one in COMMANDS.items() if any("--store" in option.opts for option in one.params)}
    assert with_store == set(ENOUGH)


def test_a_store_that_is_none_is_a_mistake_of_every_command(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    Path("pairs.csv").write_text("question,answer\n" + "".join(f"a dog of {number},it is {number} years old\n" for number in range(60)))
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

        monkeypatch.setattr(sweep_report, "report_sweep", fail)
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


def test_an_unexpected_error_is_raised(fails: Callable[..., Result]) -> None:
    for options in ((), ("--debug",)):
        answer = fails(RuntimeError("bad"), *options)
        assert answer.exit_code == 1 and isinstance(answer.exception, RuntimeError)
    assert isinstance(fails(DataError(**SAID), "--debug").exception, DataError)


# Options without effect: refused before anything is loaded.
NEEDS = [
    ("search ENCODER dog --embeddings FILE --show text", "--show", "--corpus"),
    ("evaluate ENCODER --mteb STS12 --out x --workers 2", "--workers", "tasks without --mteb"),
    ("encode ENCODER dog cat --pairs --overwrite", "--overwrite", "--out"),
    ("encode ENCODER FILE --out x.npy --relation a", "--relation", "--pairs"),
    ("encode ENCODER dog cat --pairs --id a", "--id", "a file without --pairs"),
    ("export ENCODER --out x --licence mit", "--licence", "--to-hub"),
    ("export ENCODER --to-hub a/b --onnx", "--onnx", "--out"),
]


def test_what_an_option_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a dog runs\n")
    for command, option, needs in NEEDS:
        words = [{"ENCODER": str(tmp_path / "nowhere"), "FILE": str(tmp_path / "texts.txt")}.get(word, word) for word in command.split()]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2 and f"{option}: found no {needs}; expected {needs} beside it" in " ".join(done.output.split()), (
            done.output
        )


SEARCH = str(Path(__file__).parents[3] / "rayjobs/recipes/search.yaml")


FILES = {
    "good.csv": b"question,answer\n1,2\n",
}


MISTAKES = [
    (("plan", DEMO, "--set", "training.batch_sze=8"), 'did you mean "batch_size"'),
    (("sweep", DEMO, "--local", "--set", "encoder.checkpoint=./nowhere"), "expected a saved Hugging Face encoder"),
    (("report", "unheard_of"), "expected a sweep that was started"),
    (("stop",), "found no sweep"),
    (("plan", SEARCH, "--format", "json"), "--format json: found"),
    (("stop", "demo", "--all"), "found demo and --all"),
    (("plan", "good.csv"), "It looks like data: `sentdist tune good.csv`."),
    (("evaluate", "minilm-l6", "--tasks", "stss"), '"stss" is no task'),
    (("plan", SEARCH, "--leaks"), "a search chooses its trials"),
    (("list", "trainz"), 'Did you mean "train"?'),
    (("evaluate", "minilm-l6?poolin=cls"), 'Did you mean "pooling"'),
    (("tune", "good.csv", "--encoder", "minilm-l6?prompt=x"), "keys without effect in training"),
    (("report",), "sentdist report: found neither a sweep nor --paper; expected one of the two."),
    (("encode", "minilm-l6", "good.csv", "--out", "x.npy"), "found columns question, answer; expected one that holds the sentences. Use --column question"),
    (("encode", "minilm-l6", "good.csv", "good.csv", "--pairs"), "found good.csv, good.csv; expected two sentences, or one file of pairs"),
    (("tune", "good.csv", "--columns", "question,answer"), "--columns: found question; expected ROLE=COLUMN"),
    (("evaluate", "minilm"), "encoder: found minilm, which is neither a folder nor a packaged encoder"),
]  # fmt: skip


def test_a_mistake_is_reported_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    for words, said in MISTAKES:
        answer = CliRunner().invoke(app, words)
        assert said in answer.stderr and answer.exit_code == 2 and "Traceback" not in answer.output, answer.output
        assert len(answer.stderr.splitlines()) == 1 and ".;" not in answer.stderr and "Input should" not in answer.stderr, answer.stderr


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.startswith(f"sentdist {version('sentdist')}, Python 3.")


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

        monkeypatch.setattr(backend, "build_recipe", carried_out)

        def brought(store: object, tracking: str, name: str, *, failures: dict[str, str]) -> None:
            if is_away:
                raise ResourceError(where="MLflow", found="nobody", expected="an answer", remedy="Look.")
            done.append(("rebuilt", (tracking, name, failures)))

        monkeypatch.setattr(summary, "print_outcome", lambda one, store: done.append(("reported", one.name)))
        monkeypatch.setattr(summary, "print_next", lambda name, store: done.append(("next", name)))
        monkeypatch.setattr(summary, "publish_report", lambda name, store, tracking: done.append(("report", (name, tracking))))
        monkeypatch.setattr(tracking, "rebuild", brought)
        done.clear()
        return CliRunner().invoke(app, [*words, "--store", str(tmp_path / "store")], env={"MLFLOW_TRACKING_URI": uri}), done

    return run


Ended = Callable[..., tuple[Result, list[tuple[str, Any]]]]


@pytest.mark.parametrize("more", [(), ("--local",)])
def test_the_exit_code_is_1_if_anything_failed_in_any_part(more: tuple[str, ...], ended: Ended) -> None:
    for well, code in (((True, True), 0), ((True, False), 1), ((False, True), 1)):
        answer, done = ended("sweep", DEMO, *more, well=well)
        assert answer.exit_code == code, answer.output
        assert [what for name, what in done if name == "reported"] == [f"part{number}" for number in range(len(well))]
        assert done[-1] == ("next", "part0"), "also after a failure it is said how to go on"


def test_a_report_goes_to_mlflow_where_there_are_scores_and_of_a_sweep_on_a_cluster(ended: Ended) -> None:
    for words, reportable, is_reported in (
        (("sweep",), True, True), (("sweep",), False, False), (("sweep", "--no-grid"), True, False), (("sweep", "--local"), True, True), (("sweep", "--local"), False, False),
    ):  # fmt: skip
        _, done = ended(words[0], DEMO, *words[1:], reportable=reportable)
        assert [what for name, what in done if name == "report"] == [("part0", SERVER)] * is_reported, words


def test_what_was_built_here_goes_to_mlflow_if_a_server_is_there(ended: Ended) -> None:
    answer, done = ended("sweep", DEMO, "--local", well=(True, False))
    assert ("carried out", SERVER) in done, "a search is shown while it goes on"
    brought = [what for name, what in done if name == "rebuilt"]
    assert answer.exit_code == 1 and brought == [(SERVER, "part0", {}), (SERVER, "part1", {"key1": "it diverged"})]
    answer, done = ended("sweep", DEMO, "--local", is_away=True)
    assert (
        answer.exit_code == 0
        and "`sentdist report --rebuild-mlflow`" in answer.stderr
        and not [name for name, _ in done if name == "report"]
    )
    for uri in (None, "file:///tmp/runs"):
        answer, done = ended("sweep", DEMO, "--local", uri=uri)
        assert answer.exit_code == 0 and not {"rebuilt", "report"} & {name for name, _ in done} and not dict(done)["carried out"]
        assert ("MLflow is not used: " in answer.stderr) == bool(uri)


def test_what_ctrl_c_keeps_is_said_with_the_exit_code_of_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **named: object) -> None:
        raise KeyboardInterrupt

    for name in ("build_within", "build_on_cluster"):
        monkeypatch.setattr(recipes, name, stopped)
    for more, said in (((), "resume from their last checkpoints."), (("--local",), "training starts over.")):
        answer = CliRunner().invoke(app, ["sweep", DEMO, *more, "--store", str(tmp_path / "store")])
        assert answer.exit_code == 130 and answer.output.rstrip().endswith(said), answer.output


WELL, ILL = {"base": 3.0, "fine_tuned": 1.0, "rcl": 0.8}, {"base": 0.5, "fine_tuned": 1.0, "rcl": 0.8}  # noise of a method's scores


def test_a_gain_is_shown_by_the_reports_own_test(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    for place, (noise, num_seeds, said) in enumerate(((WELL, 8, "better"), (WELL, 2, "not shown"), (ILL, 8, "worse"))):
        seeds: Json = list(range(num_seeds))
        plan, context = tiny_plan(
            tiny_values(tiny_encoder_dir, seeds=seeds), data=write_data(tmp_path / "data"), store=tmp_path / f"store{place}"
        )
        fill_store(context.store, plan, noise=lambda trial, noise=noise: noise[trial.method], num_items={"stsb": 60})
        found = sweep.load_sweep(context.store, "tiny")
        gain = page_head.gain_over_untouched(found, context.store)
        assert gain is not None and gain.untouched.cell == "base" and gain.is_shown == (said == "better"), gain
        assert gain.line.startswith(f"fine_tuned is {said}"), gain.line
    without = found.model_copy(update={"trials": tuple(trial for trial in found.trials if trial.train is not None)})
    assert page_head.gain_over_untouched(without, context.store) is None, "there is nothing to compare with"
