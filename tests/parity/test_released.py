"""Encoders in the form they were released in, T5s without their decoder and Nomic's without its code: read and saved."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForTextEncoding, AutoTokenizer

from sentdist.errors import EncoderError, RecipeError
from sentdist.learning.encoder.declared import FIXED, SAME_AS, declared_pooling, why_refused
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.pretrained import load_configuration
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
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
    with pytest.raises(RecipeError, match=r"regularizers\.drophead: found 0\.2 for umt5, which runs on padded batches"):
        plan(tiny_encoder(tmp_path / "umt5", "umt5"), tmp_path, pooling="mean", methods=drops_heads, baseline=None)


HEADS, THETA, EPSILON = 4, 1000.0, 1e-12


# What nomic-ai/nomic-embed-text-v1 says of itself in its code's words.
RELEASED = {
    "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "activation_function": "swiglu", "attn_pdrop": 0.0, "embd_pdrop": 0.0,
    "resid_pdrop": 0.0, "causal": False, "layer_norm_epsilon": 1e-12, "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12,
    "n_positions": 8192, "parallel_block": False, "prenorm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "vocab_size": 30528,
    "type_vocab_size": 2, "use_rms_norm": False, "pad_vocab_size_multiple": 64, "tie_word_embeddings": True,
    "auto_map": {
        "AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
        "AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with the weights' names, and the reference to code, that Nomic released: as if that code had written it."""
    folder = tiny_encoder(tmp_path_factory.mktemp("nomic"), "nomic_bert")
    config = json.loads((folder / "config.json").read_text())
    own = {"n_embd": 32, "n_layer": 2, "n_head": HEADS, "n_inner": 64, "rotary_emb_base": 1000, "auto_map": RELEASED["auto_map"]}
    (folder / "config.json").write_text(json.dumps(config | own))
    weights = _released_names(load_file(folder / "model.safetensors"))
    assert "encoder.layers.1.attn.Wqkv.weight" in weights and weights["encoder.layers.1.attn.Wqkv.weight"].shape == (96, 32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _released_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """From transformers' names, where they are not the released ones already."""
    found: dict[str, Tensor] = {}
    words = {
        "layers.": "encoder.layers.", "embeddings.LayerNorm": "emb_ln", "self_attn.o_proj": "attn.out_proj", "up_proj": "fc11",
        "gate_proj": "fc12", "down_proj": "fc2", "post_attention_layernorm": "norm1", "post_mlp_layernorm": "norm2",
    }  # fmt: skip
    for name, weight in weights.items():
        if name.startswith(("encoder.", "emb_ln")):
            return weights
        if name.endswith("self_attn.q_proj.weight"):
            parts = [weights[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            found[f"encoder.{name}".replace("self_attn.q_proj", "attn.Wqkv")] = torch.cat(parts)
        elif "self_attn.k_proj" not in name and "self_attn.v_proj" not in name:
            for ours, theirs in words.items():
                name = name.replace(ours, theirs)
            found[name] = weight
    return found


def by_formula(folder: Path, sentence: str) -> Tensor:
    """The mean of the last layer's states, from the released weights by the released code's equations, in float64: post-norm layers, rotary
    positions by halves, y · silu(gate) between the feed-forward's products, no bias anywhere but in the norms."""
    weights = {name: weight.double() for name, weight in load_file(folder / "model.safetensors").items()}
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)(sentence)["input_ids"])

    def norm(states: Tensor, name: str) -> Tensor:
        return F.layer_norm(states, states.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)

    def rotated(vectors_HTW: Tensor) -> Tensor:
        width = vectors_HTW.shape[-1]
        angles = torch.arange(len(ids)).double()[:, None] / THETA ** (torch.arange(0, width, 2).double() / width)
        first, second = vectors_HTW.chunk(2, dim=-1)
        return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], dim=-1)

    states = norm(weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.token_type_embeddings.weight"][0], "emb_ln")
    for layer in ("encoder.layers.0", "encoder.layers.1"):
        query, key, value = (states @ weights[f"{layer}.attn.Wqkv.weight"].T).chunk(3, dim=-1)
        query, key, value = (one.unflatten(-1, (HEADS, -1)).transpose(0, 1) for one in (query, key, value))
        shares = torch.softmax(rotated(query) @ rotated(key).transpose(1, 2) / math.sqrt(query.shape[-1]), dim=-1)
        context = (shares @ value).transpose(0, 1).flatten(1)
        states = norm(states + context @ weights[f"{layer}.attn.out_proj.weight"].T, f"{layer}.norm1")
        up, gate = (states @ weights[f"{layer}.mlp.{part}.weight"].T for part in ("fc11", "fc12"))
        states = norm(states + (up * F.silu(gate)) @ weights[f"{layer}.mlp.fc2.weight"].T, f"{layer}.norm2")
    return states.mean(dim=0)


def test_a_released_checkpoint_is_computed_as_its_code_computes_it(released: Path) -> None:
    """Sentences of several lengths together: they do not see each other."""
    encoder = SentenceEncoder.load(released)
    assert encoder.is_flat
    assert (encoder.width, encoder.max_length, encoder.pooling) == (32, 40, "mean")
    expected = torch.stack([by_formula(released, sentence) for sentence in SENTENCES])
    np.testing.assert_allclose(encode(encoder, SENTENCES), expected.numpy(), atol=2e-6)
    assert float((expected[0] - expected[1]).abs().max()) > 0.1


def test_the_released_configuration_is_what_transformers_computes_without_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(RELEASED))
    config = load_configuration(tmp_path)
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size, config.vocab_size)
    assert sizes == (768, 12, 12, 3072, 30528) and config.layer_norm_eps == 1e-12 and config.hidden_act == "silu"
    assert config.rope_parameters["rope_theta"] == 1000 and config.max_position_embeddings == 2048


@pytest.mark.parametrize(("name", "value"), [("n_layer", 6), ("rotary_emb_base", 10_000), ("prenorm", True), ("rotary_emb_fraction", 0.5)])
def test_what_transformers_would_not_read_is_refused(name: str, value: object, tmp_path: Path) -> None:
    changed = RELEASED | {name: value}
    if name in FIXED:
        refusal = why_refused(changed)
        assert refusal is not None and f"{name}=" in refusal.found
        return
    assert name in {*SAME_AS, "rotary_emb_base"}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(EncoderError, match=name):
        load_configuration(tmp_path)
