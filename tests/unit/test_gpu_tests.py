"""What the tests on a GPU rest on, as far as it can be seen without one."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.gpu import conftest
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


@pytest.mark.parametrize(("capability", "skipped"), [((7, 5), ["bf16", "bfloat16"]), ((8, 0), [])])
def test_what_a_gpu_is_too_old_for_is_skipped_there(
    capability: tuple[int, int], skipped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    marked: list[str] = []

    def item(name: str, **more: Any) -> Any:
        return SimpleNamespace(path=conftest.HERE / "test_step.py", add_marker=lambda marker: marked.append(name), **more)

    values = {"fp32": "fp32", "bf16": "bf16", "bfloat16": torch.bfloat16, "float32": torch.float32}
    given = [item(name, callspec=SimpleNamespace(params={"precision": value})) for name, value in values.items()]
    conftest.pytest_collection_modifyitems([*given, item("without parameters")])
    assert marked == skipped
