"""A whole training without this project: steps of the reference losses, one batch of all rows a step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tests.parity.wiring.reference import TRAINING, Heads, Moved, Rows, Student, Values, loss_of, own_rates, rates_of


@dataclass(frozen=True)
class Run:
    """Losses, gradient norms before clipping and learning rates of each step; weights at the end by the checkpoint's names."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    rates: tuple[float, ...]
    weights: Mapping[str, Tensor]

    def numbers(self) -> list[float]:
        """What two runs are compared by."""
        return [*self.losses, *self.norms, *(1e3 * rate for rate in self.rates)]


def train(student: Student, method: Values, training: Values, rows: Rows, heads: Mapping[str, Tensor], *, steps: int) -> Run:
    """Train on all rows at each step, from heads as they start."""
    values = {**TRAINING, **training, **method.get("training", {})}
    student.max_length = values["max_length"]
    objective: Any = method["objective"]
    own: Heads = {name: tensor.double().clone().requires_grad_() for name, tensor in heads.items()}
    moved = _moved(student, objective, own, values)
    rates = rates_of(values, steps)
    losses, norms = [], []
    for number, rate in enumerate(rates, start=1):
        columns = [student.encode(column, training=True) for column in rows.columns]
        loss = loss_of(columns, objective, rows, own)
        for one in moved:
            one.tensor.grad = None
        loss.backward()
        losses.append(float(loss.detach()))
        gradients = [one.tensor.grad for one in moved]
        norm = sum(float((g**2).sum()) for g in gradients if g is not None) ** 0.5
        norms.append(norm)
        clip = min(1.0, values["clip_norm"] / (norm + 1e-6))
        for one, gradient in zip(moved, gradients, strict=True):
            if gradient is not None:
                one.step(gradient * clip, rate / values["learning_rate"], rate, number)
    weights = {name: tensor.detach().clone() for name, tensor in student.model.state_dict().items()}
    if values["freeze_encoder"] and moved[0].rate is not None:  # the rate of a run is that of what moves
        rates = [rate / values["learning_rate"] * moved[0].rate for rate in rates]
    return Run(tuple(losses), tuple(norms), tuple(rates), weights | {f"heads.{n}": t.detach() for n, t in own.items()})


def _moved(student: Student, objective: Values, heads: Heads, values: Values) -> list[Moved]:
    encoder = [] if values["freeze_encoder"] else list(student.model.named_parameters())
    depth = max((int(found.group(1)) for name, _ in encoder if (found := re.search(r"layer\.(\d+)\.", name))), default=0)
    moved = []
    for name, tensor in encoder:
        layer = re.search(r"layer\.(\d+)\.", name)
        factor = values["layer_decay"] ** (depth - int(layer.group(1))) if layer else 1.0
        moved.append(Moved(tensor=tensor, rate=None, decay=values["weight_decay"] if tensor.ndim > 1 else 0.0, factor=factor))
    if student.pooling.startswith("cls_mlp"):
        student.head = {name.removeprefix("pooling."): tensor for name, tensor in heads.items() if name.startswith("pooling.")}
    special = list(own_rates(objective))
    for name, tensor in heads.items():
        rate, decays = next(((rate, decays) for start, rate, decays in special if name.startswith(start)), (None, True))
        decay = values["weight_decay"] if tensor.ndim > 1 and decays else 0.0
        moved.append(Moved(tensor=tensor, rate=rate, decay=decay))
    return moved
