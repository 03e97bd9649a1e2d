"""Train with DeepSpeed: ZeRO stages 0–3, on CPUs with gloo and on GPUs with NCCL."""

from __future__ import annotations

import inspect
import math
import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_

from sentdist.errors import RecipeError, ResourceError
from sentdist.learning.bank_shape import BUCKET_NUMBERS, MOST_LIVE
from sentdist.learning.checkpoint import EngineFacts, Progress, check_engine, load_rng, read_progress, save_rng, write_progress
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.engine import NonFiniteGuard, host_copy, watched_words
from sentdist.learning.gather import rank_and_world_size, unread_mean_over_ranks, wait_for_all_ranks
from sentdist.learning.gradient_buckets import GradientBuckets
from sentdist.learning.optimization import Optimization, adamw, schedule
from sentdist.learning.precision import linears

CHECKPOINT_TAG = "deepspeed"
ZERO_STAGES = (0, 1, 2, 3)


class DeepSpeedEngine:
    """The `Engine` protocol on DeepSpeed: the same AdamW, schedule, clipping and averaging as `TorchEngine`, partitioned by ZeRO.

    Stage 0 partitions nothing, 1 the optimizer's state, 2 also the gradients, 3 also the parameters. Parameters stay equal to
    `TorchEngine`'s.
    """

    def __init__(self, learner: nn.Module, optimization: Optimization, *, zero_stage: int = 0, device: torch.device | str = "cpu") -> None:
        """Take over `learner`. Needs a process group, as Ray Train starts on each worker; all ranks must have the same weights.

        Raises:
            RecipeError: the ZeRO stage does not exist.
            ResourceError: there is no process group.
        """
        if zero_stage not in ZERO_STAGES:
            raise RecipeError(
                where="zero_stage", found=repr(zero_stage), expected="0, 1, 2 or 3", remedy="0 fits encoders up to 0.5 B parameters."
            )
        if not dist.is_initialized():
            raise ResourceError(
                where="DeepSpeed engine",
                found="no process group",
                expected="torch.distributed to be started",
                remedy="Run it as a Ray Train worker, or use the torch engine.",
            )
        self.optimization = optimization
        self.device = torch.device(device)
        self.rank, self.world_size = rank_and_world_size()
        self._zero_stage = zero_stage
        # The groups are made before ZeRO stage 3 turns every parameter into a flat share, which would hide which of them are matrices.
        optimizer = adamw(learner.to(self.device).train(), optimization)
        _name_gpu(self.device)
        self._deepspeed = _import_deepspeed(self.device)
        if zero_stage == 3:
            _pass_in_step(learner)
        self._engine, *_ = self._deepspeed.initialize(
            model=learner,
            optimizer=optimizer,
            lr_scheduler=schedule(optimizer, optimization),
            config=_config(optimization, zero_stage, num_parameters=_num_trained(learner)),
            dist_init_required=False,
        )
        self.learner: nn.Module = self._engine.module
        self.buckets = GradientBuckets(())
        if zero_stage == 0:  # it would average them all at the end of the backward pass, on one worker too
            self._engine.enable_backward_allreduce = False
            self.buckets = GradientBuckets(self.learner.parameters(), words=watched_words(self.learner))
        self.runs_ahead = can_run_ahead(self.device, zero_stage=zero_stage)
        self._guard = NonFiniteGuard()
        weakref.finalize(self, _release, self._engine, zero_stage).atexit = False

    @property
    def lr(self) -> float:
        return float(self._engine.get_lr()[0])

    @property
    def facts(self) -> EngineFacts:
        return EngineFacts(engine="deepspeed", zero_stage=self._zero_stage, world_size=self.world_size)

    def encode(self, tokens: TokenBatch) -> Tensor:
        with linears(self.optimization.precision, self.device):  # DeepSpeed enters its own autocast
            embeddings: Tensor = self._engine(tokens)
        return embeddings.float()

    def backward(self, loss: Tensor) -> None:
        with self.buckets.overlap_reduce():
            self._engine.backward(loss)

    def step(self, loss: Tensor, *, vote: float = 0.0) -> Tensor:
        """Step as `Engine.step`. ZeRO 1–3 check the norm and skip the optimizer; at stage 0 this method checks and clips, because
        DeepSpeed would compute the norm again, parameter by parameter, and wait for the GPU twice."""
        mean_and_votes = unread_mean_over_ranks(loss, vote=vote)
        if self._zero_stage == 0:
            norm = self.buckets.averaged_norm()
            outcome = self._guard.outcome(self._engine.optimizer, mean_and_votes, norm)
            if self.optimization.clip_norm is not None:
                clip_grads_with_norm_(self.learner.parameters(), self.optimization.clip_norm, norm, foreach=True)
            self._engine.step()
            return outcome
        mean, votes = mean_and_votes.tolist()
        grad_norm = math.nan
        if math.isfinite(mean):
            self._engine.step()
            grad_norm = float(self._engine.get_global_grad_norm()) if self._engine.was_step_applied() else math.nan
        return torch.tensor([mean, votes, grad_norm], dtype=torch.float64)

    def save(self, folder: Path, *, progress: Progress) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_rng(folder, rank=self.rank, world_size=self.world_size)
        finally:  # an error on one rank must not leave the others waiting
            self._save_state(folder)
        if self.rank == 0:
            write_progress(folder, progress, self.facts)

    def _save_state(self, folder: Path) -> None:
        try:
            self._engine.save_checkpoint(str(folder), tag=CHECKPOINT_TAG)
        except Exception:
            wait_for_all_ranks()  # in place of the barrier at DeepSpeed's end, at which the others are
            raise
        finally:
            wait_for_all_ranks()

    def load(self, folder: Path) -> Progress:
        progress, wrote = read_progress(folder)
        check_engine(folder, wrote=wrote, reads=self.facts)
        self._engine.load_checkpoint(str(folder), tag=CHECKPOINT_TAG)
        load_rng(folder, rank=self.rank, world_size=self.world_size)
        return progress

    def weights(self) -> dict[str, Tensor]:
        """Return the weights as `Engine.weights`; stage 3 temporarily gathers all parameters on every rank."""
        shares = list(self.learner.parameters()) if self._zero_stage == 3 else []
        with self._deepspeed.zero.GatheredParameters(shares, enabled=bool(shares)):
            return host_copy(self.learner.state_dict()) if self.rank == 0 else {}


