"""The processes in which stages are built: how the board starts and ends them."""

from __future__ import annotations

import asyncio

import ray

from sentdist.execution.board.event_sink import Body, EventSink, GroupMember
from sentdist.execution.board.submission import Submission
from sentdist.execution.board.worker_groups import CLOSES_WITHIN_S
from sentdist.execution.demand import Demand
from sentdist.gc_thresholds import collect_rarely
from sentdist.plan.stage import Stage
from sentdist.store.store import Artifact


def start(body: Body, stage: Stage, submission: Submission, demand: Demand, sink: EventSink) -> ray.ObjectRef:
    """Start building a stage on the cluster, with what it demands; the reference to its artifact."""
    reserved = {"num_cpus": demand.builder_cpus, "num_gpus": demand.builder_gpus, "resources": demand.builder_resources}
    return _build.options(name=f"{stage.kind} {stage.label}", max_retries=0, **reserved).remote(body, stage, submission, sink)


def start_group(member: GroupMember) -> ray.ObjectRef:
    """Start workers that stay, with what they demand; the reference to their end."""
    demand = member.demand
    if demand.way == "task":
        return _stay.options(name=member.name, max_retries=0, **demand.options).remote(member)
    # Ray Train's helpers ask "the" cluster whether their controller lives. Where several clusters run on a machine they would ask none
    # of them, and never give back what the controller had reserved. What a process starts inherits its environment.
    environment = {"env_vars": {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}}
    return _drive.options(name=member.name, num_cpus=0, max_retries=0, runtime_env=environment).remote(member)


async def abort(task: ray.ObjectRef, demand: Demand) -> None:
    """End a process. One that is interrupted in an import or in a library's own code is fit for nothing afterwards,
    so it is ended by force;
    that of a worker group is interrupted first: only Ray Train's controller gives back what its workers have reserved."""
    ray.cancel(task, force=demand.way != "group")
    done, _ = await asyncio.wait([asyncio.wrap_future(task.future())], timeout=CLOSES_WITHIN_S)
    if not done:
        ray.cancel(task, force=True)


@ray.remote
def _build(body: Body, stage: Stage, submission: Submission, sink: EventSink) -> Artifact:
    collect_rarely()
    return body(stage, submission, sink)


# Ray gives a process that is free to any stage and only changes which GPU it is given; CUDA reads that once. So a process that stays
# with a GPU ends with it. Said here because Ray reads it only where a function is declared.
@ray.remote(max_calls=1)
def _stay(member: GroupMember) -> None:
    collect_rarely()
    from sentdist.execution.training.member import build_orders

    build_orders(member)


@ray.remote
def _drive(member: GroupMember) -> None:
    collect_rarely()
    from sentdist.execution.training.worker_group import run_worker_group

    try:
        run_worker_group(member)
    except KeyboardInterrupt:  # cancelled before Ray Train handled this signal; see `abort` on why the process ends
        raise SystemExit("cancelled") from None


@ray.remote(num_cpus=0)
def note_failed(submission: Submission, key: str, message: str) -> None:
    """Write into its run that a stage was given up."""
    submission.tracker.fail(key, message)


@ray.remote(num_cpus=0)
def note_stopped(submission: Submission) -> None:
    """Write into its run that a submission ended without saying so."""
    submission.tracker.finish_sweep("stopped")
