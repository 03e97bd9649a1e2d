"""What `sentdist doctor` says of GPUs (what the driver sees, and whether torch can use it) and of servers, and whom it shows secrets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from sentdist.execution import health
from sentdist.execution.health import TorchOnGpus
from tests.support.listening import listening

TWO = "NVIDIA T1, 81559 MiB, 570.1\nNVIDIA T1, 81559 MiB, 570.1"


@pytest.mark.parametrize(
    ("answer", "exit_code", "why", "state", "said"),
    [
        (None, 0, "", "note", "none, or no driver"),
        (TWO, 0, "", "good", "2 × NVIDIA T1 of 81559 MiB; driver 570.1; NCCL 2.27.5"),
        (
            TWO,
            0,
            "torch 2.13.0, built for CUDA 13.0",
            "bad",
            "driver 570.1; torch cannot use them (torch 2.13.0, built for CUDA 13.0). Install",
        ),
        ("NVIDIA-SMI has failed because it couldn't communicate", 9, "", "bad", "nvidia-smi finds none (NVIDIA-SMI has failed"),
    ],
)
def test_gpus_are_reported_with_driver_and_nccl(
    answer: str | None, exit_code: int, why: str, state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "{answer}"\nexit {exit_code}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setattr(health, "_version", {"nvidia-nccl-cu13": "2.27.5"}.get)
    monkeypatch.setattr(health, "_torch_on_gpus", lambda: TorchOnGpus(why_unusable=why, has_flash_attention=True))
    found = health.gpus()
    assert (found.subject, found.state) == ("GPUs", state)
    assert said in found.text, found.text


def test_what_makes_gpus_slower_than_they_could_be_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(f'#!/bin/sh\necho "{TWO}"\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    for slower, reported in (("RuntimeError: Failed to find C compiler", True), ("", False)):
        monkeypatch.setattr(health, "_torch_on_gpus", lambda slower=slower: TorchOnGpus(why_slow=slower, has_flash_attention=True))
        said = f"; slower than it could be: no kernels for short sentences ({slower})"
        assert health.gpus().state == "good" and health.gpus().text.endswith(said) is reported


def test_flash_attention_is_reported_and_what_keeps_the_load_of_gpus_from_mlflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(f'#!/bin/sh\necho "{TWO}"\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    for installed, has_flash in (({}, True), ({"nvidia-ml-py": "13.1"}, False)):
        monkeypatch.setattr(health, "_torch_on_gpus", lambda has_flash=has_flash: TorchOnGpus(has_flash_attention=has_flash))
        monkeypatch.setattr(health, "_version", installed.get)
        assert ("pip install nvidia-ml-py" in health.gpus().text) is not bool(installed)
        assert ("; no FlashAttention for bf16" in health.gpus().text) is not has_flash and "FlashAttention for bf16" in health.gpus().text


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can use a GPU here")
def test_torch_itself_is_asked_whether_it_can_use_what_the_driver_sees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "{TWO}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    found = health.gpus()
    assert found.state == "bad" and f"torch cannot use them (torch {torch.__version__}, built " in found.text, found.text


def test_doctor_leaves_no_store_where_there_was_none(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for root in (tmp_path / "none" / "store", tmp_path / "there"):
        assert health._store(str(root)).state == "good"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_doctor_runs_no_module_of_the_folder_that_it_is_called_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sentdist").mkdir()
    (tmp_path / "sentdist" / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(health.__file__).parents[2]))
    health._torch_on_gpus()
    assert not (tmp_path / "ran").exists()


def test_servers_that_nobody_named_are_shown_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """At Ray's and MLflow's usual ports may be somebody else's."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t" * 64)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "p" * 16)
    with listening(status=401) as theirs:
        monkeypatch.setattr(health, "DASHBOARD", theirs.url)
        monkeypatch.setattr(health, "TRACKING", theirs.url)
        for found, variable in ((health.dashboard(None), "RAY_API_SERVER_ADDRESS"), (health.mlflow(None), "MLFLOW_TRACKING_URI")):
            assert found.state == "note" and f"if it is yours, name it: {variable}={theirs.url}" in found.text
        assert [shown for _, shown in theirs.shown] == [None, None]


def test_servers_that_are_named_are_asked_with_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t" * 64)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass")
    with listening(text='{"ray_version": "2.60.0"}') as ours:
        assert health.dashboard(ours.url).text == f"2.60.0 answers at {ours.url}"
        assert ours.shown == [("/api/version", f"Bearer {'t' * 64}")]
    with listening(text="3.17.2\n") as ours:
        assert health.mlflow(ours.url).text == f"3.17.2 answers at {ours.url}"
        assert ours.shown == [("/version", "Basic bWU6cGFzcw==")]
    for status, said in ((403, "refuses the"), (200, "is used by something that is not")):
        with listening(status=status, text="[]") as other:
            assert all(said in found.text and found.state == "bad" for found in (health.dashboard(other.url), health.mlflow(other.url)))
    for nowhere in ("http://[", "http://127.0.0.1:port"):
        assert f"nothing listens at {nowhere}" in health.mlflow(nowhere).text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "MLFLOW_TRACKING_SERVER_CERT_PATH"])
def test_a_server_with_a_certificate_of_an_authority_of_ones_own_answers(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for MLflow's and Ray's clients; it was taken for another program."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "own.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=own",
    ]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", made, "-out", tmp_path / "ca.crt"], check=True)
    with made.open("a") as chain:
        chain.write((tmp_path / "ca.crt").read_text())
    with listening(text="3.17.2", certificate=made) as server:
        assert health.mlflow(server.url).state == "bad", "whose authority nobody knows"
        monkeypatch.setenv(variable, str(tmp_path / "ca.crt"))
        assert health.mlflow(server.url).text == f"3.17.2 answers at {server.url}"
