"""Products of bfloat16 values on a processor, with instructions for them or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sentdist.learning.encoder.private_torch import has_bfloat16


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right; bfloat16 values are multiplied and summed in float32 and rounded once, by instructions for it or without them."""
    if left.dtype != torch.bfloat16 or left.device.type != "cpu" or has_bfloat16():
        return left @ right
    return (left.float() @ right.float()).bfloat16()


def rows_multiple(num_rows: int, device: torch.device) -> int:
    """The multiple to which the rows of products under autocast are filled up, so that a training meets few sizes: 1 where all are welcome.

    oneDNN compiles a product of bfloat16 values for each shape that it meets, in 5 to 9 ms: 95 of the 560 ms of a step of MiniLM whose
    sizes were all new (2 cores Intel Xeon with AMX). These are at most 16 sizes between a power of two and the next, for 2 % more rows.
    """
    rounds = device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return max(1, 2 ** (num_rows.bit_length() - 5)) if rounds and has_bfloat16() else 1


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


def recomputed_within() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """What torch's checkpoints enter beside a layer's forward pass, and when they compute it again: autocast comes back by itself then, a
    mode for functions does not."""
    rounds = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return nullcontext(), Float32Linears() if rounds and not has_bfloat16() else nullcontext()


def _linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        added = None if bias is None else bias.to(dtype).float()
        return torch.nn.functional.linear(states.to(dtype).float(), weight.to(dtype).float(), added).to(dtype)
