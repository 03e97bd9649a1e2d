"""A checkpoint that one rank cannot write: all ranks say so, and train on, whatever the engine."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from sentdist.execution.training.checkpoints import RunningFolder
from sentdist.learning.checkpoint import Progress
from sentdist.learning.loop import train_steps
from sentdist.plan.stages import Train
from sentdist.stages.train_setup import ranks_here
from sentdist.store.store import ArtifactStore
from tests.parity.processes import run_in_processes
from tests.parity.test_engines import make_engine
from tests.parity.toy import ToyBank, toy_batches
from tests.support import make
from tests.support.planning import plan_of, small_recipe

pytestmark = pytest.mark.parity


def save_on_a_full_disk(rank: int, world_size: int, folder: str, place: str) -> dict[str | int, tuple[str | None, int]]:
    """What `RunningFolder.save` says where the last rank finds no room at a place, and how many steps come after it."""
    stage = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train))
    found: dict[str | int, tuple[str | None, int]] = {}
    for kind in ("torch", 0, 1):
        engine = make_engine(kind)
        batches = toy_batches(2, rank=rank, world_size=world_size)
        list(train_steps(engine, make.rcl(bank=ToyBank(2)), batches[:1]))
        running = RunningFolder(ArtifactStore(f"{folder}/{kind}"), stage, ranks_here())

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.MonkeyPatch.context() as patched:
            if rank == world_size - 1:
                for owner in PLACES[place]:
                    patched.setattr(owner, full)
            problem = running.save(partial(engine.save, progress=Progress(step=1)), step=1)
        found[kind] = problem, len(list(train_steps(engine, make.rcl(bank=ToyBank(2)), batches[1:])))
    return found


PLACES = {
    "its scratch folder": ("sentdist.store.local_storage.LocalStorage.scratch",),
    "its random state": ("sentdist.execution.training.deepspeed_engine.save_rng", "sentdist.learning.engine.save_rng"),
    "DeepSpeed's own files": ("deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine.TorchCheckpointEngine.save",),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_checkpoint_that_one_rank_cannot_write_is_said_on_all_and_training_goes_on(place: str, tmp_path: Path) -> None:
    for of_rank in run_in_processes(save_on_a_full_disk, 2, str(tmp_path), place):
        for kind, (problem, num_steps) in of_rank.items():
            writes_on_the_last_rank = kind == 1 or place != "DeepSpeed's own files"  # without ZeRO the first rank alone writes weights
            assert (problem is not None) is writes_on_the_last_rank and num_steps == 1, (kind, problem)
