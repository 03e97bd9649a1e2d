"""The board of a store as those use it who need stages: drivers, trials, tests."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, OwnerDiedError, RayActorError, RayTaskError

from sentdist.code_digest import code_digest
from sentdist.errors import ArtifactLost
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.diagnosis import STANDSTILL_S
from sentdist.execution.board.event_sink import Body
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.submission import Submission
from sentdist.execution.cluster.names import HEAD, NAMESPACE
from sentdist.execution.cluster.ray_errors import cause_of
from sentdist.plan.stage import Stage
from sentdist.store.store import Artifact, ArtifactStore

BOARDS = "sentdist-board-"  # their names begin so
CALLS_AT_ONCE = 20_000  # to a board: one for each stage in flight, two for each process that uses it
FRESH_BOARDS = 3  # how often a caller puts up with a board that dies under it
MOST_LOSSES = 20  # damaged inputs that one stage may meet, one after another; then the disk itself is at fault
LEAVE_S = 30.0  # that a driver waits for its work to end; the board ends it, whether somebody waits or not
ORPHANS_LIVE_S = 60.0  # how long work outlives the processes that asked for it: whoever submits again meanwhile finds it going on


class BoardClient:
    """The board of a store as a driver, a trial or a test uses it. A board that died is replaced: what is finished lies in the store.

    patience_s: how long work goes on when no process of a submission lives any more. silence_s: after which time without progress the board
    says what waits for what. (Both of the board that is opened first.)
    """

    def __init__(self, submission: Submission, body: Body, *, patience_s: float = ORPHANS_LIVE_S, silence_s: float = STANDSTILL_S) -> None:
        self.submission = submission
        self._body = body
        self._patience_s, self._silence_s = patience_s, silence_s
        self.name = board_name(submission.context.store)
        self.actor = self._open()

    def build(self, stage: Stage) -> Artifact:
        """The artifact of a stage, built with all its inputs if the store has not got it.

        Raises:
            SweepStopped: by `sentdist stop`.
            Exception: the error of the stage (or input) that failed, as it was raised where it was built.
        """
        for _ in self.follow(stage):
            pass
        found = self.submission.context.store.get(stage)
        assert found is not None, "a stage that was followed to its end is in the store"
        return found

    def follow(self, stage: Stage) -> Iterator[StageEvent]:
        """Have a stage built and give out the events of all stages meanwhile; ends when it is built, raises as `build` does.

        An input that turned out to be damaged was moved aside: asking again builds it, and what needs it.
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
        """Find the board that took the place of a dead one, or start it. One that lives and did not answer sees a new client: what it
        learns of the old one, whose answer is perhaps lost, must not end the work."""
        self.unregister()
        self.actor = self._open()

    def events(self, since: int | None) -> ray.ObjectRef:
        """See `BoardActor.events`."""
        return self.actor.events.remote(since, self.submission.id)

    def leave(self) -> None:
        """Say that this submission ends, and with it the work that only it needs; waits a while for that. The last one ends the board."""
        with suppress(RayActorError, GetTimeoutError):  # it ends with this call, or with that of another submission
            ray.get(self.actor.leave.remote(self.submission.id), timeout=LEAVE_S)

    def unregister(self) -> None:
        """Say that this process needs the board no longer, while others of the submission may."""
        self.actor.unregister.remote(self._client_id)

    def _follow(self, stage: Stage) -> Iterator[StageEvent]:
        since: int = ray.get(self.actor.last_number.remote())
        (wanted,) = _get(self.actor.request.remote(stage, self.submission))
        news = self.events(since)
        while True:
            ready, _ = ray.wait([wanted, news], num_returns=1, fetch_local=False)
            if news in ready:
                events, since = _get(news)
                yield from events
                news = self.events(since)
            if wanted in ready:
                try:
                    _get(wanted)
                except Exception:
                    _get(self.actor.check.remote(self.submission.id))  # work that was stopped ends with errors of many kinds
                    raise
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
        actor: Any = board.remote(self._body, self._patience_s, self._silence_s)
        # The answer comes when this process parts, and is lost when it dies: Ray then tells the board that its owner is dead.
        self._client_id = f"{self.submission.id}/{uuid.uuid4().hex[:8]}"
        actor.watch.remote(self._client_id, [actor.register.remote(self.submission, self._client_id)])
        return actor


def board_name(store: ArtifactStore) -> str:
    """Named after the store, so that jobs share work, and after the code, so that a job never has its work done by older code."""
    return f"{BOARDS}{hashlib.sha256(store.root.encode()).hexdigest()[:8]}-{code_digest()[:8]}"


def _get(ref: ray.ObjectRef) -> Any:
    """The value of a reference; an error comes as the exception that was raised at the other end."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise cause_of(error) from None
