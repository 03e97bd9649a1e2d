"""A store on a real mount whose server stands still or ends: what its user learns, and that the same command goes on later."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sentdist.store.access import TELL_AFTER_S
from tests.support.tiny_data import tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


class Server:
    """A mirror of a folder as a file system of a process of its own (bindfs)."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "mount"
        self._mirrored = folder / "mirrored"
        self._process: subprocess.Popen[bytes] | None = None
        self.mount.mkdir()
        self._mirrored.mkdir()

    def start(self) -> None:
        self.end()
        process = subprocess.Popen(["bindfs", "-f", str(self._mirrored), str(self.mount)])
        self._process = process
        wait_for(lambda: self.mount.is_mount() or process.poll() is not None, what="the mount")
        if process.poll() is not None:
            pytest.skip("this machine lets no process serve a file system")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Whoever asks it from now on gets an error; the mount stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def unmount(self) -> None:
        """An empty folder is left where the file system was."""
        subprocess.run(["umount", "--lazy", str(self.mount)], check=True)

    def end(self) -> None:
        if self._process is not None:
            self.kill()
        subprocess.run(["umount", "--lazy", str(self.mount)], capture_output=True, check=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not there (Debian: apt-get install --no-install-recommends bindfs)")
    made = Server(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def command(tmp_path: Path, tiny_encoder_dir: Path, server: Server) -> list[str]:
    """Recipe, data and store; only the store is on the mount."""
    values = tiny_values(tiny_encoder_dir, name="away", training={"batch_size": 8, "learning_rate": 1e-3, "max_length": 20, "epochs": 20})
    recipe = tmp_path / "away.yaml"
    recipe.write_text(yaml.safe_dump(values))
    data = write_data(tmp_path / "data")
    return [str(recipe), "--data", str(data), "--store", str(server.mount / "store")]


@dataclass(frozen=True)
class Command:
    """A `sentdist` that runs, and what it has said so far."""

    process: subprocess.Popen[bytes]
    printed: Path
    reported: Path

    def end(self) -> tuple[int, str]:
        """Its exit code and what it reported on stderr, once it has ended."""
        return self.process.wait(timeout=300), self.reported.read_text()


def _start(folder: Path, *arguments: str) -> Command:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    printed, reported = folder / f"{time.monotonic_ns()}.out", folder / f"{time.monotonic_ns()}.err"
    with printed.open("w") as out, reported.open("w") as err:
        process = subprocess.Popen([sys.executable, "-m", "sentdist", *arguments], stdout=out, stderr=err, env=environment, cwd=ROOT)
    return Command(process=process, printed=printed, reported=reported)


def test_a_server_that_stands_still_is_reported_within_a_minute_and_a_bit(server: Server, command: list[str], tmp_path: Path) -> None:
    assert _start(tmp_path, "plan", *command).end()[0] == 0
    server.signal(signal.SIGSTOP)
    try:
        planning = _start(tmp_path, "plan", *command)
        wait_for(lambda: planning.reported.read_text(), what="a line", seconds=2 * TELL_AFTER_S)
        assert f"{server.mount}/store has not answered for 6" in planning.reported.read_text()
        assert planning.process.poll() is None
    finally:
        server.signal(signal.SIGCONT)
    assert planning.end()[0] == 0, "it goes on when the server answers"


def test_a_server_that_ends_under_a_sweep_ends_it_in_one_sentence(server: Server, command: list[str], tmp_path: Path) -> None:
    running = _start(tmp_path, "run", "--local", *command)
    wait_for(lambda: " done in " in running.printed.read_text(), what="a stage", seconds=240)
    server.kill()
    code, reported = running.end()
    assert code == 1, reported
    assert (
        len(reported.strip().splitlines()) == 1
        and "a file system whose server has ended" in reported
        and "Unexpected error" not in reported
    )
    server.start()
    code, reported = _start(tmp_path, "run", "--local", *command).end()
    assert code == 0, reported


def test_a_file_system_that_is_unmounted_under_a_sweep_ends_it_and_nothing_is_written_below(
    server: Server, command: list[str], tmp_path: Path
) -> None:
    running = _start(tmp_path, "run", "--local", *command)
    wait_for(lambda: " done in " in running.printed.read_text(), what="a stage", seconds=240)
    server.unmount()
    code, reported = running.end()
    assert code == 1, reported
    assert len(reported.strip().splitlines()) == 1 and "Was its file system unmounted" in reported
    assert not list(server.mount.rglob("*")), "the folder below the mount is as empty as it was"
    server.start()
    code, reported = _start(tmp_path, "run", "--local", *command).end()
    assert code == 0, reported
