"""How far a GPU's kernels for layers are from torch in float64; on a GPU, or on a CPU where Triton interprets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from sentdist.learning.encoder import fused_layer
from sentdist.learning.kernels import gpu_calls
from sentdist.learning.kernels.values import Mask
from tests.support.layers import off

ROWS = 17  # one more than a tile of GELU's


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
