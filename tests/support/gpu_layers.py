"""How far a GPU's kernels for layers are from torch in float64; on a GPU, or on a CPU where Triton interprets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from sentdist.learning.encoder import fused_layer
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.kernels import gpu_calls
from sentdist.learning.kernels.values import Mask
from sentdist.learning.precision import autocast
from tests.support.tiny_encoders import SENTENCES

ROWS = 17  # one more than a tile of GELU's
SHORT = ("two birds", "the dog runs quickly")


def off(found: Tensor, expected: Tensor) -> float:
    return float((found.detach().cpu().double() - expected.detach().double()).norm() / expected.detach().double().norm())


def norm_beside_torch(device: torch.device, dtype: torch.dtype, width: int, *, whole: bool) -> dict[str, Any]:
    """`add_norm` and its derivative. whole: with bias, dropout, a second gradient and an output that is made again; else without."""
    generator = torch.Generator().manual_seed(width)

    def numbers(*shape: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(of).to(device)

    product, residual, grad = numbers(ROWS, width, of=dtype), numbers(ROWS, width), numbers(ROWS, width)
    weight, shift = numbers(width), numbers(width)
    bias, more = (numbers(width), numbers(ROWS, width, of=dtype)) if whole else (None, None)
    mask = Mask(seed=torch.tensor(7, device=device), p=0.25) if whole else None
    normed = gpu_calls.add_norm(product, bias, mask, residual, weight, shift, epsilon=0.1, keep=True)
    quiet = gpu_calls.add_norm(product, bias, mask, residual, weight, shift, epsilon=0.1, keep=False)
    assert normed.for_derivative is not None and quiet.for_derivative is None and torch.equal(quiet.out, normed.out)
    grads = gpu_calls.add_norm_backward(grad, more, normed.for_derivative, weight, mask, dtype=dtype, shift=shift if whole else None)
    # What the derivative dropped has no gradient; where the forward pass dropped others, its values are off.
    factors = (grads.product != 0.0).cpu().double() / 0.75 if whole else torch.ones(1).double()
    leaves = [one.cpu().double().requires_grad_() for one in (product, residual, weight, shift, bias if whole else torch.zeros(width))]  # type: ignore[union-attr]
    entered, beside, scale, offset, added = leaves
    expected = nn.functional.layer_norm((entered + added) * factors + beside, (width,), scale, offset, eps=0.1)
    arrived = grad.cpu().double() + (more.cpu().double() if more is not None else 0.0)
    wanted = torch.autograd.grad(expected, leaves, arrived)
    found = (grads.product, grads.residual, grads.weight, grads.shift, grads.bias)
    return {
        "what": f"norm {dtype} {width} {whole}",
        "off": max(
            off(normed.out, expected), off(normed.product_ready, expected), off(grads.again, expected) if grads.again is not None else 0.0
        ),
        "gradients": max(map(off, found, wanted)),
        "dropped": float((factors == 0.0).double().mean()),
        "alike": max(float((factors[:-1] == factors[1:]).double().mean()), float((factors[:, :-1] == factors[:, 1:]).double().mean()))
        if whole
        else 0.0,
    }


def gelu_beside_torch(device: torch.device, dtype: torch.dtype, width: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(width)
    product, grad = (torch.randn(ROWS, width, generator=generator).mul(2.0).to(dtype).to(device) for _ in range(2))
    bias = torch.randn(width, generator=generator).to(device)
    leaves = [one.cpu().double().requires_grad_() for one in (product, bias)]
    expected = nn.functional.gelu(leaves[0] + leaves[1])
    wanted = torch.autograd.grad(expected, leaves, grad.cpu().double())
    out = gpu_calls.gelu(product, bias)
    again, to_bias = gpu_calls.gelu_backward(product, bias, grad)  # whose gradient is written in place
    return {
        "what": f"gelu {dtype} {width}",
        "off": max(off(out, expected), off(again, expected)),
        "gradients": max(off(grad, wanted[0]), off(to_bias, wanted[1])),
    }


@contextmanager
def by_gpu_kernels() -> Iterator[list[int]]:
    """Layers are computed by a GPU's kernels wherever they are; yields how often."""
    counted: list[int] = []

    def kernels(*_: object, **__: object) -> object:
        counted.append(1)
        return gpu_calls

    with patch.object(fused_layer, "_kernels", kernels):
        yield counted


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


def slope_beside_gradient(encoder: SentenceEncoder, name: str) -> tuple[float, float]:
    """Of a weight of the first layer, in some direction: by central differences of the dropped network, which a seed makes one function;
    and by its gradient."""
    tokens = encoder.train().tokenize(SHORT)
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
