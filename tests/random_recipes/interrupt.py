"""Comparisons at random that are killed at random moments and started again: they end with the bytes of an undisturbed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.artifacts import differences, digests, record_marks
from tests.random_recipes.compare import planned_comparison
from tests.random_recipes.draw import Draw

MOST_KILLS = 3


def interrupt(draw: Draw, data: Path, encoders: Sequence[Path], folder: Path) -> str:
    """What became of it: "refused", or "ended as undisturbed"; AssertionError for what is wrong."""
    if planned_comparison(draw, data, encoders, folder) is None:
        return "refused"
    recipe = folder / "random.yaml"
    started = time.monotonic()
    assert _swept(recipe, data, folder / "undisturbed", after=None) == 0
    took = time.monotonic() - started
    store, kept = folder / "store", dict[str, tuple[int, int]]()
    for _ in range(draw.randint(1, MOST_KILLS)):
        code = _swept(recipe, data, store, after=draw.uniform(0.2, 1.0) * took)
        assert code in (0, -signal.SIGKILL)
        marks = record_marks(store)
        lost = [place for place, mark in kept.items() if marks.get(place) != mark]
        assert not lost, f"made again though they were finished: {lost}"
        kept = marks
    assert _swept(recipe, data, store, after=None) == 0
    unlike = differences(digests(store), digests(folder / "undisturbed"))
    assert not unlike, unlike[:5]
    left = [str(path.relative_to(store)) for path in (store / ".staging").glob("*")]
    assert not left, f"left behind: {left[:5]}"
    return "ended as undisturbed"


def _swept(recipe: Path, data: Path, store: Path, *, after: float | None) -> int:
    """The exit code of `sweep --local` in a process of its own, which is killed with all its processes after so many seconds."""
    command = [sys.executable, "-m", "sentdist", "sweep", recipe, "--local", "--data", data, "--store", store]
    log = recipe.with_suffix(".log")
    with log.open("a") as output:
        running = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | {"COLUMNS": "200"}
        )
        try:
            code = running.wait(after)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return running.wait()
    assert code == 0, log.read_text()[-3000:]
    return code
