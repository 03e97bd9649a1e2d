"""Layers as one operation on a GPU: what torch gives in float64 on a CPU, value and gradient; masks that both passes draw alike."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from sentdist.kernels import cpp_kernels, fused_layer, tensors
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.layers import distance, loss_and_gradients, off, slope_beside_gradient
from tests.support.tiny_encoders import SENTENCES, tiny_encoder, with_vectors

pytestmark = pytest.mark.gpu
triton_kernels = pytest.importorskip("sentdist.kernels.triton_kernels", reason="Triton is not installed", exc_type=ImportError)
beside = pytest.importorskip("tests.support.gpu_layers", exc_type=ImportError)
GPU = torch.device("cuda", 0)
HEADS = {"num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 48, "layer_norm_eps": 0.1}
DIGITS = ((torch.float32, 1e-6), (torch.bfloat16, 5e-3), (torch.float16, 1e-3))


@pytest.fixture(autouse=True, scope="module")
def tried() -> None:
    """Kernels are tried once before they compute, which must not be counted."""
    assert triton_kernels.why_unavailable(GPU) is None


@pytest.fixture(autouse=True)
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rows a program, and each tile by itself."""
    monkeypatch.setattr(triton_kernels, "SUM_PROGRAMS", 4)
    monkeypatch.setattr(tensors, "FEWEST_PROGRAMS", 1)


@pytest.mark.parametrize("width", [48, 384, 768, 1024, 3072])
@pytest.mark.parametrize(("dtype", "bound"), DIGITS)
def test_rows(dtype: torch.dtype, bound: float, width: int) -> None:
    cases = [
        *(beside.norm_beside_torch(GPU, dtype, width, whole=whole) for whole in (False, True)),
        beside.gelu_beside_torch(GPU, dtype, width),
    ]
    for case in cases:
        assert case["off"] < bound and case["gradients"] < bound, case
    assert cases[1]["dropped"] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 2e-6), ("bf16", 2e-2)])
def test_a_layer_gives_what_torch_gives(precision: str, bound: float, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, family, **HEADS), hidden_dropout=0.0, attention_dropout=0.0)
    with_vectors(encoder)
    with monkeypatch.context() as patch:
        patch.setattr(cpp_kernels, "why_unavailable", lambda: "not now")
        expected_loss, expected = loss_and_gradients(copy.deepcopy(encoder).double())
    counted = []
    monkeypatch.setattr(triton_kernels, "gelu", lambda *given, call=triton_kernels.gelu: counted.append(1) or call(*given))
    loss, gradients = loss_and_gradients(encoder.to(GPU), precision)
    assert len(counted) == 2, "two layers"
    assert off(loss, expected_loss) < bound and distance(gradients, expected) < bound
    encoder.recompute_layers()
    assert distance(loss_and_gradients(encoder, precision)[1], gradients) < bound


@pytest.mark.parametrize("name", ["attention.self.value", "attention.output.dense", "output.dense"])
def test_gradient_under_dropout_is_that_of_the_drawn_function(name: str, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, "bert", **HEADS)
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.3, attention_dropout=0.3, drophead=0.3).to(GPU)
    with_vectors(encoder)
    slope, gradient = slope_beside_gradient(encoder, name)
    assert gradient == pytest.approx(slope, rel=0.03)


def test_a_sentence_beyond_the_largest_tile_is_computed_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "bert", **HEADS)).to(GPU)
    for module in ("flat_attention", "fused_layer"):
        monkeypatch.setattr(f"sentdist.kernels.{module}.longest_supported", lambda *_: 8)
    monkeypatch.setattr(fused_layer, "_infer", None)
    with torch.no_grad():
        assert torch.isfinite(encoder(encoder.tokenize(SENTENCES))).all()


def test_encoding_by_kernels_gives_the_same_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "bert", **HEADS)).eval()
    with_vectors(encoder)
    with torch.no_grad():
        expected = copy.deepcopy(encoder).double()(encoder.tokenize(SENTENCES))
        counted = []
        monkeypatch.setattr(
            triton_kernels, "add_norm", lambda *given, call=triton_kernels.add_norm, **named: counted.append(1) or call(*given, **named)
        )
        found = encoder.to(GPU)(encoder.tokenize(SENTENCES))
    assert len(counted) == 4 and off(found, expected) < 2e-6
