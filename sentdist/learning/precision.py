"""Number formats of matrix products: fp32, tf32 (NVIDIA's float32 with 10 bits of fraction) or bf16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sentdist.errors import ResourceError
from sentdist.kernels.tensors import has_bfloat16
from sentdist.machine import AMPERE


def rows_multiple(num_rows: int, device: torch.device) -> int:
    """Return the multiple to which rows of products under autocast are padded, so that a training has few sizes; 1: no padding.

    oneDNN compiles a bfloat16 product for each new shape, in 5 to 9 ms: 95 of the 560 ms of a MiniLM step whose
    sizes were all new (2 cores Intel Xeon with AMX). This leaves at most 16 sizes between a power of two and the next, for 2 % more rows.
    """
    rounds = device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return max(1, 2 ** (num_rows.bit_length() - 5)) if rounds and has_bfloat16() else 1


class Float32Linears(TorchFunctionMode):
    """While active, compute linear layers under autocast in float32 from rounded values, and round once.

    Those of DeepSpeed's ZeRO stage 3 are its own, and are not changed.
    """

    def __torch_function__(
        self, func: Callable[..., object], types: Sequence[type], args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if func is torch.nn.functional.linear and torch.is_autocast_enabled("cpu"):
            return _linear(*args, **(kwargs or {}))  # type: ignore[arg-type]
        return func(*args, **(kwargs or {}))


def recomputed_within() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """Return the contexts of a layer's forward pass and recomputation: torch's checkpoints restore autocast, but not a function mode."""
    rounds = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return nullcontext(), Float32Linears() if rounds and not has_bfloat16() else nullcontext()


def _linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        added = None if bias is None else bias.to(dtype).float()
        return torch.nn.functional.linear(states.to(dtype).float(), weight.to(dtype).float(), added).to(dtype)


PRECISIONS = ("fp32", "tf32", "bf16")
LARGEST_FP32_ERROR = 2e-6  # relative to the exact product; fp32 sums of 384 terms gave 4e-7, a product rounded to bfloat16 2e-3


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """Compute in bfloat16 where that is safe (bf16) or everywhere in float32 (fp32, tf32); weights stay float32 in all three.

    The process decides how float32 products are computed: see `apply_matmul_precision`.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is not one of {', '.join(PRECISIONS)}")
    return _entered(torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"), linears(precision, device))


@contextmanager
def _entered(*contexts: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def linears(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of linear layers: float32 products if bf16 is requested on a processor without instructions for it."""
    return Float32Linears() if precision == "bf16" and device.type == "cpu" and not has_bfloat16() else nullcontext()


def product_error(matmul: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.matmul) -> float:
    """Measure the relative error of float32 matrix products, forward and transposed shapes, against float64."""
    generator = torch.Generator().manual_seed(0)
    errors = []
    for rows, inner, columns in ((512, 384, 1536), (512, 1536, 384), (384, 512, 384)):
        left = torch.randn(rows, inner, generator=generator)
        right = torch.randn(columns, inner, generator=generator).T
        exact = left.double() @ right.double()
        errors.append(float((matmul(left, right).double() - exact).norm() / exact.norm()))
    return max(errors)


def choose_matmul_precision(medium_error: float) -> str:
    """Choose between torch's "medium" and "highest" float32 products by the error measured under "medium".

    "medium" *allows* rounding to bfloat16. On a CPU without bfloat16 matrix units it does not round and takes the faster oneDNN path (2.2
    times the speed on AMD Zen 5); with such units (AMX) it rounds, and float32 would no longer mean float32.
    """
    return "medium" if medium_error <= LARGEST_FP32_ERROR else "highest"


def apply_matmul_precision(device: torch.device, precision: str) -> str:
    """Set this process's float32 products, forward and backward, to `precision` on `device`; return torch's name of the setting.

    On a CPU the faster exact setting is measured and chosen. On a GPU fp32 is "highest", unmeasured: the setting that is
    fast on a CPU would enable TensorFloat-32 there, which rounds, and is what tf32 asks for.
    ResourceError for tf32 on a device without it, and bf16 on a GPU without it, where it would be slower than fp32.
    """
    if precision == "bf16" and device.type == "cuda" and (old := old_gpu(device)):
        raise ResourceError(
            where="precision=bf16",
            found=f"{old}, which has no bfloat16 products",
            expected="an NVIDIA GPU that has them (Ampere or later)",
            remedy="Use fp32, which is the same everywhere.",
        )
    if precision == "tf32" and not _has_tf32(device):
        raise ResourceError(
            where="precision=tf32",
            found=torch.cuda.get_device_name(device) if device.type == "cuda" else f"a computation on the {device.type.upper()}",
            expected="an NVIDIA GPU with TensorFloat-32 (Ampere or later)",
            remedy="Use fp32, which is the same everywhere, or bf16.",
        )
    on_gpu = "high" if precision == "tf32" else "highest"
    chosen = choose_matmul_precision(_medium_error()) if device.type == "cpu" else on_gpu
    torch.set_float32_matmul_precision(chosen)
    return chosen


@contextmanager
def float32_products() -> Iterator[None]:
    """Inside, float32 products have torch's default precision, independent of earlier stages."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def _medium_error() -> float:
    """The error of "medium" products on this processor, measured once per process in a tenth of a second."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        return product_error()
    finally:
        torch.set_float32_matmul_precision(before)


def old_gpu(device: torch.device) -> str | None:
    """Return the name of an NVIDIA GPU without TensorFloat-32 and bfloat16 products; None for newer ones."""
    is_old = torch.version.hip is None and torch.cuda.get_device_capability(device) < AMPERE
    return torch.cuda.get_device_name(device) if is_old else None


def _has_tf32(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None and old_gpu(device) is None


def flush_subnormals() -> None:
    """Flush subnormal numbers to 0 in this thread, and in torch's threads that compute for it and have not started yet."""
    torch.set_flush_denormal(True)


@contextmanager
def subnormals_flushed() -> Iterator[None]:
    """Inside, like `flush_subnormals`; restores this thread's setting afterwards."""
    did_flush = bool(torch.tensor(1e-42) * 1.0 == 0.0)
    flush_subnormals()
    try:
        yield
    finally:
        torch.set_flush_denormal(did_flush)
