"""Two ranks on two GPUs give what one gives, by every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.gpu.engines import BACKEND, KINDS, train_on_gpus
from tests.parity.processes import run_in_processes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_ranks_learn_what_one_learns(precision: str, folder: Path) -> None:
    alone = run_in_processes(train_on_gpus, 1, str(folder), precision, backend=BACKEND, device="cuda")[0]["torch"][0]
    both = run_in_processes(train_on_gpus, 2, str(folder), precision, backend=BACKEND, device="cuda")
    for kind in KINDS:
        losses = both[0][kind][0]
        assert losses == both[1][kind][0], kind
        assert losses == pytest.approx(alone, rel=2e-2 if precision == "bf16" else 1e-3), kind
