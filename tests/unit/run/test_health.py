"""What `sentdist doctor` says of GPUs (what the driver sees, and whether torch can use it) and of servers, and whom it shows secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from sentdist.run import health
from tests.support.listening import listening

TWO = "NVIDIA T1, 81559 MiB, 570.1\nNVIDIA T1, 81559 MiB, 570.1"
FAILED = "NVIDIA-SMI has failed because it couldn't communicate"


def test_gpus_are_reported_with_driver_and_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert (health.gpus().state, "none, or no driver" in health.gpus().text) == ("note", True)
    for answer, exit_code, of_torch, state, said in (
        (TWO, 0, ("good", "FlashAttention for bf16"), "good", "2 × NVIDIA T1, 81559 MiB, 570.1; FlashAttention"),
        (TWO, 0, ("bad", "torch cannot use them"), "bad", "torch cannot use them"),
        (FAILED, 9, ("good", ""), "bad", "nvidia-smi finds none (NVIDIA-SMI has failed"),
    ):
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "{answer}"\nexit {exit_code}\n')
        program.chmod(0o755)
        monkeypatch.setattr(health, "_torch_on_gpus", lambda of_torch=of_torch: of_torch)
        reported = health.gpus()
        assert (reported.subject, reported.state) == ("GPUs", state) and said in reported.text, reported.text


def test_doctor_runs_no_module_of_the_folder_that_it_is_called_in_and_leaves_no_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sentdist").mkdir()
    (tmp_path / "sentdist" / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(health.__file__).parents[2]))
    found = health._torch_on_gpus()
    assert torch.cuda.is_available() or torch.__version__ in found[1]
    assert health._store(str(tmp_path / "none" / "store")).state == "good"
    assert [path.name for path in tmp_path.iterdir()] == ["sentdist"]


def test_servers_that_are_named_are_asked_with_their_secrets_and_others_are_shown_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """At Ray's and MLflow's usual ports may be somebody else's."""
    for name, value in {"RAY_AUTH_TOKEN": "t" * 64, "MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "pass"}.items():
        monkeypatch.setenv(name, value)
    with listening(text='{"ray_version": "2.60.0"}') as ours:
        assert health.dashboard(ours.url).text == f"2.60.0 answers at {ours.url}"
        assert ours.shown == [("/api/version", f"Bearer {'t' * 64}")]
    with listening(text="3.17.2\n") as ours:
        assert health.mlflow(ours.url).text == f"3.17.2 answers at {ours.url}"
        assert ours.shown == [("/version", "Basic bWU6cGFzcw==")]
    for status in (403, 200):
        with listening(status=status, text="[]") as other:
            both = (health.dashboard(other.url), health.mlflow(other.url))
            assert all(f"HTTP {status}" in one.text and one.state == "bad" for one in both)
    for nowhere in ("http://[", "http://127.0.0.1:port"):
        assert f"nothing answers at {nowhere}" in health.mlflow(nowhere).text
    with listening(status=401) as theirs:
        monkeypatch.setattr(health, "DASHBOARD", theirs.url)
        monkeypatch.setattr(health, "TRACKING", theirs.url)
        for found, variable in ((health.dashboard(None), "RAY_API_SERVER_ADDRESS"), (health.mlflow(None), "MLFLOW_TRACKING_URI")):
            assert found.state == "note" and f"{variable}={theirs.url}" in found.text
        assert [shown for _, shown in theirs.shown] == [None, None]
