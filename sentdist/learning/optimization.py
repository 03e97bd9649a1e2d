"""Optimizer settings: AdamW, parameter groups, learning rate schedule and early stopping."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import get_scheduler

from sentdist.errors import RecipeError
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.objective import Objective, OwnRate, part_of


class Learner(nn.Module):
    """An encoder with the heads of its objective, if any (regression head, relation table, classifiers).

    One module, so that one optimizer updates both, one norm clips both, and ZeRO shards both. `forward` is the encoder's; the objective
    calls its heads as modules: ZeRO stage 3 gathers their weights only then.
    With `freeze_encoder` the encoder gets no gradient, graph or optimizer state; weights that a head shares with it are frozen, too.
    """

    def __init__(self, encoder: nn.Module, objective: Objective, *, freeze_encoder: bool = False) -> None:
        super().__init__()
        if freeze_encoder:
            encoder.requires_grad_(False)
        self.encoder = encoder
        self.heads = objective if isinstance(objective, nn.Module) else None
        self._objective = (objective,)  # in a tuple, so that torch does not count its parameters twice

    def forward(self, tokens: TokenBatch) -> Tensor:
        embeddings: Tensor = self.encoder(tokens)
        return embeddings

    def own_rates(self) -> Iterator[OwnRate]:
        """Yield the parameters of the objective with another rate than the encoder's."""
        return self._objective[0].own_rates()


def encoder_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's part of a learner's state dict, under the encoder's own names."""
    return part_of(state, "encoder.")


