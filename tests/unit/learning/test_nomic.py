"""Nomic's encoders: read in the form they were released in, without the checkpoint's own code, and written for others to read."""

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
from transformers import AutoTokenizer

from sentdist.errors import EncoderError
from sentdist.learning.encoder.declared import FIXED, SAME_AS, why_refused
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.pretrained import load_configuration
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.learning.optimization import Optimization, parameter_groups
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

HEADS, THETA, EPSILON = 4, 1000.0, 1e-12
CARD = EncoderCard(base_model="acme/tiny-nomic", data=("nli/triplets (10 rows)",), objective="InfoNCE", hyperparameters={}, scores={})
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


def test_word_order_counts(released: Path) -> None:
    """Rotary positions are the only ones."""
    one, other = encode(SentenceEncoder.load(released), ["the dog sees the cat", "the cat sees the dog"])
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last"])
def test_the_saved_folder_gives_the_same_embeddings_everywhere_and_names_no_code(released: Path, pooling: str, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(released, pooling=pooling, max_length=20)
    expected = encode(encoder, SENTENCES)
    encoder.save(tmp_path / "saved", card=CARD)
    peer = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(peer.encode(list(SENTENCES)), expected, atol=1e-6)
    again = SentenceEncoder.load(tmp_path / "saved")
    np.testing.assert_allclose(encode(again, SENTENCES), expected, atol=1e-6)
    before, after = encoder.state_dict(), again.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(after[name], weight) for name, weight in before.items())
    assert "auto_map" not in json.loads((tmp_path / "saved/config.json").read_text())


def test_layers_are_distinguished(released: Path) -> None:
    """By number: for rates that decay from layer to layer, and to keep the first ones."""
    groups = parameter_groups(SentenceEncoder.load(released), Optimization(num_steps=1, lr=1.0, layer_decay=0.5))
    sizes = {group["lr"]: sum(one.numel() for one in group["params"]) for group in groups if group["weight_decay"]}
    assert sizes[0.5] == 4 * 32 * 32 + 3 * 32 * 64 and set(sizes) == {1.0, 0.5}
    assert len(SentenceEncoder.load(released, layers=1).model.layers) == 1


def test_dropouts_are_those_that_are_asked_for(released: Path) -> None:
    encoder = SentenceEncoder.load(released, hidden_dropout=0.3, attention_dropout=0.2).train()
    tokens = encoder.tokenize(SENTENCES)
    assert not torch.equal(encoder(tokens), encoder(tokens))
    still = SentenceEncoder.load(released).train()
    assert torch.equal(still(tokens), still(tokens)), "the released checkpoint has none"


def test_the_released_configuration_is_what_transformers_computes_without_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(RELEASED))
    config = load_configuration(tmp_path)
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size, config.vocab_size)
    assert sizes == (768, 12, 12, 3072, 30528) and config.layer_norm_eps == 1e-12 and config.hidden_act == "silu"
    assert config.rope_parameters["rope_theta"] == 1000 and config.max_position_embeddings == 2048


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_layer", 6), ("n_embd", 512), ("n_head", 8), ("n_inner", 2048), ("layer_norm_epsilon", 1e-5), ("rotary_emb_base", 10_000),
        ("resid_pdrop", 0.1), ("attn_pdrop", 0.1), ("prenorm", True), ("activation_function", "gelu"), ("qkv_proj_bias", True),
        ("rotary_emb_fraction", 0.5), ("rotary_emb_interleaved", True), ("causal", True), ("use_rms_norm", True),
    ],
)  # fmt: skip
def test_what_transformers_would_not_read_is_refused(name: str, value: object, tmp_path: Path) -> None:
    changed = RELEASED | {name: value}
    if name in FIXED:
        refusal = why_refused(changed)
        assert refusal is not None and f"with {name}=" in refusal.found and "computes as" in refusal.found
        return
    assert name in {*SAME_AS, "rotary_emb_base"}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(EncoderError, match=f"config.json: {name}: found .*computes as"):
        load_configuration(tmp_path)
