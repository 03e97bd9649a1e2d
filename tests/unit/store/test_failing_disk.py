"""A disk or file server that fails at any operation: a sentence with the cause, exit code 1, nothing given up; the same command goes on."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from click.testing import Result
from pyarrow import fs
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.store import copies as verified
from sentdist.store import store as store_module
from sentdist.store.store import ASIDE, ArtifactStore
from tests.support.tiny_data import tiny_values, write_data

NUMBERS = {
    errno.ESTALE: "stale handle",
    errno.EIO: "an error of the disk",
    errno.ETIMEDOUT: "does not answer",
    errno.EHOSTDOWN: "a server that is down",
    errno.ENOTCONN: "whose server has ended",
    errno.EDQUOT: "a quota that is used up",
    errno.EROFS: "a read-only file system",
    errno.ENOSPC: "no space left",
    errno.EACCES: "no right",
}


@dataclass
class Failure:
    """Fails with this error where something below the store is touched. was_met: whether it was."""

    number: int
    below: str
    was_met: bool = False

    def meet(self, *places: object) -> None:
        for place in places[:2]:  # a path, an open file or a descriptor, perhaps a second path
            name = _name_of(place)
            if name.startswith(self.below):
                self.was_met = True
                raise OSError(self.number, os.strerror(self.number), name)

    def before(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, if_mode: str = "") -> None:
        """Have `owner.name` fail; if_mode: only with one of these letters in the mode in which a file is opened."""
        real = getattr(owner, name)

        def failing(*places: Any, **named: Any) -> Any:
            mode = str(named.get("mode", places[1] if len(places) > 1 else "r"))
            if not if_mode or set(mode) & set(if_mode):
                self.meet(*places)
            return real(*places, **named)

        monkeypatch.setattr(owner, name, failing)


def _name_of(place: object) -> str:
    """Of a path, an open file or a descriptor."""
    if type(place) is int and place >= 0:
        return os.readlink(f"/proc/self/fd/{place}")
    return str(getattr(place, "name", place) if isinstance(place, io.IOBase) else place)


def _of_filesystem(name: str) -> Callable[[pytest.MonkeyPatch, Failure], None]:
    def install(monkeypatch: pytest.MonkeyPatch, failure: Failure) -> None:
        class Failing(fs.LocalFileSystem):  # type: ignore[misc]
            def open_input_stream(self, path: str, *rest: Any, **named: Any) -> Any:
                if name == "open_input_stream":
                    failure.meet(path)
                return super().open_input_stream(path, *rest, **named)

            def get_file_info(self, asked: Any) -> Any:
                if name == "get_file_info":
                    failure.meet(getattr(asked, "base_dir", asked))
                return super().get_file_info(asked)

        monkeypatch.setattr(store_module, "open_root", lambda root: (Failing(), str(root)))

    return install


def _of(owner: Any, name: str, **options: str) -> Callable[[pytest.MonkeyPatch, Failure], None]:
    return lambda monkeypatch, failure: failure.before(monkeypatch, owner, name, **options)


OPERATIONS: dict[str, Callable[[pytest.MonkeyPatch, Failure], None]] = {
    "reads a record": _of_filesystem("open_input_stream"),
    "lists": _of_filesystem("get_file_info"),
    "asks for free room": _of(shutil, "disk_usage"),
    "makes a folder": _of(os, "mkdir"),
    "writes": _of(io, "open", if_mode="wax"),
    "reads": _of(io, "open", if_mode="r"),
    "syncs": _of(os, "fsync"),
    "renames": _of(os, "rename"),
    "replaces": _of(os, "replace"),
    "compares a digest": _of(hashlib, "file_digest"),
    "maps a table": _of(pa, "memory_map"),
    "maps an array": _of(np, "load"),
}
RUN = ("run", "--local")
# operation -> commands that do it; for `run` and `plan` the store lacks a training with banks, and its scores
TABLE: dict[str, tuple[tuple[str, ...], ...]] = {
    "reads a record": (RUN, ("plan",), ("store", "list"), ("store", "check"), ("report",), ("similarity",)),
    "lists": (("store", "list"), ("store", "check"), ("store", "gc"), ("similarity",)),
    "asks for free room": (("plan",),),
    "makes a folder": (RUN,),
    "writes": (RUN,),
    "reads": (RUN, ("store", "check"), ("similarity",)),
    "syncs": (RUN,),
    "renames": (RUN,),
    "replaces": (RUN,),
    "compares a digest": (RUN, ("store", "check"), ("similarity",)),
    "maps a table": (RUN,),
    "maps an array": (RUN,),
}


@dataclass(frozen=True)
class Place:
    recipe: Path
    data: Path
    store: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Place:
    """A finished store."""
    folder = tmp_path_factory.mktemp("built")
    values = tiny_values(tiny_encoder_dir, name="failing", baseline=None)
    methods = values["methods"]
    assert isinstance(methods, dict)
    values["methods"] = {name: methods[name] for name in ("entropy", "rcl")} | {"rcl": methods["rcl"] | {"phis": [0.01]}}  # type: ignore[operator]
    recipe = folder / "failing.yaml"
    recipe.write_text(yaml.safe_dump(values))
    place = Place(recipe=recipe, data=write_data(folder / "data"), store=folder / "store")
    done = _command(RUN, place)
    assert done.exit_code == 0, done.output
    return place


def _command(command: tuple[str, ...], place: Place) -> Result:
    where = ["--store", str(place.store)]
    arguments: dict[str, list[str]] = {
        "run": [str(place.recipe), "--data", str(place.data), *where],
        "plan": [str(place.recipe), "--data", str(place.data), *where],
        "store": where,
        "report": ["failing", *where],
        "similarity": ["entropy+0.01-tiny-bert0-b8-s0", "A man eats.", "A dog runs.", *where],
    }
    return CliRunner().invoke(app, [*command, *arguments[command[0]]])


def _copied(built: Place, folder: Path, *, lacks: tuple[str, ...]) -> Place:
    place = Place(recipe=built.recipe, data=built.data, store=folder / "store")
    shutil.copytree(built.store, place.store)
    for found in [path for pattern in lacks for path in place.store.glob(pattern)]:
        shutil.rmtree(found)
    return place


@pytest.mark.in_turns
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("operation", "command"), [(name, command) for name, commands in TABLE.items() for command in commands], ids=str)
def test_a_failing_disk_is_reported_in_one_sentence_and_costs_nothing(
    operation: str, command: tuple[str, ...], built: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = _copied(built, tmp_path, lacks=("train/rcl*", "scores/rcl*") if command[0] in ("run", "plan") else ())
    finished = {artifact.key: artifact.record for artifact in ArtifactStore(place.store).artifacts()}
    for number, words in NUMBERS.items():
        verified.forget()  # as in a new process
        failure = Failure(number, str(place.store))
        with monkeypatch.context() as patched:
            OPERATIONS[operation](patched, failure)
            answer = _command(command, place)
        assert failure.was_met, f"{command} never {operation}: {answer.output}"
        reported = answer.stderr.strip().splitlines()
        assert answer.exit_code == 1, f"{errno.errorcode[number]}: {answer.output}"
        assert len(reported) == 1 and words in reported[0] and "Unexpected error" not in reported[0], (
            f"{errno.errorcode[number]}: {answer.stderr}"
        )
        assert not (place.store / ASIDE).exists(), f"{errno.errorcode[number]}: something was moved aside"
        assert {artifact.key: artifact.record for artifact in ArtifactStore(place.store).artifacts()}.items() >= finished.items()
    again = _command(command, place)
    assert again.exit_code == 0, again.output
