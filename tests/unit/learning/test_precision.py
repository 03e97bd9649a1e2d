"""Float32 products stay float32 products, however fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.learning.precision import apply_matmul_precision, autocast, choose_matmul_precision, product_error


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("error", "choice"), [(2e-6, "medium"), (1e-5, "highest")])
def test_choice_follows_the_measured_error(error: float, choice: str) -> None:
    assert choose_matmul_precision(error) == choice


def test_error_tells_float32_from_bfloat16() -> None:
    torch.set_float32_matmul_precision("highest")
    assert choose_matmul_precision(product_error()) == "medium"
    rounded = product_error(lambda left, right: (left.bfloat16() @ right.bfloat16()).float())
    assert choose_matmul_precision(rounded) == "highest"


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
