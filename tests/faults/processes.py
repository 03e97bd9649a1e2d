"""The processes of a cluster by what they do, as their titles say."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Ray names its processes: `ray::CLASS` or `ray::CLASS.method` for actors, `ray::NAME` for tasks, `ray::IDLE` for those that wait for one.
TITLES = {
    "BoardActor": r"ray::BoardActor\b",
    "trial": r"ray::(ImplicitFunc|_run_trial)\b",
    "worker": r"ray::worker-\d",
    "train worker": r"ray::RayTrainWorker\b",
    "train controller": r"ray::TrainController\b",
    "pool worker": r"ray::PoolWorker\b",
    "bank owner": r"ray::EmbeddingBanks\b",
    "raylet": r"\S*/raylet/raylet ",
    "GCS": r"\S*/gcs/gcs_server ",
}
WORKING = ("BoardActor", "trial", "worker", "train worker", "train controller", "pool worker")  # none of them outlives a sweep


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a host."""

    pid: int
    host: int
    title: str

    @property
    def what(self) -> str | None:
        """What it does, a key of `TITLES`; None for all else."""
        return next((what for what, pattern in TITLES.items() if re.match(pattern, self.title)), None)


def look_at(pids: Iterable[int], host: int) -> list[Process]:
    """The processes of these ids that still live."""
    found = []
    for pid in pids:
        with suppress(OSError):  # it went away by itself meanwhile
            title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(Process(pid=pid, host=host, title=title))
    return found


def send(process: Process, number: signal.Signals) -> None:
    """A signal, if the process is still there."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
