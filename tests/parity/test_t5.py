"""Encoders of T5s as sentence-t5 and gtr-t5 are released: read without their decoder, trained, saved, and refused what they lack."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoModelForTextEncoding, AutoTokenizer
from transformers.models.bart import BartConfig, BartModel
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import EncoderError, RecipeError
from sentdist.families import POOLINGS, READ_WITHOUT_DECODER
from sentdist.learning.encoder.declared import declared_pooling
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.precision import autocast
from sentdist.plan.stage import Json
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_encoders import SENTENCES, no_wrappers, released_t5, tiny_encoder, word_tokenizer

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


def test_sentences_that_are_longer_than_the_distances_that_are_distinguished(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder).eval()
    encoder.model.double()
    sentences = (" ".join(SENTENCES * 4), "a man", " ".join(SENTENCES[::-1] * 3))
    tokens = encoder.tokenize(sentences)
    assert tokens.longest > 200
    with torch.no_grad():
        torch.testing.assert_close(encoder(tokens), by_hand(folder, sentences).float(), **FLOAT32)


def test_an_embedding_is_its_sentence_s_own(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder).eval()
    encoder.model.double()
    with torch.no_grad():
        together = encoder(encoder.tokenize(SENTENCES))
        alone = torch.cat([encoder(encoder.tokenize([sentence])) for sentence in SENTENCES])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-6)


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


def test_micro_batches_and_bf16(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder, attention_dropout=0.0, hidden_dropout=0.0).train()
    found = []
    for micro_batch in (None, 3):
        encoder.zero_grad()
        embeddings = encode_in_micro_batches(encoder, encoder.tokenize(SENTENCES), micro_batch=micro_batch)
        embeddings.square().mean().backward()
        found.append([embeddings.detach(), *(parameter.grad for parameter in encoder.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    with autocast("bf16", torch.device("cpu")):
        rounded = encoder(encoder.tokenize(SENTENCES))
    assert rounded.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(rounded, found[0][0]).min() > 0.995
    rounded.square().mean().backward()


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


@pytest.mark.in_turns
@pytest.mark.parametrize("family", READ_WITHOUT_DECODER)
@pytest.mark.parametrize("pooling", [name for name, known in POOLINGS.items() if known.in_folder])
def test_each_pooling_is_saved_and_read_by_sentence_transformers(pooling: str, family: str, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path / "base", family, num_hidden_layers=6), pooling=pooling)
    expected = encode(encoder, SENTENCES)
    encoder.save(tmp_path / "saved", card=CARD)
    again = SentenceEncoder.load(tmp_path / "saved")
    assert again.pooling == pooling
    np.testing.assert_allclose(encode(again, SENTENCES), expected, **FLOAT32)
    peer = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(peer.encode(list(SENTENCES)), expected, rtol=1e-5, atol=1e-5)  # six layers, whose scores are not scaled


@pytest.mark.parametrize("keys", [{}, {"is_encoder_decoder": False}, {"architectures": ["T5EncoderModel"]}])
@pytest.mark.parametrize("words", ["shared.weight", "encoder.embed_tokens.weight"])
def test_however_the_encoder_was_saved(keys: dict[str, object], words: str, folder: Path, tmp_path: Path) -> None:
    """With the decoder or without, and the word embeddings under either of their names."""
    shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "copy/config.json").write_text(json.dumps({**config, **keys}))
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not keys or name.startswith("encoder.")}
    kept.pop("encoder.embed_tokens.weight", None), kept.pop("shared.weight", None)
    save_file({**kept, words: weights["shared.weight"]}, tmp_path / "copy/model.safetensors", metadata={"format": "pt"})
    np.testing.assert_allclose(encode(SentenceEncoder.load(tmp_path / "copy"), SENTENCES), encode(SentenceEncoder.load(folder), SENTENCES))


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


def test_attention_drops_in_training_alone(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder, attention_dropout=0.5, hidden_dropout=0.0)
    tokens = encoder.tokenize(SENTENCES)
    first, other = encoder.train()(tokens), encoder(tokens)
    assert not torch.allclose(first, other)
    assert torch.equal(encoder.eval()(tokens), encoder(tokens))


@pytest.mark.parametrize(("declared", "longest"), [(None, 512), (256, 256), (2048, 2048)])
def test_a_sentence_may_be_as_long_as_the_files_say(declared: int | None, longest: int, folder: Path, tmp_path: Path) -> None:
    """There is no table of positions that would bound it."""
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy/sentence_bert_config.json").write_text(json.dumps({} if declared is None else {"max_seq_length": declared}))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (tmp_path / "copy/tokenizer_config.json").write_text(json.dumps({**tokenizer, "model_max_length": 10**30}))
    assert SentenceEncoder.load(tmp_path / "copy").max_length == longest
    plan(tmp_path / "copy", tmp_path, training={"max_length": longest, "batch_size": 8})
    with pytest.raises(RecipeError, match=rf"max_length: found {longest + 1:,}, where copy takes {longest:,} tokens"):
        plan(tmp_path / "copy", tmp_path, training={"max_length": longest + 1, "batch_size": 8})


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


@pytest.mark.in_turns
@pytest.mark.parametrize("family", READ_WITHOUT_DECODER)
def test_one_of_each_family_is_trained_by_a_recipe(family: str, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / family, family)
    assert not (SentenceEncoder.load(folder, layers=1).state_dict().keys() - SentenceEncoder.load(folder).state_dict().keys())
    (tmp_path / "r.yaml").write_text(json.dumps(tiny_values(folder, runtime={"engine": "torch", "recompute_layers": True})))
    words = ("run", tmp_path / "r.yaml", "--local", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store")
    reported = CliRunner().invoke(app, [str(word) for word in words])
    assert reported.exit_code == 0, reported.output
    assert widths_in(tmp_path / "store") == {32}


@pytest.mark.in_turns
def test_one_is_trained_as_it_was_released(folder: Path, tmp_path: Path) -> None:
    """By entropy encoders, their bank, and RCL."""
    values = tiny_values(folder, runtime={"engine": "torch"})
    values["encoder"] = {"checkpoint": str(folder), "pooling": "mean_dense"}
    (tmp_path / "r.yaml").write_text(json.dumps(values))
    words = ("run", tmp_path / "r.yaml", "--local", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store")
    reported = CliRunner().invoke(app, [str(word) for word in words])
    assert reported.exit_code == 0, reported.output
    assert widths_in(tmp_path / "store") == {SentenceEncoder.load(folder).width}


def widths_in(store: Path) -> set[int]:
    trained = [path.parent for path in store.glob("train/*/modules.json")]
    return {SentenceTransformer(str(path), device="cpu").encode(["a man"]).shape[1] for path in trained}


def test_a_layer_that_computes_otherwise_than_the_pooling_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"pooling cls_mlp: found a dense layer of 32 to \d+ with .*Identity; expected one with Tanh"):
        SentenceEncoder.load(folder, pooling="cls_mlp")
    assert SentenceEncoder.load(folder, pooling="mean").head is None
    biased = shutil.copytree(folder, tmp_path / "biased")
    weights = load_file(folder / "2_Dense/model.safetensors")
    save_file({**weights, "linear.bias": torch.ones(len(weights["linear.weight"]))}, biased / "2_Dense/model.safetensors")
    found = encode(SentenceEncoder.load(biased), SENTENCES) - encode(SentenceEncoder.load(folder), SENTENCES)
    np.testing.assert_allclose(found, np.ones_like(found), **FLOAT32)


def test_other_models_with_a_decoder_stay_refused(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    config = BartConfig(vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16)  # fmt: skip
    with no_wrappers():
        BartModel(config).save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    alone = "of encoder-decoders the encoder of a T5, mT5 or UMT5 is read"
    assert all(family in alone.lower() for family in READ_WITHOUT_DECODER)
    with pytest.raises(EncoderError, match=rf"found a bart, an encoder with a decoder that writes text .*{alone}"):
        SentenceEncoder.load(tmp_path / "bart")
    with pytest.raises(RecipeError, match=rf"encoder\.checkpoint: found .*bart, an encoder with a decoder.*{alone}"):
        plan(tmp_path / "bart", tmp_path, pooling="mean")


def test_weights_of_a_module_are_fetched_in_the_form_that_there_is(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these were released with safetensors for the transformer alone."""
    copy, asked = shutil.copytree(folder, tmp_path / "copy"), []
    weights = load_file(copy / "2_Dense/model.safetensors")
    (copy / "2_Dense/model.safetensors").unlink()

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        if "2_Dense/pytorch_model.bin" in allow_patterns:
            torch.save(weights, copy / "2_Dense/pytorch_model.bin")
        return str(copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert find_checkpoint("owner/name") == copy and len(asked) == 2
    np.testing.assert_allclose(encode(SentenceEncoder.load(copy), SENTENCES), encode(SentenceEncoder.load(folder), SENTENCES))
