"""A training in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from sentdist.learning.bank import FileBank, StoredBank
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.learning.subnormals import subnormals_flushed
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Rung, Train
from sentdist.stages.bank_place import placed
from sentdist.stages.context import Context
from sentdist.stages.devices import device_of
from sentdist.stages.inputs import folder_of
from sentdist.stages.ranks import ALONE
from sentdist.stages.rungs import events_until, from_rung, publish_training
from sentdist.stages.train import TrainSession
from sentdist.store.store import Artifact

log = logging.getLogger(__name__)

Listener = Callable[[Stage, TrainSession | None, StepReport | DevScore | Artifact], None]


@subnormals_flushed()
def train_here(stage: Train | Rung, context: Context, *, listen: Listener | None = None) -> Artifact:
    """Train on one rank with the torch engine; it goes on from a rung where there is one."""
    started = time.perf_counter()
    device = device_of(context.runtime)
    bank = placed(file_bank(stage.whole, context), stage.whole, context, device)
    make = partial(TrainSession, stage.whole, context, make_engine=partial(TorchEngine, device=device), bank=bank)
    resumed = from_rung(make(), stage, context, make=make, ranks=ALONE)
    if resumed.note is not None:
        log.warning("%s: %s", stage.label, resumed.note)
    for event in events_until(stage, resumed.session):
        if listen is not None:
            listen(stage, resumed.session, event)
    artifact = publish_training(resumed, stage, context, ALONE, started=started)
    assert artifact is not None, "the only rank is the first"
    return artifact


def file_bank(stage: Train, context: Context) -> StoredBank | None:
    """The banks of a training as memory-mapped files; None if its objective uses none."""
    return FileBank([folder_of(bank, context) for bank in stage.banks]) if stage.banks else None