def can_run_ahead(device: torch.device, *, zero_stage: int) -> bool:
    """Return True if steps need not wait for the GPU: at ZeRO stages 1 to 3 DeepSpeed reads the norm on the host."""
    return device.type == "cuda" and zero_stage == 0


def _name_gpu(device: torch.device) -> None:
    """Have DeepSpeed compute on this GPU: by default it takes the one numbered by the local rank.

    Ray Train shows a worker the GPUs of all workers on its host, sorted as strings: of sixteen those of ranks 2 to 9 come after 10 to 15,
    and where each worker has two, rank 1 has those from 2 on.
    """
    if device.index is not None:
        os.environ["LOCAL_RANK"] = str(device.index)


def _import_deepspeed(device: torch.device) -> Any:
    """Import DeepSpeed for `device`; late, because the import looks for an accelerator and prints lines."""
    os.environ["DS_ACCELERATOR"] = device.type  # overrides the user's shell
    with _without_mlflow():
        import deepspeed
        import deepspeed.ops

    if device.type == "cuda":
        _ask_torch_for_memory()
    if device.type == "cpu":  # elsewhere to ask for this table looks for CUDA's compiler, op by op, with a warning each
        # It would compile a shared-memory all-reduce for inference (40 s, needs a compiler), which training never calls.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed 0.19 calls collectives by the names that torch 2.13 has replaced, several times a step; the user can do nothing about it.
    warnings.filterwarnings("ignore", message=r"`torch\.distributed\.\w+` is deprecated", category=FutureWarning)
    deepspeed.init_distributed(dist_init_required=False, verbose=False)
    return deepspeed


