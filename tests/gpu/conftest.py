"""What tests on a GPU share; without one they skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from sentdist.learning.precision import old_gpu
from tests.support.mask_tokens import maskable_encoder

HERE = Path(__file__).parent
FROM_AMPERE_ON = ("tf32", "bf16", torch.bfloat16)  # values of a test's parameters


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(HERE)]
    if here and not torch.cuda.is_available():
        for item in here:
            item.add_marker(pytest.mark.skip(reason="no GPU that torch can use"))
    elif here and (old := old_gpu(torch.device("cuda"))):
        for item in here:
            values = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if any(value in FROM_AMPERE_ON for value in values):
                item.add_marker(pytest.mark.skip(reason=f"{old} is older than Ampere"))


@pytest.fixture(autouse=True)
def exact() -> None:
    """float32 is float32, and sums have one order where CUDA can promise it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with dropout 0.1 and a mask token; its heads are 16 wide, which our own kernels for attention take."""
    return maskable_encoder(tmp_path_factory.mktemp("maskable"), num_attention_heads=2)
