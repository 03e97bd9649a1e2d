"""What a recipe's values ask for, computed without this project: transformers, plain formulas in float64, AdamW written out.

It reads a recipe as a person does, with the defaults that the README and the docstrings promise, and imports nothing of sentdist.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from tests.parity.wiring.declared import Heads, Learned, Reference, Rows, Values
from tests.support.pooled import pooled, with_dense_layer

TRAINING: Values = {
    "batch_size": 64, "epochs": 1, "learning_rate": 2e-5, "schedule": "linear", "warmup_fraction": 0.1, "schedule_stretch": 1.0,
    "weight_decay": 0.01, "clip_norm": 1.0, "layer_decay": 1.0, "max_length": 75, "precision": "fp32",
    "freeze_encoder": False,
}  # fmt: skip


@cache
def _tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@cache
def _model(folder: Path, layers: int | None) -> Any:
    config = AutoConfig.from_pretrained(folder)
    if layers is not None:
        config.num_hidden_layers = layers
    with redirect_stderr(StringIO()):
        return AutoModel.from_pretrained(folder, config=config, attn_implementation="eager").double().eval()


class Student:
    """A Hugging Face model in float64 with a pooling on top."""

    def __init__(self, folder: Path, *, pooling: str = "mean", layers: int | None = None, max_length: int = 75) -> None:
        self.model = copy.deepcopy(_model(folder, layers))
        self.tokenizer = _tokenizer(folder)
        self.pooling, self.max_length = pooling, max_length
        self.head: Heads = {}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights by the names of the checkpoint."""
        own = self.model.state_dict()
        self.model.load_state_dict(own | {name: weights[name].double() for name in own if name in weights})

    def encode(self, sentences: Sequence[str], *, training: bool = False) -> Tensor:
        """(S, D) embeddings."""
        tokens = self.tokenizer(list(sentences), padding=True, truncation=True, max_length=min(self.max_length, 40), return_tensors="pt")
        output = self.model(**tokens, output_hidden_states=True)
        embeddings = pooled(output.hidden_states, tokens["attention_mask"], self.pooling, training=training)
        return with_dense_layer(embeddings, self.head, self.pooling, training=training)


def cosines(one: Tensor, other: Tensor) -> Tensor:
    """(A, B) by the definition."""
    return (one @ other.T) / (one.norm(dim=1)[:, None] * other.norm(dim=1)[None, :])


def _cross_entropy(logits: Tensor) -> Tensor:
    """Mean over rows of −ln of the share of column i in row i."""
    own = logits[range(len(logits)), range(len(logits))]
    return (torch.log(torch.exp(logits).sum(1)) - own).mean()


def _others_entropy(logits: Tensor) -> Tensor:
    shares = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    is_other = torch.ones_like(shares).fill_diagonal_(0.0)
    return -(is_other * shares * torch.log(shares)).sum(1).mean()


def _candidates(columns: Sequence[Tensor], values: Values) -> Tensor:
    return torch.cat(list(columns[1:] if values["hard_negatives"] else columns[1:2]))


def _regulators(columns: Sequence[Tensor], rows: Rows, temperature: float) -> Tensor:
    """Anchors' and (mean over) positives' regulators, summed over encoders."""
    total = columns[0].new_zeros(())
    for bank in rows.banks:
        for place, column in enumerate(columns[: rows.num_positives + 1]):
            frozen = torch.stack([bank[sentence] for sentence in rows.columns[place]])
            weight = 1.0 if place == 0 else 1.0 / rows.num_positives
            total = total + weight * _cross_entropy(cosines(column, frozen) / temperature)
    return total


