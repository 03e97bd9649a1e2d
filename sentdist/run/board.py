"""Run the board, a named, detached actor that builds each stage once for all submissions of a store, and repeats lost work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from sentdist.errors import ArtifactLost, named
from sentdist.machine import collect_rarely
from sentdist.recipe.stage import Stage, topological
from sentdist.run.connection import cause_of
from sentdist.run.events import COUNTED, IN_FLIGHT, STAGES, EventLog, StageEvent, add, show
from sentdist.run.losses import LOSSES, Losses, end_of
from sentdist.run.resources import Demand, stage_demand
from sentdist.run.submissions import (
    BackgroundTasks,
    Body,
    EventSink,
    GroupMember,
    StagesInFlight,
    Submission,
    Work,
    stopped,
)
from sentdist.run.workers import CLOSES_WITHIN_S, Order, StartedGroup, WorkerGroups
from sentdist.store.store import Artifact


def start_group(member: GroupMember) -> ray.ObjectRef:
    """Start a worker group with its demand; return the reference to its end."""
    demand = member.demand
    if demand.way == "task":
        stay = _stay_with_gpu if demand.num_gpus else _stay
        return stay.options(name=member.name, max_retries=0, **demand.options).remote(member)
    # Ray Train's helpers ask "the" cluster whether their controller lives. Where several clusters run on a machine they would ask none
    # of them, and never give back what the controller had reserved. What a process starts inherits its environment.
    environment = {"env_vars": {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}}
    return _drive.options(name=member.name, num_cpus=0, max_retries=0, runtime_env=environment).remote(member)


async def abort(task: ray.ObjectRef, demand: Demand) -> None:
    """End a process by force, since one interrupted in an import or in a library is unusable afterwards. The driver of a worker group is
    interrupted first: only Ray Train's controller frees what its workers have reserved."""
    ray.cancel(task, force=demand.way != "group")
    done, _ = await asyncio.wait([asyncio.wrap_future(task.future())], timeout=CLOSES_WITHIN_S)
    if not done:
        ray.cancel(task, force=True)


def _work(member: GroupMember) -> None:
    from sentdist.run.orders import build_orders

    build_orders(member)


_stay = ray.remote(_work)
# Ray reuses a free process for any task and only changes its GPU; CUDA reads that once. So a process that stays with a GPU ends with it.
_stay_with_gpu = ray.remote(max_calls=1)(_work)


@ray.remote
def _drive(member: GroupMember) -> None:
    collect_rarely()
    from sentdist.run.group import run_worker_group

    try:
        run_worker_group(member)
    except KeyboardInterrupt:  # cancelled before Ray Train handled this signal; see `abort` on why the process ends
        raise SystemExit("cancelled") from None


@ray.remote(num_cpus=0)
def note_failed(submission: Submission, key: str, message: str) -> None:
    """Mark the tracking run of a stage as failed."""
    submission.tracker.fail(key, message)


@ray.remote(num_cpus=0)
def note_stopped(submission: Submission) -> None:
    """Mark the tracking run of a submission whose processes died as stopped."""
    submission.tracker.finish_sweep("stopped")


ANSWER_S = 1.0  # time for a last answer to reach its caller before the board ends


