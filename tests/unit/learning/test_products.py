"""Products of bfloat16 values are the same with instructions for them and without; their rows are of few sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.learning import precision
from sentdist.learning import precision as products
from sentdist.learning.encoder import sentence_encoder
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
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


def test_rows_are_filled_up_to_few_sizes(has_instructions: bool) -> None:
    assert products.rows_multiple(1000, CPU) == 1
    with autocast("bf16", CPU):
        multiples = [products.rows_multiple(rows, CPU) for rows in range(1, 5000)]
    if not has_instructions:
        assert set(multiples) == {1}
        return
    filled = [-(-rows // multiple) * multiple for rows, multiple in enumerate(multiples, start=1)]
    assert all(0 <= more - rows <= rows / 16 for rows, more in enumerate(filled, start=1))
    assert len({rows for rows in filled if 2048 < rows <= 4096}) == 16


def test_sentences_that_fill_a_batch_change_neither_embeddings_nor_gradients(
    monkeypatch: pytest.MonkeyPatch, tiny_encoder_dir: Path
) -> None:
    monkeypatch.setattr(products, "has_bfloat16", lambda: True)
    encoder = SentenceEncoder.load(tiny_encoder_dir, hidden_dropout=0.0, attention_dropout=0.0)
    tokens = encoder.tokenize(["a dog runs", "two cats sleep on a red mat", "a man"] * 30)
    sizes: list[int] = []
    encoder.model.register_forward_pre_hook(lambda _, __, given: sizes.append(given["input_ids"].shape[1]), with_kwargs=True)  # type: ignore[arg-type, return-value]

    def found() -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(0)
        encoder.zero_grad()
        with autocast("bf16", CPU):
            embeddings, states = encoder(tokens), encoder.token_states(tokens)
        (embeddings * torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
        return embeddings.detach(), states.detach(), torch.cat([one.grad.flatten() for one in encoder.parameters() if one.grad is not None])

    filled = found()
    monkeypatch.setattr(sentence_encoder, "rows_multiple", lambda *_: 1)
    as_they_are = found()
    assert sizes[0] == sizes[1] > sizes[2] == sizes[3] == tokens.num_tokens == len(filled[1])
    for one, other in zip(filled, as_they_are, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-3