def info_nce(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    return _cross_entropy(cosines(columns[0], _candidates(columns, values)) / values["temperature"])


def entropy(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    logits = cosines(columns[0], _candidates(columns, values)) / values["temperature"]
    return _cross_entropy(logits) + values["phi"] * _others_entropy(logits)


def rcl(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    temperature = values["regulator_temperature"] or values["temperature"]
    return info_nce(columns, values, rows, heads) + values["regulator_weight"] * _regulators(columns, rows, temperature)


def regulators(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    return _regulators(columns, rows, values["temperature"])


def rse(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    moved = columns[0] + heads["table.vectors.weight"][rows.relations]
    logits = cosines(moved, _candidates(columns, values)) / values["temperature"]
    return _cross_entropy(logits) + values["phi"] * _others_entropy(logits)


def supmpn(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    num_positives, num_rows = rows.num_positives, len(columns[0])
    positives, negatives = columns[1 : num_positives + 1], columns[num_positives + 1 :]
    total = columns[0].new_zeros(())
    to_positives = [torch.exp(cosines(columns[0], column) / values["temperature"]) for column in positives]
    to_negatives = [torch.exp(cosines(columns[0], column) / values["temperature"]) for column in negatives]
    extra = num_positives - 1 if values["masked"] == "zero" else 0
    for i in range(num_rows):
        is_other = torch.arange(num_rows) != i
        others = torch.cat([*(table[i][is_other] for table in to_positives), *(table[i] for table in to_negatives)])
        for table in to_positives:
            whole = table[i, i] + others.sum() + extra
            losses = -torch.log(table[i, i] / whole) - values["phi"] * ((others / whole) * torch.log(others / whole)).sum()
            total = total + losses / (num_rows * num_positives)
    return total


def regression(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    assert rows.labels is not None
    u, v = columns
    features = {"uv": [u, v], "diff": [(u - v).abs()], "uv_diff": [u, v, (u - v).abs()]}[values["features"]]
    outputs = torch.cat(features, dim=1) @ heads["head.linear.weight"].T + heads["head.linear.bias"]
    total = u.new_zeros(())
    for output, label in zip(outputs, rows.labels, strict=True):
        y = float(label)
        if values["loss"] == "cross_entropy":
            total = total - torch.log_softmax(output, 0)[round(y / rows.spacing)]
            continue
        p = output[0]
        if values["boundary"] in ("left_mask", "clamp") and p < 0:
            p = p * 0
        if values["boundary"] == "clamp" and p > rows.top:
            p = p * 0 + rows.top
        beyond = (p < 0 and y == 0) or (p > rows.top and y == rows.top)
        error = (p - y).abs() * (0.0 if values["boundary"] == "one_sided" and beyond else 1.0)
        if values["loss"] in ("l1", "mse"):
            total = total + (error if values["loss"] == "l1" else error**2)
        elif error >= values["threshold"]:
            past = error - values["threshold"]
            total = total + values["slope"] * (past if values["loss"] == "translated_relu" else past**2)
    return total / len(rows.labels)


def cosent(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    return _ranking([(a @ b) / (a.norm() * b.norm()) for a, b in zip(*columns, strict=True)], rows, values["temperature"])


def angle(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    """By the quotient of complex numbers, z / w, without the quotient of their lengths."""
    similarities = []
    for z, w in zip(*(torch.cat([side, side.new_zeros(len(side), side.shape[1] % 2)], dim=1) for side in columns), strict=True):
        half, length = len(z) // 2, w.square().sum()
        real = sum((z[i] * w[i] + z[half + i] * w[half + i]) / length for i in range(half))
        imaginary = sum((z[half + i] * w[i] - z[i] * w[half + i]) / length for i in range(half))
        similarities.append(((real + imaginary) * w.norm() / z.norm()).abs())
    return _ranking(similarities, rows, values["temperature"])


def _ranking(similarities: Sequence[Tensor], rows: Rows, temperature: float) -> Tensor:
    assert rows.labels is not None
    total = torch.ones((), dtype=torch.float64)
    for i, lower in enumerate(similarities):
        for j, higher in enumerate(similarities):
            if rows.labels[i] < rows.labels[j]:
                total = total + torch.exp((lower - higher) / temperature)
    return torch.log(total)


def triplet(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    total = columns[0].new_zeros(())
    for a, p, n in zip(*columns, strict=True):
        near, far = (
            {"euclidean": (a - x).norm(), "manhattan": (a - x).abs().sum(), "cosine": 1 - a @ x / (a.norm() * x.norm())}[values["distance"]]
            for x in (p, n)
        )
        total = total + (near - far + values["margin"]).clamp(min=0) / len(columns[0])
    return total


def symmetric_info_nce(columns: Sequence[Tensor], values: Values, rows: Rows, heads: Heads) -> Tensor:
    temperature = heads["log_temperature"].exp().clamp(min=0.01) if values["learn_temperature"] else values["temperature"]
    forth, back = cosines(columns[0], _candidates(columns, values)), cosines(columns[1], columns[0])
    return (_cross_entropy(forth / temperature) + _cross_entropy(back / temperature)) / 2


REFERENCES: tuple[Reference, ...] = (
    Reference(objective="info_nce", loss=info_nce, defaults={"temperature": 1.0, "hard_negatives": True}),
    Reference(objective="entropy", loss=entropy, defaults={"temperature": 1.0, "hard_negatives": True}, given={"phi": 0.02}),
    Reference(
        objective="rcl",
        loss=rcl,
        defaults={"temperature": 1.0, "hard_negatives": True, "regulator_weight": 1.0, "regulator_temperature": None},
    ),
    Reference(objective="regulators", loss=regulators, defaults={"temperature": 1.0}),
    Reference(
        objective="rse",
        loss=rse,
        defaults={"temperature": 0.05, "hard_negatives": True, "phi": 0.0, "relation_learning_rate": 1e-2},
        learns={"table": Learned(field="relation_learning_rate", decays=False)},
    ),
    Reference(objective="supmpn", loss=supmpn, defaults={"temperature": 0.05, "masked": "excluded", "phi": 0.0}),
    Reference(
        objective="regression",
        loss=regression,
        defaults={"loss": "smooth_k2", "boundary": "one_sided", "features": "uv_diff", "head_learning_rate": None},
        learns={"head": Learned(field="head_learning_rate")},
        given={"slope": 2.0, "threshold": 0.25},
    ),
    Reference(objective="cosent", loss=cosent, defaults={"temperature": 0.05}),
    Reference(objective="angle", loss=angle, defaults={"temperature": 0.05}),
    Reference(objective="triplet", loss=triplet, defaults={"margin": 1.0, "distance": "euclidean"}),
    Reference(
        objective="symmetric_info_nce",
        loss=symmetric_info_nce,
        defaults={"temperature": 0.05, "hard_negatives": True, "learn_temperature": False, "temperature_learning_rate": None},
        learns={"log_temperature": Learned(field="temperature_learning_rate", decays=False)},
        given={"learn_temperature": True},
    ),
)  # fmt: skip


@cache
def references() -> dict[str, Reference]:
    """By the objective's name."""
    return {one.objective: one for one in REFERENCES}


def loss_of(columns: Sequence[Tensor], objective: Values, rows: Rows, heads: Heads) -> Tensor:
    """The loss of a recipe's objective, a sum included."""
    if objective["name"] != "sum":
        known = references()[objective["name"]]
        return known.loss(columns, {**known.defaults, **objective}, rows, heads)
    total = columns[0].new_zeros(())
    for number, term in enumerate(objective["terms"]):
        prefix = f"terms.{number}."
        own = {name.removeprefix(prefix): tensor for name, tensor in heads.items() if name.startswith(prefix)}
        seen: Sequence[Tensor] = columns
        if term.get("projected", False):
            seen = [torch.tanh(column @ own["head.dense.weight"].T + own["head.dense.bias"]) for column in columns]
        own = {name.removeprefix("objective."): tensor for name, tensor in own.items()}
        total = total + term.get("weight", 1.0) * loss_of(seen, term["objective"], rows, own)
    return total


def rates_of(training: Values, steps: int) -> list[float]:
    """The learning rate of each step: a warm-up from 0, then a line down to 0 at the end of the schedule, or level."""
    whole = math.ceil(steps * training["schedule_stretch"])
    warm = math.ceil(whole * training["warmup_fraction"])
    rates = []
    for step in range(steps):
        share = step / warm if step < warm else 1.0 if training["schedule"] == "constant" else (whole - step) / max(1, whole - warm)
        rates.append(training["learning_rate"] * share)
    return rates


@dataclass
class Moved:
    """One parameter under AdamW with its own rate (None: the encoder's, times `factor`) and decay."""

    tensor: Tensor
    rate: float | None
    decay: float
    factor: float = 1.0
    first: Tensor | float = 0.0
    second: Tensor | float = 0.0

    def step(self, gradient: Tensor, scale: float, rate: float, number: int) -> None:
        """rate: the encoder's; scale: that of the schedule."""
        own = (rate if self.rate is None else self.rate * scale) * self.factor
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        with torch.no_grad():
            self.tensor.mul_(1 - own * self.decay)
            past = self.first / (1 - 0.9**number)
            self.tensor.sub_(own * past / ((self.second / (1 - 0.999**number)) ** 0.5 + 1e-8))


def own_rates(objective: Values) -> Iterator[tuple[str, float | None, bool]]:
    """(beginning of the names of heads, their rate or None, whether they decay)."""
    terms = [(f"terms.{n}.", t["objective"], t) for n, t in enumerate(objective["terms"])] if objective["name"] == "sum" else []
    for prefix, one, term in terms or [("", objective, {})]:
        inner = prefix + ("objective." if term.get("projected") else "")
        known = references().get(one["name"])
        for start, learned in {} if known is None else known.learns.items():
            yield inner + start, {**known.defaults, **one}[learned.field], learned.decays