class BoardActor:
    """The actor; use it through `BoardClient`. It reserves nothing and holds only what the store has: it may die any time.

    A stage is looked up in the work in flight, then in the store; if it is in neither, a task is started that waits for its inputs, then
    has it built, again if its process or host is lost. A submission in which a stage failed gets the same error
    again; another submission starts it again. A stage with a damaged input may be requested again at once: the input was moved aside
    and is rebuilt first.

    Work that no submission needs is ended: because they were stopped, have left, or have no living process. The board ends with the
    last submission.
    """

    def __init__(self, body: Body, patience_s: float) -> None:
        self._body = body
        self._patience_s = patience_s
        self._work = StagesInFlight()
        self._failed: dict[str, Work] = {}
        self._submissions: dict[str, Submission] = {}
        self._clients: dict[str, asyncio.Event] = {}  # a process that uses the board -> set when it unregisters
        self._stopped: set[str] = set()  # submissions
        self._num_stopping = 0
        self._groups = WorkerGroups(self._start_group)
        self._background = BackgroundTasks()
        self._events = EventLog()

    async def register(self, submission: Submission, client: str) -> None:
        """Register a process of a submission; return when it unregisters. Its reference to the answer dies with it, see `watch`."""
        self._submissions.setdefault(submission.id, submission)
        self._clients[client] = asyncio.Event()
        await self._clients[client].wait()

    async def watch(self, client: str, answer: list[ray.ObjectRef]) -> None:
        """Watch until the process that holds `answer`, from `register`, unregisters or dies."""
        self._background.start(self._watch_client(client, answer[0]))

    async def unregister(self, client: str) -> None:
        """Unregister a process."""
        if client in self._clients:
            self._clients[client].set()

    async def request(self, stage: Stage, submission: Submission) -> None:
        """Build a stage, and inputs that are missing; return when it is in the store.

        Raises:
            SweepStopped: the submission was stopped.
            ResourceError: a process or host of a stage was lost too often.
            Exception: the body of a stage raised it.
        """
        self._refuse_stopped(submission.id)
        self._submissions.setdefault(submission.id, submission)
        built = await asyncio.to_thread(submission.context.store.get_all, topological((stage,)))
        self._refuse_stopped(submission.id)
        if submission.id not in self._submissions:  # it has left meanwhile
            raise stopped(submission.sweep)
        work = self._needed(stage, submission, built.keys())
        if work is None:
            return
        try:
            await asyncio.shield(work.task)
        except BaseException:  # work that was stopped ends with errors of many kinds
            self._refuse_stopped(submission.id)
            raise

    async def post(self, event: StageEvent) -> None:
        """Keep an event and wake the readers."""
        if event.what in COUNTED:
            add(STAGES, kind=event.kind, what=event.what)
        show(IN_FLIGHT, len(self._work))
        await self._events.add(event)

    async def events(self, since: int | None, submission_id: str) -> tuple[list[StageEvent], int]:
        """Wait for events after number `since` (None: from now on); return them and the number of the last one.

        Raises:
            SweepStopped: the submission was stopped; raised at once.
        """
        news = await self._events.after(since, is_over=lambda: submission_id in self._stopped)
        self._refuse_stopped(submission_id)
        return news

    async def next_order(self, group: str, after: int, *, is_first: bool) -> Order | None:
        """Return the next order for a worker of a group, see `WorkerGroups`."""
        return await self._groups.next_order(group, after, is_first=is_first)

    async def begin(self, group: str, number: int) -> None:
        """Let the other workers of a group begin this order."""
        self._groups.begin(group, number)

    async def finish(self, group: str, number: int, answer: Artifact | BaseException) -> None:
        """Take a group's answer to an order."""
        self._groups.finish(group, number, answer)

    async def last_number(self) -> int:
        """Return the number of the last event."""
        return self._events.last_number

    async def leave(self, submission_id: str) -> None:
        """End a submission, and wait until the work that only it needs has ended. The last one ends the board."""
        self._submissions.pop(submission_id, None)
        await _ended(self._release({submission_id}))
        if not self._submissions:
            await self._groups.close()
        self._end_if_idle()

    async def sweeps(self) -> dict[str, int]:
        """Return the number of stages in flight for each active sweep."""
        found: dict[str, set[str]] = {}
        for submission in self._submissions.values():
            if submission.id not in self._stopped:
                found.setdefault(submission.sweep, set()).update(self._work.needed_by(submission.id))
        return {sweep: len(keys) for sweep, keys in found.items()}

    async def stop(self, sweep: str) -> int:
        """Stop the submissions of a sweep and end the work that only they need; return the number of stages once they have ended.

        Running trainings end at once; requested again, they go on from their last checkpoint.
        """
        stopped = {submission.id for submission in self._submissions.values() if submission.sweep == sweep} - self._stopped
        self._stopped |= stopped
        await self._events.wake()
        unneeded = self._release(stopped)
        self._num_stopping += 1
        await _ended(unneeded)
        self._background.start(self._end_after_answer())
        return len(unneeded)

    def _needed(self, stage: Stage, submission: Submission, built: Set[str]) -> Work | None:
        """The work on a stage that a submission needs, started if it is not in flight; None if the store has the stage."""
        work = self._work.get(stage.key)
        if work is None:
            failed = self._failed.get(stage.key)
            if failed is not None and submission.id in failed.asked_by:
                return failed
            if stage.key in built:
                return None
            self._failed.pop(stage.key, None)
            inputs = [work for needed in stage.inputs if (work := self._needed(needed, submission, built)) is not None]
            task = asyncio.get_running_loop().create_task(self._drive(stage, submission, inputs))
            work = Work(task=task, stage=stage)
            self._work[stage.key] = work
            task.add_done_callback(lambda _, work=work: self._end_of(work))  # type: ignore[misc]
        self._work.need(stage, submission.id)
        return work

    async def _drive(self, stage: Stage, submission: Submission, inputs: Sequence[Work]) -> None:
        for one in inputs:
            await asyncio.shield(one.task)
        demand = stage_demand(stage, submission.context.runtime)
        losses = Losses(stage, submission.context.runtime.max_failures)
        while True:
            try:
                work = self._work.get(stage.key)
                await self._groups.build(stage, submission, demand, distance=work.distance if work else 0)
                return
            except LOSSES as loss:
                try:
                    retry = losses.add(loss)
                except Exception as error:
                    await self._note_failed(stage, submission, error)
                    raise
                await self.post(retry)

    def _end_of(self, work: Work) -> None:
        error = None if work.task.cancelled() else work.task.exception()
        if self._work.get(work.stage.key) is work:  # it may have been released, and the stage started again
            if error is not None and not isinstance(cause_of(error), ArtifactLost):
                self._failed[work.stage.key] = work
            del self._work[work.stage.key]
            show(IN_FLIGHT, len(self._work))

    def _start_group(self, name: str, demand: Demand) -> StartedGroup:
        task = start_group(GroupMember(name=name, demand=demand, body=self._body, sink=EventSink(board=_this_board())))
        return StartedGroup(ended=task, abort=lambda: abort(task, demand))

    async def _note_failed(self, stage: Stage, submission: Submission, error: BaseException) -> None:
        """Post the end of a stage that was given up."""
        event = end_of(stage, error)
        if event.what == "failed":
            note_failed.remote(submission, stage.key, named(error))
        await self.post(event)

    def _release(self, submission_ids: set[str]) -> list[Work]:
        """End what only these submissions need; a later request starts it again."""
        ended = self._work.release(submission_ids)
        for work in ended:
            work.task.cancel()
        return ended

    async def _watch_client(self, client: str, answer: ray.ObjectRef) -> None:
        with suppress(RayError):  # its process died
            await answer
        self._clients.pop(client, None)
        submission_id = _submission_of(client)
        await asyncio.sleep(self._patience_s)
        if submission_id in self._submissions and not any(_submission_of(taken) == submission_id for taken in self._clients):
            await self._clear_up(self._submissions.pop(submission_id))

    async def _clear_up(self, submission: Submission) -> None:
        """End what a killed driver left. A sweep that was submitted again meanwhile goes on."""
        await _ended(self._release({submission.id}))
        if not any(other.sweep == submission.sweep for other in self._submissions.values()):
            with suppress(RayError):
                await note_stopped.remote(submission)
        self._end_if_idle()

    def _refuse_stopped(self, submission_id: str) -> None:
        if submission_id in self._stopped:
            raise stopped(self._submissions[submission_id].sweep if submission_id in self._submissions else "the sweep")

    async def _end_after_answer(self) -> None:
        """End the board if it is idle, but not before the caller of `stop` has its answer."""
        await asyncio.sleep(ANSWER_S)
        self._num_stopping -= 1
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._submissions and not self._work and not self._num_stopping:
            ray.kill(_this_board())  # `exit_actor` would wait for pending calls of `events`; the next client opens a fresh board


async def _ended(works: Iterable[Work]) -> None:
    """Wait until cancelled work has ended."""
    await asyncio.gather(*(work.task for work in works), return_exceptions=True)


def _this_board() -> Any:
    return ray.get_runtime_context().current_actor


def _submission_of(client: str) -> str:
    return client.partition("/")[0]
