"""Prints the board's events on the driver while the trials run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import StoreError, SweepStopped
from sentdist.execution.board.client import BoardClient
from sentdist.execution.cluster.ray_errors import cause_of
from sentdist.execution.progress import Show, SweepProgress
from sentdist.print_line import PrintLine
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_names

LOOK_UP_S = 0.5  # how long after the end it may still wait for events


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
    store = _Store(board.submission.context.store)
    while True:
        is_last = is_over.is_set()  # whatever this driver waits to see is in the next answer; other sweeps may have news forever
        news = board.events(since)
        while not ray.wait([news], timeout=LOOK_UP_S)[0]:
            if is_over.is_set():
                return
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
