"""Products of bfloat16 values on a processor that has no instructions for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@cache
def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 values (AVX-512, AMX, ARM's bf16).

    Where it does not, torch's own products of them take 49 times as long as those of float32 (2 cores AMD EPYC, Zen 3; 4096 × 384 × 1536).
    """
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return False


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right; bfloat16 values are multiplied and summed in float32 and rounded once, by instructions for it or without them."""
    if left.dtype != torch.bfloat16 or left.device.type != "cpu" or has_bfloat16():
        return left @ right
    return (left.float() @ right.float()).bfloat16()


class Float32Linears(TorchFunctionMode):
    """While it is entered, linear layers under autocast compute by `product`."""

    def __torch_function__(
        self, func: Callable[..., object], types: Sequence[type], args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if func is torch.nn.functional.linear and torch.is_autocast_enabled("cpu"):
            return _linear(*args, **(kwargs or {}))  # type: ignore[arg-type]
        return func(*args, **(kwargs or {}))


def _linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        out = product(states.to(dtype), weight.to(dtype).t())
        return out if bias is None else out + bias.to(dtype)
