"""How far a GPU's kernels for layers are from torch in float64; on a GPU, or on a CPU where Triton interprets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from sentdist.kernels import fused_layer, triton_kernels
from sentdist.kernels.interface import DropoutMask
from tests.support.layers import off

ROWS = 17  # one grad_product_input than a tile of GELU's


def norm_beside_torch(device: torch.device, dtype: torch.dtype, width: int, *, whole: bool) -> dict[str, Any]:
    """`add_norm` and its derivative. whole: with bias, dropout, a second gradient and an output that is made recomputed; else without."""
    generator = torch.Generator().manual_seed(width)

    def numbers(*shape: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(of).to(device)

    product, residual, grad = numbers(ROWS, width, of=dtype), numbers(ROWS, width), numbers(ROWS, width)
    norm_weight, norm_bias = numbers(width), numbers(width)
    bias, grad_product_input = (numbers(width), numbers(ROWS, width, of=dtype)) if whole else (None, None)
    dropout_mask = DropoutMask(seed=torch.tensor(7, device=device), p=0.25) if whole else None
    normed = triton_kernels.add_norm(product, bias, dropout_mask, residual, norm_weight, norm_bias, epsilon=0.1, save_for_backward=True)
    quiet = triton_kernels.add_norm(product, bias, dropout_mask, residual, norm_weight, norm_bias, epsilon=0.1, save_for_backward=False)
    assert normed.saved_for_backward is not None and quiet.saved_for_backward is None and torch.equal(quiet.out, normed.out)
    grads = triton_kernels.add_norm_backward(
        grad, grad_product_input, normed.saved_for_backward, norm_weight, dropout_mask, dtype=dtype, norm_bias=norm_bias if whole else None
    )
    # What the derivative dropped has no gradient; where the forward pass dropped others, its values are off.
    factors = (grads.product != 0.0).cpu().double() / 0.75 if whole else torch.ones(1).double()
    leaves = [
        one.cpu().double().requires_grad_() for one in (product, residual, norm_weight, norm_bias, bias if whole else torch.zeros(width))
    ]  # type: ignore[union-attr]
    entered, beside, scale, offset, added = leaves
    expected = nn.functional.layer_norm((entered + added) * factors + beside, (width,), scale, offset, eps=0.1)
    arrived = grad.cpu().double() + (grad_product_input.cpu().double() if grad_product_input is not None else 0.0)
    wanted = torch.autograd.grad(expected, leaves, arrived)
    found = (grads.product, grads.residual, grads.norm_weight, grads.norm_bias, grads.bias)
    return {
        "what": f"norm {dtype} {width} {whole}",
        "off": max(
            off(normed.out, expected),
            off(normed.product_input, expected),
            off(grads.recomputed, expected) if grads.recomputed is not None else 0.0,
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
    out = triton_kernels.gelu(product, bias)
    recomputed, grad_bias = triton_kernels.gelu_backward(product, bias, grad)  # whose gradient is written in place
    return {
        "what": f"gelu {dtype} {width}",
        "off": max(off(out, expected), off(recomputed, expected)),
        "gradients": max(off(grad, wanted[0]), off(grad_bias, wanted[1])),
    }


@contextmanager
def by_gpu_kernels() -> Iterator[list[int]]:
    """Layers are computed by the kernels in Triton wherever they are; yields how often."""
    counted: list[int] = []

    def kernels(*_: object, **__: object) -> object:
        counted.append(1)
        return triton_kernels

    with patch.object(fused_layer, "_supporting_kernels", kernels):
        yield counted
