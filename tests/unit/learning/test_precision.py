"""Products stay as exact as their precision says, however fast, whatever the processor and the torch; their rows are of few sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import ResourceError
from sentdist.kernels import tensors as products
from sentdist.kernels.grouped_attention import group_borders
from sentdist.learning import precision
from sentdist.learning.precision import apply_matmul_precision, autocast, choose_matmul_precision, product_error


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("error", "choice"), [(2e-6, "medium"), (1e-5, "highest")])
def test_choice_follows_the_measured_error(error: float, choice: str) -> None:
    assert choose_matmul_precision(error) == choice


def test_what_is_applied_is_exact_enough_on_this_machine() -> None:
    chosen = apply_matmul_precision(torch.device("cpu"), "fp32")
    assert torch.get_float32_matmul_precision() == chosen
    assert product_error() < 2e-6


@pytest.mark.parametrize(("precision", "chosen"), [("bf16", "highest"), ("tf32", "high"), ("fp32", "highest")])
def test_products_on_a_gpu_round_only_where_tf32_asks(precision: str, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stays takes stages of any precision in turn."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert apply_matmul_precision(torch.device("cuda"), precision) == chosen
    assert torch.get_float32_matmul_precision() == chosen


@pytest.mark.parametrize(("device", "found"), [("cpu", "a computation on the CPU"), ("cuda", "Tesla V100")])
def test_tf32_is_refused_where_it_would_be_something_else(device: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    with pytest.raises(ResourceError, match=f"(?s)tf32.*{found}"):
        apply_matmul_precision(torch.device(device), "tf32")


def test_bf16_is_refused_on_a_gpu_that_has_no_such_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    with pytest.raises(ResourceError, match="bf16"):
        apply_matmul_precision(torch.device("cuda"), "bf16")
    assert apply_matmul_precision(torch.device("cuda"), "fp32") == "highest"
    apply_matmul_precision(torch.device("cpu"), "bf16")
    monkeypatch.setattr(torch.version, "hip", "6.4")  # AMD counts otherwise
    assert apply_matmul_precision(torch.device("cuda"), "bf16") == "highest"


def test_autocast_by_name() -> None:
    left = torch.ones(2, 2)
    with autocast("bf16", torch.device("cpu")):
        assert (left @ left).dtype == torch.bfloat16
    with autocast("fp32", torch.device("cpu")):
        assert (left @ left).dtype == torch.float32
    with pytest.raises(ValueError, match="fp16"):
        autocast("fp16", torch.device("cpu"))


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


def _near(found: Tensor, expected: Tensor) -> None:
    """To two roundings to bfloat16 of the largest value."""
    assert float((found.double() - expected).abs().max()) <= 2.0**-7 * float(expected.abs().max())


def test_rows_are_filled_up_to_few_sizes(has_instructions: bool) -> None:
    assert precision.rows_multiple(1000, CPU) == 1
    with autocast("bf16", CPU):
        multiples = [precision.rows_multiple(rows, CPU) for rows in range(1, 5000)]
    if not has_instructions:
        assert set(multiples) == {1}
        return
    filled = [-(-rows // multiple) * multiple for rows, multiple in enumerate(multiples, start=1)]
    assert all(0 <= more - rows <= rows / 16 for rows, more in enumerate(filled, start=1))
    assert len({rows for rows in filled if 2048 < rows <= 4096}) == 16


def cost(lengths: np.ndarray, borders: tuple[int, ...], group_cost: float) -> float:
    return sum((last - first) * float(lengths[last - 1]) ** 2 + group_cost for first, last in pairwise(borders))


@pytest.mark.parametrize("group_cost", [0.0, 30.0, 600.0])
def test_no_other_cut_costs_less(group_cost: float) -> None:
    """Every way to cut ten sentences, tried one by one."""
    random = np.random.default_rng(0)
    for _ in range(5):
        lengths = np.sort(random.integers(3, 30, size=10))
        cuts = [(0, *inner, 10) for count in range(10) for inner in combinations(range(1, 10), count)]
        least = min(cost(lengths, cut, group_cost) for cut in cuts)
        assert cost(lengths, tuple(group_borders(lengths, group_cost=group_cost)), group_cost) == least
