"""A layer as one operation gives what transformers' own gives, value and gradient; and where no kernels support it, that computes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder import fused_layer
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.kernels import cpp_kernels
from tests.support.layers import distance, loss_and_gradients, slope_beside_gradient
from tests.support.tiny_encoders import SENTENCES, tiny_encoder, with_vectors

pytestmark = pytest.mark.parity

FUSED = ("bert", "mpnet")
ATTENTION_ONLY = ("nomic_bert",)


class Asked:
    """How often the kernels of a layer and of attention were called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = dict.fromkeys(("attention", "add_norm", "gelu"), 0)
        for name in self.counts:
            monkeypatch.setattr(cpp_kernels, name, self._counted(name, getattr(cpp_kernels, name)))

    def _counted(self, name: str, call: object) -> object:
        def counted(*given: object, **named: object) -> object:
            self.counts[name] += 1
            return call(*given, **named)  # type: ignore[operator]

        return counted


def without_kernels(monkeypatch: pytest.MonkeyPatch, encoder: SentenceEncoder) -> tuple[Tensor, dict[str, Tensor]]:
    with monkeypatch.context() as patch:
        patch.setattr(cpp_kernels, "why_unavailable", lambda: "not now")
        return loss_and_gradients(copy.deepcopy(encoder).double())


@pytest.mark.parametrize("family", [*FUSED, *ATTENTION_ONLY])
@pytest.mark.parametrize(("bf16", "bound"), [(False, 2e-6), (True, 2e-2)])
def test_loss_and_gradient(family: str, bf16: bool, bound: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_encoder(tmp_path, family, layer_norm_eps=0.1)
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    with_vectors(encoder)
    expected_loss, expected = without_kernels(monkeypatch, encoder)
    asked = Asked(monkeypatch)
    loss, gradients = loss_and_gradients(encoder, "bf16" if bf16 else "fp32")
    layers = encoder.model.config.num_hidden_layers
    assert asked.counts == {"attention": layers, **dict.fromkeys(("add_norm", "gelu"), 0)} | (
        {"add_norm": 2 * layers, "gelu": layers} if family in FUSED else {}
    )
    assert loss == pytest.approx(float(expected_loss), rel=bound)
    assert distance(gradients, expected) < bound


@pytest.mark.parametrize(("family", "name"), [("bert", "attention.self.query"), ("bert", "output.dense"), ("mpnet", "attention.attn.k")])
def test_gradient_under_dropout_is_that_of_the_drawn_function(family: str, name: str, tmp_path: Path) -> None:
    """With the generator reset, the dropped network is one fixed function: central differences give its gradient, behind each mask."""
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, family), hidden_dropout=0.3, attention_dropout=0.3)
    slope, gradient = slope_beside_gradient(encoder, name, sentences=SENTENCES * 3)
    assert gradient == pytest.approx(slope, rel=0.03)  # of float32


def test_sharded_weights_and_other_types_are_not_supported(tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "bert"))
    layer = encoder.model.encoder.layer[0]
    whole = fused_layer._PARTS["BERT"].parameters(layer)
    assert cpp_kernels.supports_layer(torch.zeros(1, 4, 32), *whole, product_dtype=torch.bfloat16)
    shard = torch.empty(0)  # that is not gathered
    assert not cpp_kernels.supports_layer(torch.zeros(1, 4, 32), *whole, shard, product_dtype=torch.float32)
    assert not cpp_kernels.supports_layer(torch.zeros(1, 4, 32, dtype=torch.float64), *whole, product_dtype=torch.float32)
    assert not cpp_kernels.supports_layer(torch.zeros(1, 4, 32), *whole, product_dtype=torch.float16)


def test_a_frozen_layer_gets_no_gradient(tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "bert"))
    encoder.model.encoder.layer[0].requires_grad_(False)
    _, gradients = loss_and_gradients(encoder)
    assert not any(".layer.0." in name for name in gradients) and any(".layer.1." in name for name in gradients)