def head_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the objective's part of a learner's state dict; empty if it has no parameters."""
    return part_of(state, "heads.")


SCHEDULES = {
    "linear": "linear",  # warm-up, then linearly down to 0 at the last step
    "constant": "constant_with_warmup",
}


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """Optimizer settings of an engine; equal values give equal steps in every engine. Recipes check their ranges.

    Args:
        num_steps: length of the training in optimizer steps.
        lr: peak learning rate.
        warmup_fraction: part of the schedule, in [0, 1], in which the rate rises from 0.
        schedule_stretch: length of the schedule in num_steps; above 1 the training ends before its schedule, as in the code of the STS
            regression paper.
        weight_decay: decoupled (AdamW), on matrices only: not on biases, not on layer norms.
        clip_norm: bound of the global L2 norm of the averaged gradient; None: no clipping.
        layer_decay: factor of the learning rate from each transformer layer to the one below it; the last layer, the embeddings and all
            heads have the full rate (as in the STS regression paper's code, arXiv 2406.05326). 1: one rate for all.
        precision: "fp32" or "tf32", which the process sets (see precision.py), or "bf16": bfloat16 autocast over float32 weights;
            embeddings are float32 in
            all three.
    """

    num_steps: int
    lr: float = 2e-5
    warmup_fraction: float = 0.0
    schedule: str = "linear"
    schedule_stretch: float = 1.0
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    layer_decay: float = 1.0
    precision: str = "fp32"

    @property
    def num_schedule_steps(self) -> int:
        """Length of the schedule in optimizer steps."""
        return math.ceil(self.num_steps * self.schedule_stretch)

    @property
    def num_warmup_steps(self) -> int:
        """Steps in which the learning rate rises, from 0 at the first; 0 for a training of a single step, which would learn nothing."""
        return 0 if self.num_steps == 1 else math.ceil(self.num_schedule_steps * self.warmup_fraction)


def adamw(module: nn.Module, optimization: Optimization) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101; betas .9, .999, eps 1e-8), fused, over the groups of `parameter_groups`."""
    return torch.optim.AdamW(parameter_groups(module, optimization), lr=optimization.lr, fused=True)


def parameter_groups(module: nn.Module, optimization: Optimization) -> list[dict[str, Any]]:
    """Group the trained parameters by learning rate and weight decay; the first group has the rate that a run reports.

    Matrices decay, vectors do not: biases and layer-norm weights are exactly the parameters with fewer than two dimensions.
    Parameters of `Learner.own_rates` have their own rate or decay instead, and no layer decay.
    RecipeError for a layer decay where layers are not numbered (ALBERT has one layer, used many times).
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    layers = {layer for name, _ in named if (layer := _layer_of(name)) is not None}
    depth = max(layers, default=0)
    if not layers and optimization.layer_decay != 1:
        raise RecipeError(
            where="train.layer_decay",
            found=repr(optimization.layer_decay),
            expected="1 for an encoder whose layers share weights",
            remedy="Set training.layer_decay=1.",
        )
    own = _own_settings(module)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {(optimization.lr, optimization.weight_decay): [], (optimization.lr, 0.0): []}
    for name, parameter in named:
        layer = _layer_of(name)
        rate = optimization.lr if layer is None else optimization.lr * optimization.layer_decay ** (depth - layer)
        decay = optimization.weight_decay if parameter.ndim >= 2 else 0.0
        own_rate, own_decay = own.get(id(parameter), (None, None))
        setting = (rate if own_rate is None else own_rate, decay if own_decay is None else own_decay)
        groups.setdefault(setting, []).append(parameter)
    return [{"params": members, "lr": rate, "weight_decay": decay} for (rate, decay), members in groups.items() if members]


def _layer_of(name: str) -> int | None:
    """Return the number of a parameter's transformer layer, from 0 next to the embeddings; None outside all layers.

    Also None for T5's table of distances, which is stored in its first layer and read in all: MPNet stores its own outside, and the
    released
    code of BEiT (arXiv 2106.08254, `get_num_layer_for_vit`) gives a shared table the last layer's rate.
    """
    if ".relative_attention_bias." in name:
        return None
    found = re.search(r"\.(?:block|layers?)\.(\d+)\.", name)  # the first: in a T5's block parts are numbered, too
    return None if found is None else int(found.group(1))


def _own_settings(module: nn.Module) -> dict[int, tuple[float | None, float | None]]:
    """Return learning rate and weight decay of the parameters with own ones, by the parameter's identity."""
    rates = module.own_rates() if isinstance(module, Learner) else ()
    return {id(parameter): (one.learning_rate, one.weight_decay) for one in rates for parameter in one.parameters}


def schedule(optimizer: torch.optim.Optimizer, optimization: Optimization) -> LRScheduler:
    """Return the learning rate schedule over `num_steps` steps; as in transformers, the first warm-up step has learning rate 0."""
    scheduler: LRScheduler = get_scheduler(
        SCHEDULES[optimization.schedule],
        optimizer=optimizer,
        num_warmup_steps=optimization.num_warmup_steps,
        num_training_steps=optimization.num_schedule_steps,
    )
    return scheduler


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """The rule "stop when the loss has not decreased for `patience` intervals", with its state; immutable: `after` returns the next one.

    Covers both readings of RCL's "3 steps" (arXiv 2209.13241, App. A.1.1, which does not specify): an interval of one optimizer step uses
    the
    raw loss, an interval of, e.g., a tenth of an epoch its mean loss. On noisy batches the first stops after some ten steps.
    "Not decreased" compares with the lowest loss so far; the last weights are kept.
    """

    patience: int = 3  # intervals without a new lowest loss that end the training
    steps_per_interval: int = 1  # optimizer steps
    lowest: float | None = None  # the state begins here
    num_waited: int = 0
    loss_sum: float = 0.0  # of the incomplete interval, like num_steps
    num_steps: int = 0

    @property
    def is_over(self) -> bool:
        """Whether training should stop now."""
        return self.num_waited >= self.patience

    def after(self, loss: float) -> EarlyStopping:
        """Return the state after one more optimizer step with this loss (nats, global mean)."""
        loss_sum, num_steps = self.loss_sum + loss, self.num_steps + 1
        if num_steps < self.steps_per_interval:
            return replace(self, loss_sum=loss_sum, num_steps=num_steps)
        mean = loss_sum / num_steps
        if self.lowest is None or mean < self.lowest:
            return replace(self, lowest=mean, num_waited=0, loss_sum=0.0, num_steps=0)
        return replace(self, num_waited=self.num_waited + 1, loss_sum=0.0, num_steps=0)
