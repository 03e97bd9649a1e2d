"""What DeepSpeed is given as its engine is made; DeepSpeed itself is stood in for."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from sentdist.execution.training import deepspeed_engine
from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning import engine, gradient_buckets
from sentdist.learning.optimization import Optimization


class Anywhere(nn.Linear):
    """Lies on whatever device it is sent to."""

    def to(self, *_: Any, **__: Any) -> Anywhere:
        return self


@pytest.mark.parametrize(("device", "named"), [("cuda:2", "2"), ("cpu", "1")])
def test_it_computes_on_the_gpu_that_the_worker_was_given(device: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker of a host, where each has two GPUs: Ray Train gives it number 2 of the four that it sees."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    reported: list[str] = []

    def initialize(*, model: nn.Module, **_: Any) -> tuple[Any, ...]:
        reported.append(os.environ["LOCAL_RANK"])  # which names the GPU: deepspeed/runtime/engine.py, _set_distributed_vars
        return SimpleNamespace(module=model, destroy=lambda: None), None, None, None

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    for module in (deepspeed_engine, engine, gradient_buckets):
        monkeypatch.setattr(module, "rank_and_world_size", lambda: (1, 2))
    monkeypatch.setattr(deepspeed_engine, "_import_deepspeed", lambda device: SimpleNamespace(initialize=initialize))
    DeepSpeedEngine(Anywhere(2, 2), Optimization(num_steps=1), device=torch.device(device))
    assert reported == [named]
