"""Where and how a plan is carried out: nothing in here may change a result, so nothing in here is part of a key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sentdist.frozen import Frozen


class Runtime(Frozen):
    """Workers, resources, precision of nothing: the promise that results do not depend on these is kept by the parity tests."""

    engine: Literal["deepspeed", "torch"] = "deepspeed"
    workers: Annotated[int, Field(ge=1)] = 1
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # sentences a worker holds the activations of while training; None: all
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None  # None: what the cluster can run at once
    max_failures: Annotated[int, Field(ge=0)] = 1  # losses of a process or host that a stage may take without getting on
    checkpoint_every_s: Annotated[float, Field(gt=0)] = 120.0
    log_every: Annotated[int, Field(ge=1)] = 5  # optimizer steps between two points of a learning curve
    tokens_per_batch: Annotated[int, Field(ge=512)] = 4096  # when encoding
    rows_per_shard: Annotated[int, Field(ge=1)] = 65536  # of a bank
    bank_in_object_store: bool = True  # under Ray: share banks through the object store instead of memory-mapped files
