"""Prints the board's events on the driver while the trials run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import StoreError, SweepStopped
from sentdist.execution.board.client import BoardClient
from sentdist.execution.cluster.address import takes_connections
from sentdist.execution.cluster.ray_errors import cause_of
from sentdist.execution.progress import Show, SweepProgress
from sentdist.print_line import PrintLine
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_names

LOOK_UP_S = 0.5  # how long after the end it may still wait for events
HEAD_S = 10.0  # between two looks at the cluster's head while nothing happens


@contextmanager
def printed_events(board: BoardClient, progress: SweepProgress, print_line: PrintLine, *, show: Show | None = None) -> Iterator[None]:
    """While the context is open, print a line for every event of the board, and one that says what runs where nothing happens for long.

    show: takes the progress several times a second.
    """
    is_over = threading.Event()
    show = show or (lambda progress: None)
    printer = threading.Thread(
        target=_print_events, args=(board, progress, print_line, show, is_over), name="sentdist-printer", daemon=True
    )
    printer.start()
    try:
        yield
    finally:
        is_over.set()
        printer.join()


def _print_events(board: BoardClient, progress: SweepProgress, print_line: PrintLine, show: Show, is_over: threading.Event) -> None:
    since: int | None = None
    store, head = _Store(board.submission.context.store), _Head(board.submission.sweep)
    while True:
        is_last = is_over.is_set()  # whatever this driver waits to see is in the next answer; other sweeps may have news forever
        news = board.events(since)
        while not ray.wait([news], timeout=LOOK_UP_S)[0]:
            if is_over.is_set():
                return
            if line := head.notice():
                print_line(line)
            if line := progress.silence_line():
                print_line(line)
                store.ask()
            show(progress)
        try:
            events, since = ray.get(news)
        except RayTaskError as error:
            if isinstance(cause_of(error), SweepStopped):
                print_line(f"{board.submission.sweep}: being stopped by `sentdist stop`")
                return
            raise
        except RayError:  # the board died; a trial will open a fresh one, whose events are numbered from zero
            if is_over.wait(LOOK_UP_S):
                return
            board.reopen()
            since = 0
            continue
        for event in events:
            print_line(progress.line(event))
        show(progress)
        if is_last:
            return


class _Head:
    """Notices that the cluster's head is gone: Ray waits for it a minute without a word, then ends this process from C++."""

    def __init__(self, sweep: str) -> None:
        self._sweep, self._next, self._num_away = sweep, time.monotonic() + HEAD_S, 0

    def notice(self) -> str | None:
        """What to say, once, of a head that took no connection twice."""
        if time.monotonic() < self._next:
            return None
        self._next, address = time.monotonic() + HEAD_S, ray.get_runtime_context().gcs_address
        self._num_away = 0 if takes_connections(address) else self._num_away + 1
        if self._num_away != 2:
            return None
        return (
            f"{self._sweep}: the head of the cluster at {address} is gone. Unless it comes back within a minute, Ray ends this "
            "command. Then start the cluster (`sentdist up`) and submit again: what is finished is kept."
        )


class _Store:
    """Asks the store something where nothing happens for long. If it does not answer, `slow_store.py` prints a line: a board that waits
    for the store cannot."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._asking: threading.Thread | None = None

    def ask(self) -> None:
        """Ask a small question, in the background."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, name="sentdist-store", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        with suppress(StoreError):  # whoever builds a stage meets it, too, and tells it
            sweep_names(self._store)
