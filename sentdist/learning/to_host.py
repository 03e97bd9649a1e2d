"""What a GPU has computed, on its way to the host while the GPU goes on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def begin_to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor to the host, once it is computed; the call gives the copy.

    The call waits for the end of the copy and for nothing that the GPU was given since; to read a number of the tensor itself would wait
    for all of it.
    """
    if tensor.device.type != "cuda":
        return tensor.cpu
    with torch.cuda.device(tensor.device):  # a thread's own device is the first GPU, and pinning would make a context there
        there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    there.copy_(tensor, non_blocking=True)
    arrival = torch.cuda.Event()
    arrival.record(torch.cuda.current_stream(tensor.device))

    def arrived() -> Tensor:
        arrival.synchronize()
        return there

    return arrived
