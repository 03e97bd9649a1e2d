"""Loss and gradients of small encoders, whatever computes their layers, and how far two are apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.precision import autocast
from tests.support.tiny_encoders import SENTENCES

SHORT = ("two birds", "the dog runs quickly")


def off(found: Tensor, expected: Tensor) -> float:
    return float((found.detach().cpu().double() - expected.detach().double()).norm() / expected.detach().double().norm())


def loss_and_gradients(
    encoder: SentenceEncoder, precision: str = "fp32", *, sentences: Sequence[str] = SENTENCES
) -> tuple[Tensor, dict[str, Tensor]]:
    """Of some loss over a few sentences of different lengths."""
    encoder.train().zero_grad()
    with autocast(precision, encoder.device):
        embeddings = encoder(encoder.tokenize(sentences)).double()
    loss = embeddings.mul(torch.linspace(-1, 1, embeddings.shape[1], device=embeddings.device)).square().sum()
    loss.backward()
    return loss.detach().cpu(), {name: one.grad.cpu().double() for name, one in encoder.named_parameters() if one.grad is not None}


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Of all gradients together, against their size."""
    assert found.keys() == expected.keys()
    wrong = sum(float((found[name] - expected[name]).square().sum()) for name in expected)
    return float((wrong / sum(float(one.square().sum()) for one in expected.values())) ** 0.5)


def slope_beside_gradient(encoder: SentenceEncoder, name: str, *, sentences: Sequence[str] = SHORT) -> tuple[float, float]:
    """Of a weight of the first layer, in some direction: by central differences of the dropped network, which a seed makes one function;
    and by its gradient."""
    tokens = encoder.train().tokenize(sentences)
    weight = encoder.model.encoder.layer[0].get_submodule(name).weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)).to(weight.device)

    def loss() -> Tensor:
        torch.manual_seed(5)
        total: Tensor = encoder(tokens).double().pow(3).sum()
        return total

    def loss_at(step: float) -> float:
        with torch.no_grad():
            weight.add_(step * direction)
            found = float(loss())
            weight.sub_(step * direction)
        return found

    (gradient,) = torch.autograd.grad(loss(), weight)
    return (loss_at(1e-3) - loss_at(-1e-3)) / 2e-3, float((gradient * direction).sum())
