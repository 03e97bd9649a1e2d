"""What tests on a GPU share; without one they skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.support.mask_tokens import maskable_encoder

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason="no GPU that torch can use"))


@pytest.fixture(autouse=True)
def exact() -> None:
    """float32 is float32, and sums have one order where CUDA can promise it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with dropout 0.1 and a mask token."""
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))
