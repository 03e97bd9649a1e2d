"""Two ranks on two GPUs give what one gives, by every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.learning.gather import GPU_BACKEND
from sentdist.run import sharing
from tests.gpu.engines import by_deepspeed, by_torch, by_torch_with_rows
from tests.parity.processes import run_in_processes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")]
NEAR = {"fp32": 1e-3, "bf16": 2e-2}


@pytest.mark.parametrize("precision", NEAR)
def test_two_ranks_learn_what_one_learns(precision: str, folder: Path) -> None:
    (alone, _), *_ = run_in_processes(by_torch, 1, str(folder), precision, backend=GPU_BACKEND, device="cuda")
    for several in (by_torch, by_torch_with_rows):
        first, second = run_in_processes(several, 2, str(folder), precision, backend=GPU_BACKEND, device="cuda")
        assert first[0] == second[0]
        assert first[0] == pytest.approx(alone, rel=NEAR[precision])


@pytest.mark.parametrize("precision", NEAR)
def test_two_ranks_of_deepspeed_learn_what_one_learns(precision: str, folder: Path) -> None:
    pytest.importorskip("deepspeed")
    (alone, _), *_ = run_in_processes(by_torch, 1, str(folder), precision, backend=GPU_BACKEND, device="cuda")
    both = run_in_processes(by_deepspeed, 2, str(folder), precision, backend=GPU_BACKEND, device="cuda")
    for first, second in zip(*both, strict=True):
        assert first[0] == second[0]
        assert first[0] == pytest.approx(alone, rel=NEAR[precision])


def test_many_sentences_are_encoded_on_all_gpus(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    (tmp_path / "lines.txt").write_text("\n".join("a man sings in the house today"[: 5 + number % 25] for number in range(4_000)))
    for many in (4_001, 4_000):
        monkeypatch.setattr(sharing, "MANY_SENTENCES", many)
        done = CliRunner().invoke(app, ["encode", str(folder), str(tmp_path / "lines.txt"), "--out", str(tmp_path / f"{many}.npy")])
        assert done.exit_code == 0, done.output
    assert f"over {torch.cuda.device_count()} workers, on {torch.cuda.device_count()} GPU(s)" in done.output
    alone, shared = (np.load(tmp_path / f"{many}.npy") for many in (4_001, 4_000))
    np.testing.assert_allclose(shared, alone, atol=1e-5)
