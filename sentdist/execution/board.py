"""Who builds what on a cluster: a named, detached actor that maps the key of a stage to the one piece of work that makes it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, OwnerDiedError, RayActorError, RayTaskError

import sentdist
from sentdist.execution.progress import StageEvent
from sentdist.execution.resources import stage_demand
from sentdist.execution.submission import Submission
from sentdist.plan.stage import Stage
from sentdist.store.store import Artifact, ArtifactStore

NAMESPACE = "sentdist"
KEPT_EVENTS = 2000
FRESH_BOARDS = 3  # how often a caller puts up with a board that dies under it

Body = Callable[[Stage, Submission, "Teller"], Artifact]


@dataclass(frozen=True, kw_only=True)
class Teller:
    """Says what happens to stages; travels to whoever builds one."""

    board: Any  # the actor's handle

    def tell(self, event: StageEvent) -> None:
        """Post an event and go on; a board that is gone hears nothing."""
        self.board.tell.remote(event)


@dataclass(kw_only=True)
class _Work:
    ref: ray.ObjectRef
    asked_by: set[str]


@dataclass(kw_only=True)
class _Events:
    """The last events, numbered; whoever has read up to a number is woken by the next one."""

    kept: deque[StageEvent] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    num_told: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)


class StageBoard:
    """The actor itself; use it through `Board`. It reserves nothing and keeps nothing that the store does not have: it may die any time.

    A stage is looked for in the store first, then among the work in flight; only then it is started, with the ObjectRefs of its inputs as
    arguments, so that Ray starts it when they exist and never if one of them failed. A key that failed is forgotten: the next submission
    that asks starts it again, while the one in which it failed is given the same error, not the same work once more.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self._work: dict[str, _Work] = {}
        self._failed: dict[str, _Work] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._events = _Events()
        self._desk: Any = None

    async def request(self, stage: Stage, submission: Submission) -> list[ray.ObjectRef]:
        """The reference to a stage's artifact, in a list because Ray would otherwise wait for it."""
        return [self._ref(stage, submission)]

    async def tell(self, event: StageEvent) -> None:
        """Keep an event and wake those who listen."""
        async with self._events.news:
            self._events.kept.append(event)
            self._events.num_told += 1
            self._events.news.notify_all()

    async def events(self, since: int | None) -> tuple[list[StageEvent], int]:
        """The events after number `since` (None: from now on) and the number of the last one; waits until there is one."""
        events = self._events
        since = events.num_told if since is None else since
        async with events.news:
            await events.news.wait_for(lambda: events.num_told > since)
            num_new = min(events.num_told - since, len(events.kept))
            return list(events.kept)[len(events.kept) - num_new :], events.num_told

    async def num_told(self) -> int:
        """The number of the last event."""
        return self._events.num_told

    async def leave(self, submission_id: str) -> bool:
        """A submission ends; whether the board may end too, because nobody waits for anything any more."""
        for work in self._work.values():
            work.asked_by.discard(submission_id)
        return not any(work.asked_by for work in self._work.values())

    def _ref(self, stage: Stage, submission: Submission) -> ray.ObjectRef:
        work = self._work.get(stage.key)
        if work is None:
            failed = self._failed.get(stage.key)
            if failed is not None and submission.id in failed.asked_by:
                return failed.ref
            found = submission.context.store.get(stage)
            if found is not None:
                return ray.put(found)
            self._failed.pop(stage.key, None)
            work = _Work(ref=self._start(stage, submission), asked_by=set())
            self._work[stage.key] = work
            watcher = asyncio.get_running_loop().create_task(self._watch(stage.key, work))
            self._watchers.add(watcher)  # the loop itself keeps only weak references to its tasks
            watcher.add_done_callback(self._watchers.discard)
        work.asked_by.add(submission.id)
        return work.ref

    def _start(self, stage: Stage, submission: Submission) -> ray.ObjectRef:
        inputs = [self._ref(needed, submission) for needed in stage.inputs]
        demand = stage_demand(stage, submission.context.runtime)
        teller = Teller(board=ray.get_runtime_context().current_actor)
        if demand.drives_worker_group:
            return self._training_desk(submission).build.remote(self._body, stage, submission, teller, *inputs)
        task = _build.options(
            name=f"{stage.kind} {stage.label}",
            num_cpus=demand.num_cpus,
            num_gpus=demand.num_gpus,
            max_retries=submission.context.runtime.max_failures,  # after the loss of a process or node; an exception is final
        )
        return task.remote(self._body, stage, submission, teller, *inputs)

    def _training_desk(self, submission: Submission) -> Any:
        if self._desk is None:
            self._desk = (
                ray.remote(TrainingDesk)
                .options(
                    num_cpus=0,
                    max_concurrency=submission.trainings_at_once,
                    max_restarts=-1,
                    max_task_retries=submission.context.runtime.max_failures,
                )
                .remote()
            )
        return self._desk

    async def _watch(self, key: str, work: _Work) -> None:
        try:
            await work.ref
        except Exception:  # whoever asked holds the reference and gets the error whole; here it only matters that there was one
            self._failed[key] = work
        finally:
            del self._work[key]


