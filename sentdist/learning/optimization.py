"""How parameters move: AdamW, which of them decay, and how the learning rate runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import get_scheduler

from sentdist.errors import RecipeError
from sentdist.learning.precision import PRECISIONS

SCHEDULES = {
    "linear": "linear",  # warm-up, then linearly down to 0 at the last step
    "constant": "constant_with_warmup",
}


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """What an engine needs to know to move parameters; equal values give equal steps in every engine.

    num_steps: length of the schedule in optimizer steps.
    lr: peak learning rate. warmup_fraction: part of num_steps, in [0, 1], in which it rises from 0.
    weight_decay: decoupled (AdamW), on matrices only: not on biases, not on layer norms.
    clip_norm: bound of the global L2 norm of the averaged gradient; None: no clipping.
    precision: "fp32", or "bf16": bfloat16 autocast over float32 weights (embeddings come out in float32 either way).
    RecipeError for a value out of range.
    """

    num_steps: int
    lr: float = 2e-5
    warmup_fraction: float = 0.0
    schedule: str = "linear"
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    precision: str = "fp32"

    def __post_init__(self) -> None:
        _require(self.num_steps >= 1, "num_steps", self.num_steps, "at least 1", "Train on a corpus with at least one batch of rows.")
        _require(math.isfinite(self.lr) and self.lr > 0, "lr", self.lr, "a finite number above 0", "2e-5 is a good start.")
        _require(0 <= self.warmup_fraction <= 1, "warmup_fraction", self.warmup_fraction, "a fraction from 0 to 1", "0.1 is usual.")
        _require(self.schedule in SCHEDULES, "schedule", self.schedule, f"one of {', '.join(SCHEDULES)}", "Choose one of them.")
        _require(0 <= self.weight_decay < math.inf, "weight_decay", self.weight_decay, "a finite number from 0 up", "0.01 is usual.")
        clips = self.clip_norm is None or 0 < self.clip_norm < math.inf
        _require(clips, "clip_norm", self.clip_norm, "a finite number above 0, or null for no clipping", "1.0 is usual.")
        _require(self.precision in PRECISIONS, "precision", self.precision, f"one of {', '.join(PRECISIONS)}", "Choose one of them.")

    @property
    def num_warmup_steps(self) -> int:
        """Steps in which the learning rate rises."""
        return math.ceil(self.num_steps * self.warmup_fraction)


def adamw(encoder: nn.Module, optimization: Optimization) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101; betas .9, .999, eps 1e-8), fused, over two groups: matrices decay, vectors do not.

    Biases and layer-norm weights are exactly the parameters with fewer than two dimensions.
    """
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": optimization.weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=optimization.lr, fused=True)


def schedule(optimizer: torch.optim.Optimizer, optimization: Optimization) -> LRScheduler:
    """The learning rate over `num_steps` steps; the first step of a warm-up has learning rate 0, as everywhere with transformers' schedules."""
    scheduler: LRScheduler = get_scheduler(
        SCHEDULES[optimization.schedule],
        optimizer=optimizer,
        num_warmup_steps=optimization.num_warmup_steps,
        num_training_steps=optimization.num_steps,
    )
    return scheduler


def _require(holds: bool, field: str, found: object, expected: str, remedy: str) -> None:
    if not holds:
        raise RecipeError(where=f"train.{field}", found=repr(found), expected=expected, remedy=remedy)
