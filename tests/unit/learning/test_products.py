"""Products of bfloat16 values are the same with instructions for them and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sentdist.learning import precision, products
from sentdist.learning.precision import autocast

CPU = torch.device("cpu")


@pytest.fixture(params=[True, False], ids=["instructions", "float32"])
def has_instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    for module in (products, precision):
        monkeypatch.setattr(module, "has_bfloat16", lambda: request.param)
    return bool(request.param)


@pytest.mark.usefixtures("has_instructions")
def test_a_product_is_rounded_once() -> None:
    left, right = torch.randn(40, 96).bfloat16(), torch.randn(96, 24).bfloat16()
    found, exact = products.product(left, right), left.double() @ right.double()
    assert found.dtype == torch.bfloat16
    assert float((found.double() - exact).abs().sub(2.0**-8 * exact.abs()).max()) < 1e-5
    wide = torch.randn(5, 7), torch.randn(7, 3)
    assert torch.equal(products.product(*wide), wide[0] @ wide[1])


@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_layers_under_autocast_give_value_and_gradient(has_instructions: bool, with_bias: bool) -> None:
    layer = torch.nn.Linear(64, 16, bias=with_bias)
    states, grad = torch.randn(3, 9, 64, requires_grad=True), torch.randn(3, 9, 16).bfloat16()
    with autocast("bf16", CPU):
        out = layer(states)
    assert out.dtype == torch.bfloat16
    out.backward(grad)
    rounded = [one.detach().bfloat16().double().requires_grad_() for one in (states, *layer.parameters())]
    expected = torch.nn.functional.linear(*rounded)
    expected.backward(grad.double())
    _near(out.detach(), expected.detach())
    for found, leaf in zip((states, *layer.parameters()), rounded, strict=True):
        assert found.grad is not None and leaf.grad is not None and found.grad.dtype == torch.float32
        _near(found.grad, leaf.grad)


@pytest.mark.parametrize(
    "multiplied", [torch.matmul, torch.Tensor.matmul, lambda left, right: left @ right], ids=["function", "method", "sign"]
)
def test_products_under_autocast_are_rounded_once(has_instructions: bool, multiplied: Callable[[Tensor, Tensor], Tensor]) -> None:
    left, right = torch.randn(2, 5, 96), torch.randn(2, 96, 3)
    with autocast("bf16", CPU):
        found = multiplied(left, right)
    assert found.dtype == torch.bfloat16
    _near(found, left.bfloat16().double() @ right.bfloat16().double())


def test_outside_of_bf16_nothing_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    layer, states = torch.nn.Linear(8, 4), torch.randn(3, 8)
    with autocast("bf16", CPU), torch.autocast("cpu", enabled=False):
        assert torch.equal(layer(states), torch.nn.functional.linear(states, layer.weight, layer.bias))
    with autocast("fp32", CPU):
        assert layer(states).dtype == torch.float32


def _near(found: Tensor, expected: Tensor) -> None:
    """To two roundings to bfloat16 of the largest value."""
    assert float((found.double() - expected).abs().max()) <= 2.0**-7 * float(expected.abs().max())
