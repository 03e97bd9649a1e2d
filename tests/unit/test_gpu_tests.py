"""What the tests on a GPU rest on, as far as it can be seen without one."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.gpu.waiting import refusing


def test_what_torch_says_of_its_sync_debug_mode_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors: the first test failed, and all that followed ran in a mode that was never taken back."""
    modes: list[str] = []

    def set_mode(mode: str) -> None:
        modes.append(mode)
        warnings.warn(
            "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations", stacklevel=2
        )

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    with refusing():
        assert modes == ["error"]
    assert modes == ["error", "default"]
