"""Request stages from the board of a store, stop sweeps, and print the board's events."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, OwnerDiedError, RayActorError, RayError, RayTaskError

from sentdist.errors import ArtifactLost, ResourceError, SweepStopped, did_you_mean
from sentdist.files import code_digest
from sentdist.recipe.stage import Stage
from sentdist.run.address import HEAD, NAMESPACE
from sentdist.run.board import BoardActor
from sentdist.run.connection import cause_of
from sentdist.run.events import StageEvent
from sentdist.run.progress import Show, SweepProgress
from sentdist.run.submissions import Body, Submission
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.text import PrintLine

BOARDS = "sentdist-board-"  # prefix of their names
CALLS_AT_ONCE = 20_000  # to a board: one for each request and each group, two for each process that uses it
FRESH_BOARDS = 3  # boards that may die during one request
MOST_LOSSES = 20  # damaged inputs that one stage may meet, one after another; more mean a faulty disk
LEAVE_S = 30.0  # that a driver waits for its work to end; the board ends it in any case
ORPHANS_LIVE_S = 60.0  # how long work outlives the processes that requested it, so that a new submission can take it over


class BoardClient:
    """The board of a store, for a driver, a trial or a test. A dead board is replaced: what is finished is in the store.

    Args:
        patience_s: how long work goes on without a living process of its submission; used if this client starts the board.
    """

    def __init__(self, submission: Submission, body: Body, *, patience_s: float = ORPHANS_LIVE_S) -> None:
        self.submission = submission
        self._body = body
        self._patience_s = patience_s
        self.name = board_name(submission.context.store)
        self.actor = self._open()

    def build(self, stage: Stage) -> Artifact:
        """Return the artifact of a stage, built with all its inputs if the store lacks it.

        Raises:
            SweepStopped: by `sentdist stop`.
            Exception: the stage or an input raised it.
        """
        for _ in self.follow(stage):
            pass
        found = self.submission.context.store.get(stage)
        assert found is not None, "a stage that was followed to its end is in the store"
        return found

    def follow(self, stage: Stage) -> Iterator[StageEvent]:
        """Build a stage and yield the events of all stages meanwhile; raise as `build` does.

        A damaged input was moved aside: a new request builds it again, and what needs it.
        """
        num_boards = num_losses = 0
        while True:
            try:
                yield from self._follow(stage)
                return
            except (RayActorError, OwnerDiedError):
                num_boards += 1
                if num_boards == FRESH_BOARDS:
                    raise
                self.reopen()
            except ArtifactLost:
                num_losses += 1
                if num_losses == MOST_LOSSES:
                    raise

    def reopen(self) -> None:
        """Open or start the board that replaces a dead one, as a new client: the old one's lost answer must not end the work."""
        self.unregister()
        self.actor = self._open()

    def events(self, since: int | None) -> ray.ObjectRef:
        """Call `BoardActor.events`."""
        return self.actor.events.remote(since, self.submission.id)

    def leave(self) -> None:
        """End this submission, and wait up to LEAVE_S until the work that only it needs has ended. The last one ends the board."""
        with suppress(RayActorError, GetTimeoutError):  # it ends with this call, or with that of another submission
            ray.get(self.actor.leave.remote(self.submission.id), timeout=LEAVE_S)

    def unregister(self) -> None:
        """Unregister this process; others of the submission may still use the board."""
        self.actor.unregister.remote(self._client_id)

    def _follow(self, stage: Stage) -> Iterator[StageEvent]:
        since: int = ray.get(self.actor.last_number.remote())
        wanted = self.actor.request.remote(stage, self.submission)
        news = self.events(since)
        while True:
            ready, _ = ray.wait([wanted, news], num_returns=1, fetch_local=False)
            if news in ready:
                events, since = _get(news)
                yield from events
                news = self.events(since)
            if wanted in ready:
                _get(wanted)
                return

    def _open(self) -> Any:
        # Nothing in it is worth a restart by Ray: a restarted board would have lost its references anyway.
        # "DEFAULT" keeps a board that a trial opens out of the trial's placement group, with which it would end.
        # On the head it is not lost with a host, and with it what it knows of all others.
        options = {
            "name": self.name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "num_cpus": 0,
            "resources": HEAD,
        }
        board = ray.remote(BoardActor).options(**options, scheduling_strategy="DEFAULT", max_concurrency=CALLS_AT_ONCE)
        actor: Any = board.remote(self._body, self._patience_s)
        # The answer comes when this process parts, and is lost when it dies: Ray then tells the board that its owner is dead.
        self._client_id = f"{self.submission.id}/{uuid.uuid4().hex[:8]}"
        actor.watch.remote(self._client_id, [actor.register.remote(self.submission, self._client_id)])
        return actor


def board_name(store: ArtifactStore) -> str:
    """Return the board's name: from the store, so that jobs share work, and from the code, so that no job's work is done by older code."""
    return f"{BOARDS}{hashlib.sha256(store.root.encode()).hexdigest()[:8]}-{code_digest()[:8]}"


def _get(ref: ray.ObjectRef) -> Any:
    """The value of a reference; raises the original exception."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise cause_of(error) from None


def stop_sweeps(name: str | None) -> dict[str, int]:
    """Stop a sweep (None: all) on every board of the connected cluster, see `BoardActor.stop`; return when its work has ended.

    Returns:
        For each stopped sweep, how many stages were being built or waited for it alone.

    Raises:
        ResourceError: no sweep of that name is being built.
    """
    boards = list(_boards())
    known = sorted({sweep for _, sweeps in boards for sweep in sweeps})
    chosen = known if name is None else [sweep for sweep in known if sweep == name]
    if not chosen:
        raise ResourceError(
            where="sentdist stop",
            found=f"only {', '.join(known)} on this cluster" if known else "that no sweep is being built on this cluster",
            expected="a sweep to stop" if name is None else f"a sweep named {name}",
            remedy=did_you_mean(name or "", known, "`ray job list` shows what was submitted."),
        )
    return {sweep: sum(ray.get([board.stop.remote(sweep) for board, sweeps in boards if sweep in sweeps])) for sweep in chosen}


def _boards() -> Iterator[tuple[Any, dict[str, int]]]:
    """The boards of all stores, each with its sweeps."""
    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["namespace"] == NAMESPACE and named["name"].startswith(BOARDS):
            try:
                board: Any = ray.get_actor(named["name"], namespace=NAMESPACE)
                yield board, ray.get(board.sweeps.remote())
            except (ValueError, RayActorError):  # it ended since
                continue


LOOK_UP_S = 0.5  # how long after the end it may still wait for events


@contextmanager
def printed_events(board: BoardClient, progress: SweepProgress, print_line: PrintLine, *, show: Show | None = None) -> Iterator[None]:
    """Print a line for every event of the board while the context is open, and a line on running stages after long silence.

    Args:
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
    while True:
        is_last = is_over.is_set()  # all events for this driver are in the next answer; other sweeps may post forever
        news = board.events(since)
        while not ray.wait([news], timeout=LOOK_UP_S)[0]:
            if is_over.is_set():
                return
            if line := progress.silence_line():
                print_line(line)
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
