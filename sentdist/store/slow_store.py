"""Says when a store does not answer: a call to a file server that is away may wait for hours without an error."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TELL_AFTER_S = 60.0  # without an answer
SLOWEST_S = 600.0  # between two lines about the same wait, which come more and more rarely

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Wait:
    shown: str
    since: float
    tell_at: float


_waits: dict[int, _Wait] = {}  # by thread; what is answered is gone from here
_watcher: list[threading.Thread] = []
_beginning = threading.Lock()


@contextmanager
def warn_if_silent(shown: str) -> Iterator[None]:
    """While the context is open, this thread waits for a store to answer; meant for small requests, since large ones take long."""
    with _beginning:
        if not _watcher:
            _watcher.append(threading.Thread(target=_watch, name="sentdist-store-silence", daemon=True))
            _watcher[0].start()
    now, thread = time.monotonic(), threading.get_ident()
    outer = _waits.get(thread)
    _waits[thread] = _Wait(shown=shown, since=now, tell_at=now + TELL_AFTER_S)
    try:
        yield
    finally:
        if outer is None:
            del _waits[thread]
        else:
            _waits[thread] = outer


def _watch() -> None:
    while True:
        time.sleep(TELL_AFTER_S / 30)
        now = time.monotonic()
        for wait in list(_waits.values()):
            if now >= wait.tell_at:
                waited = now - wait.since
                wait.tell_at = now + min(waited, SLOWEST_S)
                log.warning(
                    "The store %s has not answered for %.0f s. Its disk or file server is away or overloaded; this goes on when it "
                    "answers. To end it before: kill -9 %d. What is finished is kept.",
                    wait.shown,
                    waited,
                    os.getpid(),
                )