def _ask_torch_for_memory() -> None:
    """If GPUs have names, as partitions have (`CUDA_VISIBLE_DEVICES=MIG-…`), have DeepSpeed ask torch how much memory is free: at ZeRO
    stages 1 and 2 it would ask NVIDIA's library, if installed, by number, and fail because a name is not a number."""
    from deepspeed.accelerator import cuda_accelerator

    if not all(name.strip().isdigit() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")):
        cuda_accelerator.pynvml = None


@contextmanager
def _without_mlflow() -> Iterator[None]:
    """Hide MLflow from DeepSpeed, whose autotuner (unused here) would import it: 2–4 of the 7–9 s of CPU time of a worker's start."""
    if "mlflow" in sys.modules:
        yield
        return
    sys.modules["mlflow"] = None  # type: ignore[assignment]  # Python's own way to make an import fail
    try:
        yield
    finally:
        del sys.modules["mlflow"]


def _release(engine: Any, zero_stage: int) -> None:
    """Remove references that keep a DeepSpeed engine alive until its process ends: the hooks of ZeRO 1 to 3; at stage 3 also a list of the
    modules of all engines, and a cache for each step. After the last engine of stage 3, restore `torch.nn.functional.linear`, whose
    replacement rounds sums differently. A worker of a group trains several encoders in turn, and embeds with some."""
    engine.destroy()
    if zero_stage < 3:
        return
    from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK
    from deepspeed.runtime.zero.partition_parameters import InsertPostInitMethodToModuleSubClasses
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator

    own = {id(module) for module in engine.module.modules()}
    FWD_MODULE_STACK[:] = [module for module in FWD_MODULE_STACK if id(module) not in own]
    for method in vars(PartitionedParameterCoordinator).values():
        wrapped: Any = inspect.getclosurevars(method).nonlocals.get("func") if inspect.isfunction(method) else None
        if hasattr(wrapped, "cache_clear"):
            wrapped.cache_clear()
    if not FWD_MODULE_STACK:
        torch.nn.functional.linear = InsertPostInitMethodToModuleSubClasses.linear_bk


def _pass_in_step(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, SentenceEncoder):
            part.pass_in_step()


def _num_trained(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _config(optimization: Optimization, zero_stage: int, *, num_parameters: int) -> dict[str, Any]:
    """num_parameters: number of trained parameters."""
    return {
        "train_micro_batch_size_per_gpu": 1,  # only counted by DeepSpeed, never used: batches are ours
        "gradient_accumulation_steps": 1,
        # Always written: DeepSpeed clips at 1.0 where it is left out; 0 is off. At stage 0 `step` clips.
        "gradient_clipping": optimization.clip_norm or 0.0 if zero_stage else 0.0,
        "zero_optimization": {
            "stage": zero_stage,
            "reduce_bucket_size": min(BUCKET_NUMBERS, max(1, num_parameters)),  # of which stages 1 to 3 keep a buffer or two
            "stage3_prefetch_bucket_size": BUCKET_NUMBERS,
            "stage3_max_live_parameters": MOST_LIVE,
            "stage3_max_reuse_distance": MOST_LIVE,
        },
        # bf16 compute over float32 weights; "bf16": {"enabled": true} would cast the weights themselves, layer norms included.
        # No module is "safe": of those that are, ZeRO 1 to 3 sum the gradients over ranks in bfloat16 (off by 1.8e-3 on two ranks) where
        # stage 0 sums in float32. What is computed in bfloat16 is autocast's choice all the same.
        "torch_autocast": {"enabled": optimization.precision == "bf16", "dtype": "bfloat16", "lower_precision_safe_modules": []},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 2**62,
        "wall_clock_breakdown": False,
        # It would stop the GPU at every forward pass and at every step, for a speed that is not used.
        "timers": {"throughput": {"enabled": False}},
    }
