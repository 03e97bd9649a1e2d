"""A layer as one operation gives what transformers' own gives, value and gradient; one that is computed again in the backward pass gives
the same numbers, dropout and all, in a part of the memory."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, MODEL_MAPPING

from sentdist.errors import EncoderError
from sentdist.families import FAMILIES, FLAT_FAMILIES, OTHER
from sentdist.kernels import cpp_kernels, fused_layer, tensors
from sentdist.learning import precision
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.precision import autocast
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


def _gradients(folder: Path, *, recompute: bool, micro_batch: int | None = None) -> tuple[Tensor, list[Tensor], float, int]:
    """Embeddings, gradients, what is drawn next, and the bytes that are kept for the backward pass."""
    encoder = SentenceEncoder.load(
        folder,
        hidden_dropout=None if folder.name == "qwen3" else 0.3,
        attention_dropout=0.3,
        drophead=0.2 if folder.name in FLAT_FAMILIES else 0.0,
    ).train()
    if recompute:
        encoder.recompute_layers()
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(5)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        embeddings = encode_in_micro_batches(encoder, encoder.tokenize(SENTENCES * 6), micro_batch=micro_batch)
        weights = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
        num_bytes = sum(size for place, size in kept.items() if place not in weights)
    embeddings.square().mul(torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
    found = [parameter.grad for parameter in encoder.parameters() if parameter.grad is not None]
    return embeddings.detach(), found, float(torch.rand(())), num_bytes


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("family", "micro_batch"), [("bert", None), ("qwen3", 5), ("t5", None), ("megatron-bert", None)])
def test_value_gradient_and_random_numbers_are_the_same(family: str, micro_batch: int | None, tmp_path: Path) -> None:
    """Flat, flat in micro-batches, and padded; rotary positions, a decoder: to the last bit."""
    folder = tiny_encoder(tmp_path / family, family, num_hidden_layers=6)
    whole, again = (_gradients(folder, recompute=recompute, micro_batch=micro_batch) for recompute in (False, True))
    assert torch.equal(whole[0], again[0]) and whole[2] == again[2]
    assert len(whole[1]) == len(again[1]) and all(torch.equal(one, other) for one, other in zip(whole[1], again[1], strict=True))
    if micro_batch is None:
        assert again[3] < whole[3] / 3, "six layers' insides against what goes into them"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("family", "has_instructions"), [("bert", True), ("bert", False), ("t5", False)])
def test_bf16_is_computed_again_as_it_was(family: str, has_instructions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor without instructions for bfloat16 linear layers are computed in float32, the second time, too."""
    for module in (tensors, precision):
        monkeypatch.setattr(module, "has_bfloat16", lambda: has_instructions)
    folder = tiny_encoder(tmp_path / family, family)
    with autocast("bf16", torch.device("cpu")):
        whole, again = (_gradients(folder, recompute=recompute) for recompute in (False, True))
    assert torch.equal(whole[0], again[0])
    assert all(torch.equal(one, other) for one, other in zip(whole[1], again[1], strict=True))


def test_a_model_that_cannot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="AlbertModel"):
        SentenceEncoder.load(tiny_encoder(tmp_path, "albert")).recompute_layers()


def test_planning_knows_which_families_cannot(tmp_path: Path) -> None:
    """Those that run flat may have code of their own."""
    padded = {
        name: MODEL_MAPPING[CONFIG_MAPPING[name]] for name, one in FAMILIES.items() if one.refused is None and name not in FLAT_FAMILIES
    }
    flat = {name: type(SentenceEncoder.load(tiny_encoder(tmp_path / name, name)).model) for name in ("albert", "bert", "mpnet", "qwen3")}
    for family, model in (padded | flat).items():
        assert isinstance(model, type) and model.supports_gradient_checkpointing == FAMILIES.get(family, OTHER).may_recompute_layers, family
