"""The process in which a stage is built: how the board starts it, what it is handed, and how it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from sentdist.execution.board.diagnosis import PATIENCE_S
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.heartbeats import Heartbeat
from sentdist.execution.board.submission import Submission
from sentdist.execution.resources import Demand
from sentdist.plan.stage import Stage
from sentdist.store.store import Artifact

ABORT_S = 60.0  # how long Ray Train may take to let a worker group go
BEATS_IN_TIME = 6  # heartbeats that a worker sends in the time after which its silence is reported

Body = Callable[[Stage, Submission, "EventSink"], Artifact]


@dataclass(frozen=True, kw_only=True)
class EventSink:
    """Posts to the board what happens to stages; travels to whoever builds one. every_s: seconds between two heartbeats."""

    board: Any  # the actor's handle
    every_s: float = PATIENCE_S / BEATS_IN_TIME

    def post(self, event: StageEvent) -> None:
        """Post an event and go on; events to a dead board are dropped."""
        self.board.post.remote(event)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Post a heartbeat, as `post` posts an event."""
        self.board.beat.remote(heartbeat)


def start(body: Body, stage: Stage, submission: Submission, demand: Demand, sink: EventSink) -> ray.ObjectRef:
    """Start building a stage on the cluster, with what it demands; the reference to its artifact."""
    task, environment = _build_on_gpu if demand.builder_gpus else _build, None
    if demand.way == "group":
        # Ray Train's helpers ask "the" cluster whether their controller lives. Where several clusters run on a machine they would ask none
        # of them, and never give back what the controller had reserved. What a process starts inherits its environment.
        task, environment = _drive, {"env_vars": {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}}
    options = task.options(
        name=f"{stage.kind} {stage.label}",
        num_cpus=demand.builder_cpus,
        num_gpus=demand.builder_gpus,
        max_retries=0,
        runtime_env=environment,
    )
    return options.remote(body, stage, submission, sink)


async def abort(task: ray.ObjectRef, demand: Demand) -> None:
    """End a process. One that is interrupted in an import or in a library's own code is fit for nothing afterwards,
    so it is ended by force;
    that of a worker group is interrupted first: only Ray Train's controller gives back what its workers have reserved."""
    ray.cancel(task, force=demand.way != "group")
    done, _ = await asyncio.wait([asyncio.wrap_future(task.future())], timeout=ABORT_S)
    if not done:
        ray.cancel(task, force=True)


@ray.remote
def _build(body: Body, stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    return body(stage, submission, sink)


# Ray gives a process that is free to any stage and only changes which GPU it is told to use; CUDA reads that once. So each stage on a GPU
# has a process of its own, with which the GPU's memory goes, too. Said here because Ray heeds it only where a function is declared.
@ray.remote(max_calls=1)
def _build_on_gpu(body: Body, stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    return body(stage, submission, sink)


@ray.remote
def _drive(body: Body, stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    try:
        return body(stage, submission, sink)
    except KeyboardInterrupt:  # cancelled before Ray Train handled this signal; see `abort` on why the process ends
        raise SystemExit("cancelled") from None


@ray.remote(num_cpus=0)
def note_stopped(submission: Submission) -> None:
    """Write into its run that a submission ended without saying so."""
    submission.tracker.finish_sweep("stopped")