class TrainingDesk:
    """Drives Ray Train runs, as many at once as the cluster can carry; Ray's own queue of calls holds the others back.

    The drivers reserve nothing, so without this bound every training of a sweep would start a controller and wait there.
    """

    def build(self, body: Body, stage: Stage, submission: Submission, teller: Teller, *inputs: Artifact) -> Artifact:
        return body(stage, submission, teller)


@ray.remote
def _build(body: Body, stage: Stage, submission: Submission, teller: Teller, *inputs: Artifact) -> Artifact:
    return body(stage, submission, teller)


class Board:
    """The board of a store as a driver, a trial or a test uses it. A board that died is replaced: what is finished lies in the store."""

    def __init__(self, submission: Submission, body: Body) -> None:
        self.submission = submission
        self._body = body
        self.name = board_name(submission.context.store)
        self.actor = self._open()

    def build(self, stage: Stage) -> Artifact:
        """The artifact of a stage, built with all its inputs if the store has not got it.

        Raises:
            The error of the stage (or input) that failed, as it was raised where it was built.
        """
        for _ in self.follow(stage):
            pass
        found = self.submission.context.store.get(stage)
        assert found is not None, "a stage that was followed to its end is in the store"
        return found

    def follow(self, stage: Stage) -> Iterator[StageEvent]:
        """Have a stage built and give out the events of all stages meanwhile; ends when it is built, raises as `build` does."""
        for last in range(FRESH_BOARDS):
            try:
                yield from self._follow(stage)
                return
            except (RayActorError, ActorUnavailableError, OwnerDiedError):
                if last == FRESH_BOARDS - 1:
                    raise
                self.reopen()

    def reopen(self) -> None:
        """Find the board that took the place of a dead one, or start it."""
        self.actor = self._open()

    def events(self, since: int | None) -> ray.ObjectRef:
        """See `StageBoard.events`."""
        return self.actor.events.remote(since)

    def leave(self) -> None:
        """Say that this submission ends. The last one ends the board, and with it the work that nobody waits for any more."""
        try:
            if ray.get(self.actor.leave.remote(self.submission.id)):
                ray.kill(self.actor)  # `exit_actor` would wait for those who listen for news; whoever asks now opens a fresh board
        except RayActorError:
            return  # another submission was faster

    def _follow(self, stage: Stage) -> Iterator[StageEvent]:
        since: int = ray.get(self.actor.num_told.remote())
        (wanted,) = ray.get(self.actor.request.remote(stage, self.submission))
        news = self.events(since)
        while True:
            ready, _ = ray.wait([wanted, news], num_returns=1, fetch_local=False)
            if news in ready:
                events, since = ray.get(news)
                yield from events
                news = self.events(since)
            if wanted in ready:
                _get(wanted)
                return

    def _open(self) -> Any:
        # Nothing in it is worth a restart by Ray: a restarted board would have lost its references anyway.
        # "DEFAULT" keeps a board that a trial opens out of the trial's placement group, with which it would end.
        options = {"name": self.name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
        return ray.remote(StageBoard).options(**options, scheduling_strategy="DEFAULT", max_concurrency=1000).remote(self._body)


def board_name(store: ArtifactStore) -> str:
    """Named after the store, so that jobs share work, and after the code, so that a job never has its work done by older code."""
    return f"sentdist-board-{hashlib.sha256(store.root.encode()).hexdigest()[:8]}-{_code_digest()}"


def _get(ref: ray.ObjectRef) -> Artifact:
    """The value of a reference; an error comes as the exception that was raised at the other end."""
    try:
        artifact: Artifact = ray.get(ref)
    except RayTaskError as error:
        raise cause_of(error) from None
    return artifact


def cause_of(error: BaseException) -> BaseException:
    """The exception that a body raised, out of Ray's wrappers (one for each process border it crossed)."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


@cache
def _code_digest() -> str:
    digest = hashlib.sha256()
    root = Path(sentdist.__path__[0])
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}:".encode() + path.read_bytes())
    return digest.hexdigest()[:8]
