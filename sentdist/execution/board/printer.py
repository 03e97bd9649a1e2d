"""The driver's ear: it hears the board and speaks while the trials run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import SweepStopped
from sentdist.execution.board.client import Board, cause_of

LOOK_UP_S = 0.5  # how long after the end the listener may still wait for news


@contextmanager
def telling(board: Board, speak: Callable[[str], None]) -> Iterator[None]:
    """Speak a line for every event of the board while the context is open."""
    is_over = threading.Event()
    listener = threading.Thread(target=_listen, args=(board, speak, is_over), name="sentdist-listener", daemon=True)
    listener.start()
    try:
        yield
    finally:
        is_over.set()
        listener.join()


def _listen(board: Board, speak: Callable[[str], None], is_over: threading.Event) -> None:
    since: int | None = None
    while True:
        news = board.events(since)
        while not ray.wait([news], timeout=LOOK_UP_S)[0]:
            if is_over.is_set():
                return
        try:
            events, since = ray.get(news)
        except RayTaskError as error:
            if isinstance(cause_of(error), SweepStopped):
                speak(f"{board.submission.sweep}: being stopped by `sentdist stop`")
                return
            raise
        except RayError:  # the board died; a trial will open a fresh one, whose events are numbered from nought
            if is_over.wait(LOOK_UP_S):
                return
            board.reopen()
            since = 0
            continue
        for event in events:
            speak(event.line)
