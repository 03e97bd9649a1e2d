"""Where a training reads its bank: on its GPU, where that has room, or where it is."""

from __future__ import annotations

import torch

from sentdist.learning.bank import BankReader, StoredBank
from sentdist.learning.device_bank import let_bank_go, on_device
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.planning.worker_memory import bank_lies_on_gpu, size_of


def placed(bank: StoredBank | None, stage: Train, context: Context, device: torch.device) -> BankReader | None:
    """The bank of a training that computes on `device`: the one that was given, or a copy on the GPU, with the same numbers.

    A copy of another bank that an earlier training left on the GPU is removed. Ranks need not decide alike.
    """
    if bank is not None and device.type == "cuda":
        size, memory = size_of(stage.encoder, context), torch.cuda.get_device_properties(device).total_memory
        if bank_lies_on_gpu(stage, size, context.runtime, bank_bytes=bank.num_bytes, gpu_memory=memory):
            return on_device(bank, device)
    let_bank_go()
    return bank
