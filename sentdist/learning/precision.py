"""In which number format matrix products are computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

PRECISIONS = ("fp32", "bf16")
LARGEST_FP32_ERROR = 2e-6  # relative to the exact product; fp32 sums of 384 terms gave 4e-7, a product rounded to bfloat16 2e-3


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """Compute in bfloat16 where that is safe (bf16) or everywhere in float32 (fp32); weights stay float32 in both."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is not one of {', '.join(PRECISIONS)}")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def product_error(matmul: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.matmul) -> float:
    """Measure the relative error of float32 matrix products, forward shapes and transposed ones, against float64."""
    generator = torch.Generator().manual_seed(0)
    errors = []
    for rows, inner, columns in ((512, 384, 1536), (512, 1536, 384), (384, 512, 384)):
        left = torch.randn(rows, inner, generator=generator)
        right = torch.randn(columns, inner, generator=generator).T
        exact = left.double() @ right.double()
        errors.append(float((matmul(left, right).double() - exact).norm() / exact.norm()))
    return max(errors)


def choose_matmul_precision(medium_error: float) -> str:
    """Decide between torch's "medium" and "highest" float32 products from the error measured under "medium".

    "medium" *allows* rounding to bfloat16. On a CPU without bfloat16 matrix units it does not round and takes the faster oneDNN path (2.2
    times the speed on AMD Zen 5); with such units (AMX) it rounds, and float32 would no longer mean float32.
    """
    return "medium" if medium_error <= LARGEST_FP32_ERROR else "highest"


def apply_matmul_precision(device: torch.device) -> str:
    """Measure, choose and switch this process's float32 products for training on `device`; returns the choice.

    On a GPU the answer is "highest" unmeasured: the same switch would turn on TensorFloat-32 there, which does round.
    """
    if device.type != "cpu":
        torch.set_float32_matmul_precision("highest")
        return "highest"
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        chosen = choose_matmul_precision(product_error())
    except BaseException:
        torch.set_float32_matmul_precision(before)
        raise
    torch.set_float32_matmul_precision(chosen)
    return chosen
