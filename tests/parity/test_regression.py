"""The regression losses equal obvious loops over pairs in float64, value and gradient, for every boundary and for one rank and two."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.objectives.learned.regression import RegressionHead, RegressionLoss
from tests.parity.processes import run_in_processes
from tests.support import make

pytestmark = pytest.mark.parity

M, D = 24, 5
SETTINGS = [
    *(
        {"loss": loss, "slope": slope, "threshold": threshold, "boundary": boundary}
        for loss, (slope, threshold), boundary in itertools.product(
            ["translated_relu", "smooth_k2"], [(2.5, 0.25), (0.7, 0.5), (3.0, 0.0)], ["none", "left_mask", "clamp", "one_sided"]
        )
    ),
    *(
        {"loss": loss, "boundary": boundary}
        for loss, boundary in itertools.product(["l1", "mse"], ["none", "left_mask", "clamp", "one_sided"])
    ),
    {"loss": "cross_entropy", "boundary": "none"},
]
# Sums of a few dozen float64 terms of size 1.
FLOAT64 = {"atol": 1e-13, "rtol": 1e-12}


def named(setting: dict[str, object]) -> str:
    return "-".join(map(str, setting.values()))


def loop_predictions(u: Tensor, v: Tensor, weight: Tensor, bias: Tensor, features: str) -> list[list[Tensor]]:
    """The head's outputs of each pair, one number after the other."""
    rows = []
    for i in range(len(u)):
        inputs = []
        if features in ("uv", "uv_diff"):
            inputs += [*u[i], *v[i]]
        if features in ("diff", "uv_diff"):
            inputs += [(a - b) if a > b else (b - a) for a, b in zip(u[i], v[i], strict=True)]
        rows.append([sum(w * x for w, x in zip(weight[c], inputs, strict=True)) + bias[c] for c in range(len(weight))])
    return rows


def loop_loss(rows: list[list[Tensor]], labels: list[float], setting: dict[str, object], low: float, high: float) -> Tensor:
    loss, boundary = setting["loss"], setting["boundary"]
    total = torch.zeros((), dtype=torch.float64)
    for outputs, y in zip(rows, labels, strict=True):
        if loss == "cross_entropy":
            total = total - torch.log(torch.exp(outputs[int(y - low)]) / sum(torch.exp(output) for output in outputs))
            continue
        (p,) = outputs
        if boundary in ("left_mask", "clamp") and p < low:
            p = torch.tensor(low, dtype=torch.float64)
        if boundary == "clamp" and p > high:
            p = torch.tensor(high, dtype=torch.float64)
        if boundary == "one_sided" and ((p < low and y == low) or (p > high and y == high)):
            continue
        x = p - y if p > y else y - p
        k, x0 = setting.get("slope", 1.0), setting.get("threshold", 0.0)
        if x >= x0:
            total = total + k * (x - x0) ** (2 if loss in ("smooth_k2", "mse") else 1)
    return total / len(labels)


def inputs_of(num_rows: int) -> tuple[Tensor, list[float]]:
    """(2, M, D) embeddings and labels; the head below puts some predictions outside the range on either side."""
    generator = torch.Generator().manual_seed(5)
    embeddings = 3 * torch.randn(2, num_rows, D, dtype=torch.float64, generator=generator)
    return embeddings, [float(number % 3) for number in range(num_rows)]


def objective_for(setting: dict[str, object], features: str = "uv_diff") -> RegressionLoss:
    torch.manual_seed(1)
    objective = make.regression(width=D, features=features, **setting).double()
    with torch.no_grad():
        objective.head.linear.bias += 1.0
    return objective


def batch_of(labels: list[float], *, num_rows: int, first_row: int = 0) -> Batch:
    lengths = (1,) * (2 * len(labels))
    tokens = TokenBatch(
        token_ids=torch.ones(len(lengths), dtype=torch.int64), boundaries=torch.arange(len(lengths) + 1, dtype=torch.int32), lengths=lengths
    )
    ids_CM = np.arange(2 * num_rows).reshape(2, num_rows)
    return Batch(tokens=tokens, num_columns=2, first_row=first_row, sentence_ids=ids_CM, labels=torch.tensor(labels))


@pytest.mark.parametrize("features", ["uv", "diff", "uv_diff"])
@pytest.mark.parametrize("setting", SETTINGS, ids=named)
def test_losses(setting: dict[str, object], features: str) -> None:
    embeddings, labels = inputs_of(M)
    embeddings.requires_grad_()
    objective = objective_for(setting, features)
    found = objective(embeddings.flatten(0, 1), batch_of(labels, num_rows=M))
    weight, bias = objective.head.linear.weight, objective.head.linear.bias
    rows = loop_predictions(embeddings[0], embeddings[1], weight, bias, features)
    expected = loop_loss(rows, labels, setting, 0.0, 2.0)
    torch.testing.assert_close(found, expected, **FLOAT64)
    inputs = [embeddings, weight, bias]
    for ours, loops in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, loops, **FLOAT64)


def test_the_pairs_try_every_boundary() -> None:
    """So that the parities above say something: predictions on both sides, with and against the label of that side."""
    embeddings, labels = inputs_of(M)
    head: RegressionHead = objective_for({"loss": "l1"}).head
    predictions = head(embeddings[0], embeddings[1]).tolist()
    sides = {("low" if p < 0 else "high", y) for p, y in zip(predictions, labels, strict=True) if not 0 <= p <= 2}
    assert sides == {(side, label) for side in ("low", "high") for label in (0.0, 1.0, 2.0)}
    assert sum(0 <= p <= 2 for p in predictions) >= 4


def loss_and_gradients(rank: int, world_size: int) -> list[tuple[float, list[Tensor]]]:
    """Of each setting over embeddings X·W: the loss, and the gradients of W and the head averaged over ranks."""
    embeddings, labels = inputs_of(M)
    rows = local_rows(M, rank=rank, world_size=world_size)
    batch = batch_of(labels[rows.start : rows.stop], num_rows=M, first_row=rows.start)
    results = []
    for setting in SETTINGS:
        objective = objective_for(setting)
        weight = torch.nn.Parameter(torch.eye(D, dtype=torch.float64))
        loss = objective((embeddings[:, rows.start : rows.stop] @ weight).flatten(0, 1), batch)
        loss.backward()
        parameters = [weight, *objective.parameters()]
        average_gradients(parameters)
        results.append((loss.item(), [parameter.grad for parameter in parameters]))
    return results


def test_value_and_gradient_do_not_depend_on_the_number_of_ranks() -> None:
    single = loss_and_gradients(0, 1)
    ranks = run_in_processes(loss_and_gradients, 2)
    for number, (loss, gradients) in enumerate(single):
        assert math.isclose(sum(rank[number][0] for rank in ranks) / 2, loss, rel_tol=1e-12)
        for rank in ranks:
            for found, expected in zip(rank[number][1], gradients, strict=True):
                torch.testing.assert_close(found, expected, **FLOAT64)
