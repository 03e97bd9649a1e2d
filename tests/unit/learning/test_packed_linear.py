"""Packed linear layers: the same embeddings, gone afterwards, and not where they would be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sentdist.learning.encoder import encode as packed_linear
from sentdist.learning.encoder.encode import encode, packed_linears
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

LATER = ("data2vec-text", "ernie", "eurobert", "gte", "jina_embeddings_v3", "nomic_bert", "phi3", "roberta-prelayernorm", "xlm-roberta-xl")
MANY = [f"{sentence} {number}" for number in range(60) for sentence in SENTENCES]


def _linears(encoder: SentenceEncoder) -> int:
    return sum(type(module) is nn.Linear for module in encoder.model.modules())


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is packed until this is undone."""
    monkeypatch.setattr(packed_linear, "_packs_exactly", lambda matmul_precision: False)
    return monkeypatch


@pytest.mark.in_turns
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "albert", "mpnet", *LATER])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("bf16", 2e-2)])
def test_embeddings_stay_as_they_are(family: str, precision: str, tolerance: float, plain: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, family))
    assert len(MANY) >= 256
    expected = encode(encoder, MANY, precision=precision)
    plain.undo()
    np.testing.assert_allclose(encode(encoder, MANY, precision=precision), expected, atol=tolerance)


def test_minilm_is_packed_whole_and_unpacked_after_an_error(minilm: Path) -> None:
    encoder = SentenceEncoder.load(minilm)
    before = list(encoder.model.modules())
    with pytest.raises(KeyboardInterrupt), packed_linears(encoder.model, "fp32"):
        assert _linears(encoder) == (0 if torch.backends.mkldnn.is_available() else 36)
        raise KeyboardInterrupt
    assert list(encoder.model.modules()) == before


def test_no_random_number_is_drawn(tiny_encoder_dir: Path) -> None:
    """Training draws its dropout from the same generator: encoding a dev set must not move it."""
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    packed_linear._packs_exactly.cache_clear()
    before = torch.get_rng_state()
    encode(encoder, MANY)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
def test_another_activation_is_computed_by_itself(activation: str, plain: pytest.MonkeyPatch, tiny_encoder_dir: Path) -> None:
    from transformers.activations import ACT2FN

    encoder = SentenceEncoder.load(tiny_encoder_dir)
    for module in encoder.model.modules():
        if hasattr(module, "intermediate_act_fn"):
            module.intermediate_act_fn = ACT2FN[activation]
    expected = encode(encoder, MANY)
    plain.undo()
    np.testing.assert_allclose(encode(encoder, MANY), expected, atol=1e-6)


def test_shards_of_weights_and_layers_that_are_more_than_linear_stay() -> None:
    class Adapted(nn.Linear):
        pass

    sharded = nn.Linear(4, 4)
    sharded.weight = nn.Parameter(torch.empty(0))
    model = nn.Sequential(sharded, Adapted(4, 4), nn.Linear(4, 4, dtype=torch.float64))
    with packed_linears(model, "fp32"):
        assert [type(module) for module in model] == [nn.Linear, Adapted, nn.Linear]


def test_products_that_are_rounded_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "product_error", lambda product: 2e-3)
    assert not packed_linear._packs_exactly.__wrapped__("medium")


def test_a_torch_without_such_products_packs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> object:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'")

    monkeypatch.setattr(packed_linear, "_PackedLinear", missing)
    assert not packed_linear._packs_exactly.__wrapped__("medium")
