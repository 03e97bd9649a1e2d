"""A whole training whose bank lies on its GPU is the one whose bank lies on the host, here on a GPU that is only pretended."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sentdist.learning.bank import BankReader
from sentdist.learning.device_bank import DeviceBank, bank_stays
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.learning.prefetch import SentBatch
from sentdist.plan.stages import Train
from sentdist.stages.banks import placed
from sentdist.stages.local import build_all
from sentdist.stages.rungs import file_bank
from sentdist.stages.train import TrainSession
from tests.support.pretend_gpu import pretended_gpu
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")]


class Streamless:
    """Sends batches as `Sender` does, where there are no streams."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def send(self, batch: Batch) -> SentBatch:
        return SentBatch(batch=batch.pinned())

    def receive(self, sent: SentBatch) -> Batch:
        return sent.batch.to(self._device)


@pytest.mark.usefixtures("one_thread", "plain_layers")
def test_a_training_is_the_same_wherever_its_bank_lies(tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss by loss to the last bit; the second session of the process finds the bank where the first had it copied."""
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "device": "cpu"})
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    stage = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    build_all(plan.stages, context)
    stage = stage.model_copy(update={"selection": None})
    there = replace(context, runtime=context.runtime.with_gpus(1.0))
    seen: list[Any] = []

    def losses(bank: BankReader | None, device: torch.device) -> list[float]:
        session = TrainSession(stage, there, make_engine=partial(TorchEngine, device=device), bank=bank)
        return [event.loss for event in session.events() if isinstance(event, StepReport)]

    with pretended_gpu() as gpu, bank_stays():
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**33))
        monkeypatch.setattr("sentdist.stages.train.Sender", Streamless)
        on_host = losses(file_bank(stage, context), gpu)
        for _ in range(2):
            seen.append(placed(file_bank(stage, context), stage, there, gpu))
            assert losses(seen[-1], gpu) == on_host
    assert isinstance(seen[0], DeviceBank) and seen[0] is seen[1]
    assert len(on_host) > 3
