"""What the launch of a Triton kernel depends on beside its arguments: the current GPU, and how float32 is multiplied."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def device_guard(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton starts kernels on the current GPU: makes that of a tensor the current one."""
    is_current = not tensor.is_cuda or tensor.device.index == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(tensor.device)


def float32_precision() -> str:
    """How Triton multiplies float32: in TensorFloat-32, or in three such products, which keep the digits of float32."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
