"""Float32 products stay float32 products, however fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sentdist.learning.precision import apply_matmul_precision, autocast, choose_matmul_precision, product_error


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("error", "choice"), [(0.0, "medium"), (4e-7, "medium"), (2e-6, "medium"), (1e-5, "highest"), (2e-3, "highest")])
def test_choice_follows_the_measured_error(error: float, choice: str) -> None:
    assert choose_matmul_precision(error) == choice


def test_error_tells_float32_from_bfloat16() -> None:
    torch.set_float32_matmul_precision("highest")
    assert choose_matmul_precision(product_error()) == "medium"
    rounded = product_error(lambda left, right: (left.bfloat16() @ right.bfloat16()).float())
    assert choose_matmul_precision(rounded) == "highest"


def test_what_is_applied_is_exact_enough_on_this_machine() -> None:
    chosen = apply_matmul_precision(torch.device("cpu"))
    assert torch.get_float32_matmul_precision() == chosen
    assert product_error() < 2e-6


def test_a_gpu_is_never_switched_to_rounding_products() -> None:
    assert apply_matmul_precision(torch.device("cuda")) == "highest"
    assert torch.get_float32_matmul_precision() == "highest"


def test_autocast_by_name() -> None:
    left = torch.ones(2, 2)
    with autocast("bf16", torch.device("cpu")):
        assert (left @ left).dtype == torch.bfloat16
    with autocast("fp32", torch.device("cpu")):
        assert (left @ left).dtype == torch.float32
    with pytest.raises(ValueError, match="fp16"):
        autocast("fp16", torch.device("cpu"))
