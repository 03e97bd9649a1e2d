"""A whole plan in this process: for debugging, and the reference that Ray's results are held against."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from sentdist.disk_errors import failing_disk_told
from sentdist.errors import ArtifactLost
from sentdist.learning.bank import BankReader, FileBank
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.engine import TorchEngine
from sentdist.learning.freed_memory import give_back_gpu_memory
from sentdist.learning.loop import StepReport
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Rung, Train, training_of
from sentdist.plan.unroll import Plan
from sentdist.stages.build_in_process import build_in_process
from sentdist.stages.context import Context
from sentdist.stages.devices import device_of
from sentdist.stages.gpu_memory import full_gpu_told
from sentdist.stages.inputs import folder_of
from sentdist.stages.inputs_in_use import inputs_watched
from sentdist.stages.ranks import ALONE
from sentdist.stages.rungs import events_until, from_rung, publish_training
from sentdist.stages.train import TrainSession
from sentdist.store.store import Artifact

log = logging.getLogger(__name__)

Listener = Callable[[Stage, TrainSession | None, StepReport | DevScore | Artifact], None]


def run_local(plan: Plan, context: Context, *, listen: Listener | None = None) -> list[Artifact]:
    """Build every missing stage of a plan, inputs first; returns the artifacts of all stages in that order.

    An artifact that turns out to be damaged when it is used is built again.
    `listen` is called with each step, each dev score and each finished artifact.
    """
    return build_all(plan.stages, context, listen=listen)


def build_all(stages: Sequence[Stage], context: Context, *, listen: Listener | None = None) -> list[Artifact]:
    """As `run_local`, of stages that stand behind their inputs."""
    for _ in stages:  # each damaged artifact is moved aside, so the next round builds it again
        try:
            return [build_here(stage, context, listen=listen) for stage in stages]
        except ArtifactLost as loss:
            log.warning("%s", loss)
    return [build_here(stage, context, listen=listen) for stage in stages]


def build_here(stage: Stage, context: Context, *, listen: Listener | None = None) -> Artifact:
    """The artifact of one stage, built in this process unless the store has it; its inputs must be there."""
    found = context.store.get(stage)
    if found is not None:
        return found
    with full_gpu_told(stage, context), failing_disk_told(f"{stage.kind} {stage.label}"), inputs_watched():
        artifact = train_here(stage, context, listen=listen) if isinstance(stage, Train | Rung) else build_in_process(stage, context)
    give_back_gpu_memory()  # the next stage may run in another process
    if listen is not None:
        listen(stage, None, artifact)
    return artifact


def train_here(stage: Train | Rung, context: Context, *, listen: Listener | None = None) -> Artifact:
    """Train on one rank with the torch engine; it goes on from a rung where there is one."""
    started = time.perf_counter()
    train = training_of(stage)
    assert train is not None
    make_engine = partial(TorchEngine, device=device_of(context.runtime))
    make = partial(TrainSession, train, context, make_engine=make_engine, bank=file_bank(train, context))
    resumed = from_rung(make(), stage, context, make=make, ranks=ALONE)
    if resumed.note is not None:
        log.warning("%s: %s", stage.label, resumed.note)
    for event in events_until(stage, resumed.session):
        if listen is not None:
            listen(stage, resumed.session, event)
    artifact = publish_training(resumed, stage, context, ALONE, started=started)
    assert artifact is not None, "the only rank is the first"
    return artifact


def file_bank(stage: Train, context: Context) -> BankReader | None:
    """The banks of a training as memory-mapped files; None if its objective uses none."""
    return FileBank([folder_of(bank, context) for bank in stage.banks]) if stage.banks else None
