"""The compiled kernels against float64: value and gradient, dropout and all; the same digits on any number of threads; NaN stays NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from sentdist.kernels import cpp_kernels
from sentdist.kernels.interface import AttentionLayout, Band, DropoutMask, QueryKeyValue
from tests.support.kernel_reference import attended, factors

LENGTHS = [1, 2, 15, 16, 17, 33, 70, 4]
ROWS = sum(LENGTHS)
TYPES = {torch.float32: 3e-6, torch.bfloat16: 1.5e-2}  # relative to the norm; bfloat16 keeps 8 bits of what goes in and comes out
MASK = DropoutMask(seed=0x1234567_89ABCDEF, p=0.3)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def near(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    expected = expected.detach()
    assert float((found.double() - expected).norm()) <= TYPES[dtype] * float(expected.norm()) + 1e-9


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.double().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize(("before", "after", "longest"), [(None, 0, None), (0, None, 100), (3, 0, 100), (2, 2, None), (200, 1, None)])
def test_attention_to_what_a_token_sees(before: int | None, after: int | None, longest: int | None) -> None:
    band = Band(before=before, after=after)
    _check_attention(torch.float32, 2, 20, MASK, apart=False, longest=longest, band=band)
    _check_attention(torch.bfloat16, 1, 32, None, apart=True, longest=longest, band=band)


def _check_attention(
    dtype: torch.dtype, heads: int, width: int, mask: DropoutMask | None, *, apart: bool, longest: int | None, band: Band | None
) -> None:
    """apart: queries, keys and values in three tensors without biases; else in one with them, and with a scale for each head.
    longest: of sentences for which there are distances."""
    total = heads * width
    states = torch.randn(ROWS, 3 * total).to(dtype)
    biases = None if apart else torch.randn(3, total)
    head_scales = None if apart else torch.rand(len(LENGTHS), heads)
    grad = torch.randn(ROWS, total).to(dtype)
    boundaries = torch.tensor([0, *LENGTHS], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    distances = None if longest is None else torch.randn(heads, 2 * longest - 1)
    layout = AttentionLayout(
        boundaries=boundaries, num_heads=heads, head_width=width, scale=0.7 * width**-0.5, head_scales=head_scales, distances=distances,
        band=band,
    )  # fmt: skip
    thirds = [third.contiguous() if apart else third for third in states.chunk(3, dim=1)]
    given = QueryKeyValue(thirds[0], thirds[1], thirds[2], None if biases is None else (biases[0], biases[1], biases[2]))
    found, statistics = cpp_kernels.attention(given, layout, mask, save_for_backward=True)
    assert statistics is not None
    to = [torch.empty_like(third) for third in thirds] if apart else list(torch.empty_like(states).chunk(3, dim=1))
    grad_distances = cpp_kernels.attention_backward(given, layout, mask, grad=grad, statistics=statistics, out=(to[0], to[1], to[2]))

    expected_of = leaves(*states.chunk(3, dim=1))
    moved = expected_of if biases is None else [one + bias for one, bias in zip(expected_of, biases.double(), strict=True)]
    of_distances = None if distances is None else leaves(distances)[0]
    expected = attended(
        (moved[0], moved[1], moved[2]), LENGTHS, heads=heads, scale=layout.scale, mask=mask, head_scales=head_scales, distances=of_distances,
        band=band,
    )  # fmt: skip
    expected.backward(grad.double())
    assert (grad_distances is None) == (of_distances is None)
    if grad_distances is not None and of_distances is not None and of_distances.grad is not None:
        near(grad_distances, of_distances.grad, dtype)
    near(found, expected, dtype)
    for one, leaf in zip(to, expected_of, strict=True):
        assert leaf.grad is not None
        near(one, leaf.grad, dtype)
    assert torch.equal(cpp_kernels.attention(given, layout, mask, save_for_backward=False)[0], found)


@pytest.mark.parametrize("dtype", TYPES)
def test_gelu(dtype: torch.dtype) -> None:
    product = torch.cat([torch.linspace(-14.0, 14.0, 64 * 33), torch.tensor([0.0, -0.0, 60.0, -60.0, 1e30, -1e30] + 10 * [1e-20])])
    product = product.view(-1, 16).to(dtype)
    bias, grad = torch.randn(16) * 0.1, torch.randn(len(product), 16).to(dtype)
    found, grad_product = cpp_kernels.gelu(product, bias), grad.clone()
    recomputed, grad_bias = cpp_kernels.gelu_backward(product, bias, grad_product)
    assert torch.equal(recomputed, found)
    of_product, of_bias = leaves(product, bias)
    expected = torch.nn.functional.gelu(of_product + of_bias)
    expected.backward(grad.double())
    expected = expected.detach()
    assert of_product.grad is not None and of_bias.grad is not None
    rounded = 0.0 if dtype == torch.float32 else 2.0**-8
    small = product.double().abs() < 100.0
    assert float((found.double() - expected)[small].abs().sub(rounded * expected[small].abs()).max()) < 2e-6
    assert float((grad_product.double() - of_product.grad)[small].abs().sub(rounded * of_product.grad[small].abs()).max()) < 2e-6
    near(found, expected, dtype)
    near(grad_bias, of_bias.grad, torch.float32)


def test_sums() -> None:
    values = torch.randn(77, 32)
    near(cpp_kernels.column_sums(values), values.double().sum(0), torch.float32)
    sums = torch.randn(77, 32)
    assert torch.equal(cpp_kernels.add_to(sums.clone(), values.bfloat16()), sums + values.bfloat16().float())


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_any_number_of_threads_gives_the_same_digits() -> None:
    states, grad, width = torch.randn(ROWS, 96), torch.randn(ROWS, 32), 32
    boundaries = torch.tensor([0, *LENGTHS], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    distances, norm_weight = torch.randn(2, 2 * max(LENGTHS) - 1), torch.randn(width)
    layout = AttentionLayout(boundaries=boundaries, num_heads=2, head_width=16, scale=0.25, distances=distances)
    outcomes = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        given = QueryKeyValue(*states.chunk(3, dim=1))
        context, statistics = cpp_kernels.attention(given, layout, MASK, save_for_backward=True)
        assert statistics is not None
        to = torch.empty_like(states)
        grad_distances = cpp_kernels.attention_backward(given, layout, MASK, grad=grad, statistics=statistics, out=to.chunk(3, dim=1))
        normed = cpp_kernels.add_norm(context, norm_weight, MASK, grad, norm_weight, norm_weight, epsilon=1e-5, save_for_backward=True)
        assert normed.saved_for_backward is not None
        grads = cpp_kernels.add_norm_backward(
            grad, context, normed.saved_for_backward, norm_weight, MASK, dtype=torch.float32, norm_bias=norm_weight
        )
        arrived = grad.clone()
        activated, grad_bias = cpp_kernels.gelu_backward(context, norm_weight, arrived)
        outcomes.append([context, to, grad_distances, normed.out, *grads, arrived, activated, grad_bias, cpp_kernels.column_sums(to)])
    for other in outcomes[1:]:
        assert all(torch.equal(one, again) for one, again in zip(outcomes[0], other, strict=True))


def test_dropout_drops_as_often_as_it_says_and_its_seeds_and_places_are_independent() -> None:
    width, rows = 64, 4000

    def kept(seed: int, p: float) -> Tensor:
        """By the kernel: a gradient is 0 where its value was dropped."""
        grad, inverse, norm_weight = torch.randn(rows, width), torch.ones(rows), torch.ones(width)
        grad_product = cpp_kernels.add_norm_backward(
            grad, None, (torch.randn(rows, width), inverse), norm_weight, DropoutMask(seed=seed, p=p), dtype=torch.float32
        ).product  # fmt: skip
        return (grad_product != 0.0).double()

    first = 0x3C6EF372_FE94F82B
    for p in (0.1, 0.5):
        one, other = kept(first, p), kept(first + 2**40, p)
        assert torch.equal(one, (factors(DropoutMask(seed=first, p=p), (rows, width)) > 0).double())
        spread = math.sqrt(p * (1 - p) / one.numel())
        for found in (one, other):
            assert abs(float(1.0 - found.mean()) - p) < 4.0 * spread
        pairs = ((one, other), (one[:, 1:], one[:, :-1]), (one[1:], one[:-1]), (one, kept(first + 1, p)))
        for left, right in pairs:
            correlation = torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1]
            assert abs(float(correlation)) < 4.5 / math.sqrt(left.numel())


def test_each_mask_is_drawn_for_itself() -> None:
    torch.manual_seed(0)
    first, none, last = cpp_kernels.draw_dropout_masks([0.1, 0.0, 0.1], torch.device("cpu"))
    assert first is not None and none is None and last is not None
    assert first.seed != last.seed and (first.p, last.p) == (0.1, 0.1)
