"""Engines update the parameters of a learner: the protocol, and the engine in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_

from sentdist.learning.checkpoint import EngineFacts, Progress, check_engine, load_rng, read_progress, save_rng, write_progress
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.gather import rank_and_world_size, unread_mean_over_ranks, wait_for_all_ranks
from sentdist.learning.gradient_buckets import GradientBuckets, WordRows
from sentdist.learning.optimization import Optimization, adamw, schedule
from sentdist.learning.precision import autocast
from sentdist.learning.prefetch import begin_to_host

STATE_FILE = "engine.pt"


class Engine(Protocol):
    """A learner in training on one rank. All methods except properties are collective: every rank calls them in the same order."""

    @property
    def learner(self) -> nn.Module:
        """The module, in training mode; under ZeRO stage 3 its parameters are shards (see `weights`)."""
        ...

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        ...

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def runs_ahead(self) -> bool:
        """Whether `step` returns before its device has computed it."""
        ...

    def encode(self, tokens: TokenBatch) -> Tensor:
        """Return (S, D) float32 embeddings with their graph."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of this rank's loss; once per step."""
        ...

    def step(self, loss: Tensor, *, vote: float = 0.0) -> Tensor:
        """Average the gradients over ranks, clip, update parameters and schedule, clear the gradients.

        Returns:
            (3,) float64: the loss as a mean over ranks, the sum of their votes, and the gradients' L2 norm before clipping. If loss or norm
            is not finite, parameters and optimizer stay unchanged in this and all later steps: the caller must check.
        """
        ...

    def save(self, folder: Path, *, progress: Progress) -> None:
        """Write weights, optimizer, schedule and each rank's random state; the progress file comes last and completes the checkpoint.

        Ranks may write to one folder or to one each that are merged later. StoreError if it cannot be written.
        """
        ...

    def load(self, folder: Path) -> Progress:
        """Restore the state of `save`; StoreError if it is damaged or was written by an incompatible engine."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Return the learner's whole state dict on the host, floats in float32, on rank 0; empty on the others."""
        ...


class NonFiniteGuard:
    """Skip all steps of a fused torch optimizer from the first non-finite loss or norm on, without blocking the host."""

    def __init__(self) -> None:
        self._is_on: Tensor | None = None  # 1: nothing moves

    def outcome(self, optimizer: torch.optim.Optimizer, mean_and_votes: Tensor, norm: Tensor) -> Tensor:
        """Return the result of `Engine.step` for the optimizer step that comes next."""
        found = torch.cat([mean_and_votes, norm.double()[None]])
        before = torch.zeros((), device=norm.device) if self._is_on is None else self._is_on
        self._is_on = torch.where(torch.isfinite(found[::2]).all(), before, 1.0)
        optimizer.found_inf = self._is_on  # type: ignore[attr-defined]  # fused optimizers read it
        return found


T = TypeVar("T")


class LateOutcomes(Generic[T]):
    """Steps whose outcome the host has not read yet: a GPU may still compute it."""

    def __init__(self) -> None:
        self._steps: list[tuple[T, Tensor]] = []
        self._arrived: Callable[[], Tensor] | None = None

    @property
    def is_coming(self) -> bool:
        """Whether reading has begun."""
        return self._arrived is not None

    def add(self, step: T, outcome: Tensor) -> None:
        self._steps.append((step, outcome))

    def begin_reading(self) -> None:
        """Start copying all outcomes to the host, before the GPU gets more work."""
        self._arrived = begin_to_host(torch.stack([outcome for _, outcome in self._steps]))

    def read(self) -> list[tuple[T, list[float]]]:
        """Wait for all steps so far, return them with their outcomes, and forget them."""
        if not self._steps:
            return []
        if self._arrived is None:
            self.begin_reading()
        assert self._arrived is not None
        found = list(zip((step for step, _ in self._steps), self._arrived().tolist(), strict=True))
        self._steps, self._arrived = [], None
        return found


class TorchEngine:
    """Plain torch: AdamW on every rank, gradients averaged in flat buckets during the backward pass.

    No DDP wrapper: it would add its own forward, and hide when gradients are averaged.
    """

    def __init__(self, learner: nn.Module, optimization: Optimization, *, device: torch.device | str = "cpu") -> None:
        """Take over `learner`: move it to `device`, in training mode. All ranks must bring the same weights."""
        self.learner = learner.to(device).train()
        self.optimization = optimization
        self.device = torch.device(device)
        self.rank, self.world_size = rank_and_world_size()
        self._optimizer = adamw(self.learner, optimization)
        self._schedule = schedule(self._optimizer, optimization)
        self.runs_ahead = self.device.type == "cuda"
        self._guard = NonFiniteGuard()
        self._parameters = [parameter for parameter in self.learner.parameters() if parameter.requires_grad]
        self.buckets = GradientBuckets(self._parameters, words=watched_words(self.learner))

    @property
    def lr(self) -> float:
        return float(self._schedule.get_last_lr()[0])

    @property
    def facts(self) -> EngineFacts:
        return EngineFacts(engine="torch", zero_stage=0, world_size=self.world_size)

    def encode(self, tokens: TokenBatch) -> Tensor:
        with autocast(self.optimization.precision, self.device):
            embeddings: Tensor = self.learner(tokens)
        return embeddings.float()

    def backward(self, loss: Tensor) -> None:
        with self.buckets.overlap_reduce():
            loss.backward()

    def step(self, loss: Tensor, *, vote: float = 0.0) -> Tensor:
        mean_and_votes, norm = unread_mean_over_ranks(loss, vote=vote), self.buckets.averaged_norm()
        outcome = self._guard.outcome(self._optimizer, mean_and_votes, norm)
        if self.optimization.clip_norm is not None:
            clip_grads_with_norm_(self._parameters, self.optimization.clip_norm, norm, foreach=True)
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad(set_to_none=True)
        return outcome

    def save(self, folder: Path, *, progress: Progress) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            save_rng(folder, rank=self.rank, world_size=self.world_size)
            if self.rank == 0:
                learner, optimizer, schedule = self.learner.state_dict(), self._optimizer.state_dict(), self._schedule.state_dict()
                torch.save({"encoder": learner, "optimizer": optimizer, "schedule": schedule}, folder / STATE_FILE)
        finally:  # an error on one rank must not leave the others waiting
            wait_for_all_ranks()
        if self.rank == 0:
            write_progress(folder, progress, self.facts)

    def load(self, folder: Path) -> Progress:
        progress, wrote = read_progress(folder)
        check_engine(folder, wrote=wrote, reads=self.facts)
        state = torch.load(folder / STATE_FILE, map_location=self.device, weights_only=True)
        self.learner.load_state_dict(state["encoder"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        load_rng(folder, rank=self.rank, world_size=self.world_size)
        return progress

    def weights(self) -> dict[str, Tensor]:
        return host_copy(self.learner.state_dict()) if self.rank == 0 else {}


def watched_words(learner: nn.Module) -> list[WordRows]:
    """Return the read rows of word embeddings that the learner's encoders record; none for a single rank."""
    if rank_and_world_size()[1] == 1:
        return []
    watched = [part.watched_words(learner) for part in learner.modules() if isinstance(part, SentenceEncoder)]
    return [rows for rows in watched if rows is not None]


def host_copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy of a state dict on the host, floats in float32."""
    return {
        name: tensor.detach().to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in state.items()
    }
