"""Encoders of T5s as sentence-t5 and gtr-t5 are released: read without their decoder, trained, saved, and refused what they lack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoModelForTextEncoding, AutoTokenizer

from sentdist.errors import RecipeError
from sentdist.learning.encoder.card import EncoderCard
from sentdist.learning.encoder.declared import declared_pooling
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.plan.stage import Json
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_encoders import SENTENCES, released_t5, tiny_encoder

pytestmark = pytest.mark.parity

CARD = EncoderCard(base_model="tiny", objective=None)
FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}


# Of the larger sizes of both, the dense layer narrows 1,024 numbers to 768.
@pytest.fixture(scope="module", params=[("gated-gelu", 20), ("relu", 32)], ids=["gated-narrowed", "relu"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    projection, width = request.param
    return released_t5(tmp_path_factory.mktemp(projection), feed_forward_proj=projection, dense_width=width)


def by_hand(folder: Path, sentences: tuple[str, ...] = SENTENCES) -> Tensor:
    """In float64: padded, the encoder of transformers, the mean of tokens, W x. Without unit length."""
    tokens = AutoTokenizer.from_pretrained(folder)(list(sentences), padding=True, truncation=True, max_length=256, return_tensors="pt")
    model = AutoModelForTextEncoding.from_pretrained(folder, attn_implementation="eager").double().eval()
    weights_ST1 = tokens["attention_mask"][:, :, None]
    states_STD = model(**tokens).last_hidden_state * weights_ST1
    return (states_STD.sum(1) / weights_ST1.sum(1)) @ load_file(folder / "2_Dense/model.safetensors")["linear.weight"].double().T


@pytest.mark.filterwarnings("error")
def test_embeddings_are_those_of_its_encoder_and_its_dense_layer(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    encoder = SentenceEncoder.load(folder)
    assert (encoder.pooling, encoder.max_length, encoder.is_exported_normalized) == ("mean_dense", 256, True)
    assert capfd.readouterr().err == "", "a table of weights that are not used, as if something were wrong"
    assert not any("decoder" in name or "lm_head" in name for name in encoder.state_dict())
    encoder.model.double()
    with torch.no_grad():
        torch.testing.assert_close(encoder.eval()(encoder.tokenize(SENTENCES)), by_hand(folder).float(), **FLOAT32)


def test_gradients_are_those_of_the_obvious_way(folder: Path) -> None:
    """Of every weight, the numbers for distances, the word embeddings and the dense layer among them."""
    encoder = SentenceEncoder.load(folder, attention_dropout=0.0, hidden_dropout=0.0).train()
    model = AutoModelForTextEncoding.from_pretrained(folder, attn_implementation="eager").eval()
    tokens = encoder.tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    weights_ST1, dense = tokens["attention_mask"][:, :, None], load_file(folder / "2_Dense/model.safetensors")["linear.weight"]
    dense.requires_grad_()
    pooled = (model(**tokens).last_hidden_state * weights_ST1).sum(1) / weights_ST1.sum(1) @ dense.T
    for embeddings in (encoder(encoder.tokenize(SENTENCES)), pooled):
        torch.nn.functional.normalize(embeddings, dim=1).mul(torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
    expected = {**{f"model.{name}": one.grad for name, one in model.named_parameters()}, "head.dense.weight": dense.grad}
    found = {name: one.grad for name, one in encoder.named_parameters()}
    assert found.keys() == expected.keys() and any("relative_attention_bias" in name for name in found)
    for name, gradient in found.items():
        assert gradient is not None and gradient.abs().sum() > 0, name
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-5, msg=name)


def test_a_trained_one_is_saved_whole_and_read_by_sentence_transformers(folder: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(folder)
    assert encoder.head is not None
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    expected = encode(encoder, SENTENCES)
    encoder.save(tmp_path / "saved", card=CARD)
    again = SentenceEncoder.load(tmp_path / "saved")
    assert (again.pooling, again.max_length, again.is_exported_normalized) == ("mean_dense", 256, True)
    np.testing.assert_allclose(encode(again, SENTENCES), expected, **FLOAT32)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(list(SENTENCES)), unit, **FLOAT32)
    np.testing.assert_allclose(SentenceTransformer(str(folder), device="cpu").encode(list(SENTENCES)),
                               torch.nn.functional.normalize(by_hand(folder), dim=1).detach().numpy(), **FLOAT32)  # fmt: skip


def test_both_kinds_of_dropout_have_their_own_probability(folder: Path, tmp_path: Path) -> None:
    """The family has one for both; what is trained remembers what it was trained with."""

    def probabilities(place: Path, **given: float) -> tuple[set[float], set[float]]:
        model = SentenceEncoder.load(place, **given).model
        modules = list(model.modules())
        attention = {module.dropout for module in modules if type(module).__name__.endswith("Attention") and hasattr(module, "n_heads")}
        return attention, {module.p for module in modules if isinstance(module, torch.nn.Dropout)}

    assert probabilities(folder) == ({0.1}, {0.1})
    assert probabilities(folder, attention_dropout=0.3) == ({0.3}, {0.1})
    assert probabilities(folder, hidden_dropout=0.0) == ({0.1}, {0.0})
    SentenceEncoder.load(folder, attention_dropout=0.3, hidden_dropout=0.2).save(tmp_path / "saved", card=CARD)
    assert probabilities(tmp_path / "saved") == ({0.3}, {0.2})


def plan(folder: Path, place: Path, *, pooling: str = "mean_dense", **changes: object) -> None:
    values = tiny_values(folder, **changes)
    values["encoder"] = {"checkpoint": str(folder), "pooling": pooling}
    tiny_plan(values, data=write_data(place / "data") if not (place / "data").exists() else place / "data", store=place / "store")


def test_planning_names_the_pooling_and_refuses_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    assert declared_pooling(folder) == "mean_dense"
    width = len(load_file(folder / "2_Dense/model.safetensors")["linear.weight"])
    assert SentenceEncoder.load(folder).width == width == encode(SentenceEncoder.load(folder), SENTENCES).shape[1]
    pin = FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")
    assert (pin.width_with("mean_dense"), pin.width_with("mean")) == (width, 32)
    plan(folder, tmp_path)
    with pytest.raises(RecipeError, match=r"objective: mlm: found a tokenizer without a mask token"):
        plan(folder, tmp_path, methods={"m": {"objective": {"name": "mlm"}}}, baseline=None)
    drops_heads: Json = {"m": {"objective": {"name": "info_nce"}, "regularizers": {"drophead": 0.2}}}
    plan(folder, tmp_path, methods=drops_heads, baseline=None)
    with pytest.raises(RecipeError, match=r"regularizers\.drophead: found 0\.2 for umt5, whose sentences are padded"):
        plan(tiny_encoder(tmp_path / "umt5", "umt5"), tmp_path, pooling="mean", methods=drops_heads, baseline=None)
