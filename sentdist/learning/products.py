"""Products of bfloat16 values on a processor that has no instructions for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sentdist.learning.encoder.private_torch import has_bfloat16


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right; bfloat16 values are multiplied and summed in float32 and rounded once, by instructions for it or without them."""
    if left.dtype != torch.bfloat16 or left.device.type != "cpu" or has_bfloat16():
        return left @ right
    return (left.float() @ right.float()).bfloat16()


class Float32Linears(TorchFunctionMode):
    """While it is entered, linear layers under autocast are computed in float32 from rounded values, and rounded once.

    Those of DeepSpeed's ZeRO stage 3 are its own, and stay torch's.
    """

    def __torch_function__(
        self, func: Callable[..., object], types: Sequence[type], args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if func is torch.nn.functional.linear and torch.is_autocast_enabled("cpu"):
            return _linear(*args, **(kwargs or {}))  # type: ignore[arg-type]
        return func(*args, **(kwargs or {}))


def _linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        added = None if bias is None else bias.to(dtype).float()
        return torch.nn.functional.linear(states.to(dtype).float(), weight.to(dtype).float(), added).to(dtype)
