"""Packed linear layers: the same embeddings, gone afterwards, and not where they would be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sentdist.learning.encoder import packed_linear
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.packed_linear import packed_linears
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

MANY = [f"{sentence} {number}" for number in range(60) for sentence in SENTENCES]


def _linears(encoder: SentenceEncoder) -> int:
    return sum(type(module) is nn.Linear for module in encoder.model.modules())


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is packed until this is undone."""
    monkeypatch.setattr(packed_linear, "_packs_exactly", lambda matmul_precision: False)
    return monkeypatch


@pytest.mark.parametrize("family", ["bert", "gte"])
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


def test_products_that_are_rounded_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "product_error", lambda product: 2e-3)
    assert not packed_linear._packs_exactly.__wrapped__("medium")
