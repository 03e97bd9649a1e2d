"""Where and how a plan is run. Nothing in here may change what is computed, so nothing in here is part of a key. Workers and
micro-batches change what is drawn while training (dropout's masks, hidden words), as another seed does."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sentdist.frozen import Count, Frozen
from sentdist.gpus import SHARES, is_share


class Runtime(Frozen):
    """How a plan is run: workers, memory, devices. Nothing here changes what is computed; the parity tests check that."""

    engine: Literal["deepspeed", "torch"] = "deepspeed"  # which keeps and moves the weights; both give the same numbers
    workers: Count | tuple[Count, Count] = 1  # of a training; [fewest, most]: as many as the cluster has, whatever joins or leaves
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0  # reserved; a worker computes with as many threads
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU for each worker where there are enough, unless gpus_per_worker says
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0  # reserved; below 1: a part of one, and of its memory
    gpu_type: str | None = None  # on a cluster: only GPUs that Ray calls so (A100, H100, L4, T4, …); None: any
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # sentences a worker holds the activations of while training; None: all
    recompute_layers: bool = False  # keep what goes into each transformer layer, and compute the rest again in the backward pass
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0  # how much of the optimizer, gradients and weights is spread over workers; 0: none
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None  # None: what the cluster can run at once
    max_failures: Annotated[int, Field(ge=0)] = 1  # losses of process or host that a stage may take without getting on; after notice: 5
    checkpoint_every_s: Annotated[float, Field(gt=0)] = 120.0  # seconds between two checkpoints of a training
    log_every: Annotated[int, Field(ge=1)] = 5  # optimizer steps between two points of a learning curve
    tokens_per_batch: Annotated[int, Field(ge=512)] | None = None  # when encoding; None: what suits a CPU (4,096) or a GPU (32,768)
    rows_per_shard: Annotated[int, Field(ge=1)] = 65536  # of a bank
    bank_in_object_store: bool = True  # under Ray: share banks through the object store instead of memory-mapped files

    @property
    def fewest_workers(self) -> int:
        """Workers with which a training begins or goes on; their shares of a batch are the largest."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def most_workers(self) -> int:
        """Workers that a training takes where there is room for them."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def gpus_asked(self) -> float | None:
        """GPUs for each worker; None: as many as there are, up to one."""
        if self.device == "cpu" or "gpus_per_worker" in self.model_fields_set:
            return self.gpus_per_worker
        return None if self.device == "auto" else 1.0

    @property
    def workers_may_change(self) -> bool:
        """Whether a training follows what the cluster has."""
        return self.fewest_workers < self.most_workers

    def with_workers(self, workers: int) -> Self:
        """The same with the number of workers as it was."""
        return self.model_copy(update={"workers": workers})

    def with_gpus(self, gpus_per_worker: float) -> Self:
        """The same with the device decided."""
        return self.model_copy(update={"gpus_per_worker": gpus_per_worker})

    @model_validator(mode="after")
    def _workers_may_change(self) -> Self:
        if self.fewest_workers > self.most_workers:
            raise ValueError(f"workers: found [{self.fewest_workers}, {self.most_workers}]; expected [fewest, most]")
        if self.workers_may_change and self.zero_stage:
            found = f"found [{self.fewest_workers}, {self.most_workers}] with zero_stage {self.zero_stage}"
            raise ValueError(
                f"workers: {found}; expected zero_stage 0, for what ZeRO 1 to 3 share out "
                "is of one number of workers. Set runtime.zero_stage=0, or one number"
            )
        return self

    @model_validator(mode="after")
    def _engine_shares_out(self) -> Self:
        if self.engine == "torch" and self.zero_stage:
            raise ValueError(
                f"zero_stage: found {self.zero_stage} with engine torch, where each worker keeps all; "
                "set runtime.engine=deepspeed, or leave zero_stage out"
            )
        return self

    @model_validator(mode="after")
    def _gpus_can_be_shared_out(self) -> Self:
        if not is_share(self.gpus_per_worker):
            raise ValueError(f"gpus_per_worker: found {self.gpus_per_worker:g}; expected {SHARES}; set runtime.gpus_per_worker=1")
        return self

    @model_validator(mode="after")
    def _device_and_gpus_agree(self) -> Self:
        is_named = "gpus_per_worker" in self.model_fields_set
        if is_named and (self.device, self.gpus_per_worker > 0) in (("cpu", True), ("cuda", False)):
            raise ValueError(f"device: found {self.device} with gpus_per_worker {self.gpus_per_worker:g}; leave one of them out")
        if self.gpu_type is not None and self.gpus_asked == 0:
            raise ValueError(f"gpu_type: found {self.gpu_type} where no GPU is asked for; leave it out, or leave the choice of the device")
        return self
