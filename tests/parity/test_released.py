"""Encoders in the form they were released in, T5s without their decoder and Nomic's without its code: read and saved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from sentdist.errors import EncoderError, RecipeError
from sentdist.families import DECODERS, FLAT_FAMILIES, POOLINGS, READ_WITHOUT_DECODER, why_padded
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.pooling import pool
from sentdist.learning.encoder.pretrained import load_configuration
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import collate
from sentdist.recipe.stage import Json
from sentdist.stages.resolve import FileResolver
from tests.support.pooled import pooled, with_dense_layer
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_encoders import SENTENCES, released_t5, tiny_encoder

pytestmark = pytest.mark.parity


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
    encoder.save(tmp_path / "saved", base_model="tiny")
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
    SentenceEncoder.load(folder, attention_dropout=0.3, hidden_dropout=0.2).save(tmp_path / "saved", base_model="tiny")
    assert probabilities(tmp_path / "saved") == ({0.3}, {0.2})


def plan(folder: Path, place: Path, *, pooling: str = "mean_dense", **changes: object) -> None:
    values = tiny_values(folder, **changes)
    values["encoder"] = {"checkpoint": str(folder), "pooling": pooling}
    tiny_plan(values, data=write_data(place / "data") if not (place / "data").exists() else place / "data", store=place / "store")


def test_planning_names_the_pooling_and_refuses_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    assert Checkpoint.open(folder).pooling == "mean_dense"
    width = len(load_file(folder / "2_Dense/model.safetensors")["linear.weight"])
    assert SentenceEncoder.load(folder).width == width == encode(SentenceEncoder.load(folder), SENTENCES).shape[1]
    pin = FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")
    assert (pin.width_with("mean_dense"), pin.width_with("mean")) == (width, 32)
    plan(folder, tmp_path)
    with pytest.raises(RecipeError, match=r"objective: mlm: found a tokenizer without a mask token"):
        plan(folder, tmp_path, methods={"m": {"objective": {"name": "mlm"}}}, baseline=None)
    drops_heads: Json = {"m": {"objective": {"name": "info_nce"}, "regularizers": {"drophead": 0.2}}}
    with pytest.raises(RecipeError, match=r"regularizers\.drophead: .*, which runs on padded batches"):
        plan(folder, tmp_path, methods=drops_heads, baseline=None)


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


OFTEN = ("bert", "qwen3", "mpnet")  # an encoder, a decoder, and one whose scores depend on distances
# float32 sums in another order; both sides were within 2e-6 of a float64 run
CLOSE = {"rtol": 1e-4, "atol": 2e-6}


def padded_embeddings(
    model: torch.nn.Module, folder: Path, sentences: tuple[str, ...], *, pooling: str = "mean", training: bool = False
) -> Tensor:
    """What one writes first: pad, mask, eager attention, pool."""
    inputs = AutoTokenizer.from_pretrained(folder)(list(sentences), padding=True, return_tensors="pt")
    states = model(**inputs, output_hidden_states=True).hidden_states
    return pooled(states, inputs["attention_mask"], pooling, training=training)


def contrast(embeddings_SD: Tensor) -> Tensor:
    """A small InfoNCE between the two halves of the sentences."""
    unit = torch.nn.functional.normalize(embeddings_SD, dim=1)
    half = len(unit) // 2
    return torch.nn.functional.cross_entropy(unit[:half] @ unit[half:].T / 0.05, torch.arange(half))


def eager(folder: Path) -> torch.nn.Module:
    kind = AutoModelForTextEncoding if AutoConfig.from_pretrained(folder).model_type in READ_WITHOUT_DECODER else AutoModel
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def both_losses(folder: Path, sentences: tuple[str, ...]) -> tuple[SentenceEncoder, torch.nn.Module, Tensor, Tensor]:
    has_hidden_dropout = AutoConfig.from_pretrained(folder).model_type not in (*DECODERS, "modernbert", "eurobert")
    encoder = SentenceEncoder.load(folder, attention_dropout=0.0, hidden_dropout=0.0 if has_hidden_dropout else None).train()
    model = eager(folder)
    losses = contrast(encoder(encoder.tokenize(sentences))), contrast(padded_embeddings(model, folder, sentences))
    for loss in losses:
        loss.backward()
    return encoder, model, *losses


def assert_equal_gradients(encoder: SentenceEncoder, model: torch.nn.Module) -> None:
    expected = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    found = {name: weight.grad for name, weight in encoder.model.named_parameters() if weight.grad is not None}
    assert found.keys() == {name for name in expected if not name.startswith("pooler.")}
    total = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    for name, gradient in found.items():
        assert gradient is not None
        # float32 sums in another order: 1.5e-6 was measured. A key's bias has no influence on a softmax and its gradient is
        # rounding noise, hence the part that is relative to the whole gradient.
        difference = float((gradient - expected[name]).norm())
        assert difference <= 2e-5 * float(expected[name].norm()) + 1e-6 * float(total), name


def nightly(values: Iterable[str]) -> list[ParameterSet]:
    """What is run with all tests only: each is the one proof of its family, or of a way in which a family may be set."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]


@pytest.mark.parametrize("family", [*OFTEN, *nightly(sorted({*FLAT_FAMILIES} - {*OFTEN}))])
def test_loss_and_gradients_of_a_flat_family(family: str, tmp_path: Path) -> None:
    assert_like_padded(tiny_encoder(tmp_path, family))


def assert_like_padded(folder: Path) -> None:
    encoder, model, flat, padded = both_losses(folder, SENTENCES)
    assert encoder.is_flat
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(encoder, model)


YARN = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}
LAYER_TYPES = ["sliding_attention", "full_attention"]
# Sentences have 3 to 24 tokens: a window of 3 is narrower than most of them.
SET_OTHERWISE = {
    "mistral": ("mistral", {"sliding_window": 3}),
    "gemma3-both-ways": ("gemma3_text", {"sliding_window": 8, "layer_types": LAYER_TYPES, "use_bidirectional_attention": True}),
    "qwen3-window-and-wide-heads": (
        "qwen3", {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1, "head_dim": 24},
    ),
    "modernbert": ("modernbert", {"local_attention": 4}),
    "gemma2": ("gemma2", {"sliding_window": 4, "query_pre_attn_scalar": 3}),
    "ministral3": ("ministral3", {"sliding_window": 3, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.5}}),
    "olmo3": ("olmo3", {"sliding_window": 3, "layer_types": LAYER_TYPES}),
    "phi3-partly-rotated": ("phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "smollm3-without-positions": ("smollm3", {"no_rope_layers": [1, 0]}),
    "granite": ("granite", {"attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}),
    "llama-both-ways-one-key-head": ("llama", {"is_causal": False, "num_key_value_heads": 1}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
}  # fmt: skip


@pytest.mark.parametrize("name", ["mistral", *nightly(sorted({*SET_OTHERWISE} - {"mistral"}))])
def test_loss_and_gradients_of_windows_and_shared_heads(name: str, tmp_path: Path) -> None:
    family, settings = SET_OTHERWISE[name]
    assert_like_padded(tiny_encoder(tmp_path, family, **settings))


def test_positions_begin_behind_the_padding_token_wherever_it_stands(tmp_path: Path) -> None:
    known = ("a man sleeps", "the dog", "a woman sings slowly", "the old house")  # none has [UNK], which is 3
    _, _, flat, padded = both_losses(tiny_encoder(tmp_path, "roberta", pad_token_id=3), known)
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["deberta-v2", *nightly(["megatron-bert", "t5", "umt5"])])
def test_padded_family_equals_the_obvious_way(family: str, tmp_path: Path) -> None:
    encoder, model, bucketed, padded = both_losses(tiny_encoder(tmp_path, family), SENTENCES)
    assert not encoder.is_flat
    assert family in (encoder.padded_reason or "")
    torch.testing.assert_close(bucketed, padded, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(encoder, model)


@pytest.mark.parametrize("pooling", sorted(POOLINGS))
def test_pooling_equals_padded_pooling(pooling: str, tiny_roberta_dir: Path) -> None:
    training = pooling == "cls_mlp_train_only"
    encoder = SentenceEncoder.load(tiny_roberta_dir, pooling=pooling, attention_dropout=0.0, hidden_dropout=0.0).train(training)
    with torch.no_grad():
        expected = padded_embeddings(eager(tiny_roberta_dir), tiny_roberta_dir, SENTENCES, pooling=pooling, training=training)
        expected = with_dense_layer(expected, {} if encoder.head is None else encoder.head.state_dict(), pooling, training=training)
        torch.testing.assert_close(encoder(encoder.tokenize(SENTENCES)), expected, **CLOSE)


@pytest.mark.parametrize("training", [True, False], ids=["training", "test"])
def test_poolings_read_their_own_layers_of_a_deep_model_and_give_float32(training: bool) -> None:
    """Seven layers in bfloat16, more than any pooling reads."""
    states_LTD = torch.randn(8, 5, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    padded = [torch.nn.utils.rnn.pad_sequence(layer.float().split([2, 3]), batch_first=True) for layer in states_LTD]
    for pooling in POOLINGS:
        found = pool(list(states_LTD), collate([[1, 2], [3, 4, 5]]), pooling=pooling, training=training)
        expected = pooled(padded, torch.tensor([[1, 1, 0], [1, 1, 1]]), pooling, training=training)
        torch.testing.assert_close(
            found, expected, rtol=0, atol=1e-2
        )  # the mean of two layers is taken in bfloat16; another layer is 1 off


PADDED = {
    "bounded scores": ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    "a decoder of a family of encoders": ("bert", {"is_decoder": True}, "is_decoder=True"),
    "of a batch": ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "'dynamic'"),
    "both ways": ("mistral", {"is_causal": False, "sliding_window": 3}, "is_causal=false"),
    "padding of its own": ("mpnet", {"pad_token_id": 0}, "pad_token_id=0"),
    "scores by distance": ("bloom", {}, "bloom is not among the families"),
}


@pytest.mark.parametrize("name", PADDED)
def test_what_cannot_run_without_padding_says_why_and_runs_with_it(name: str, tmp_path: Path) -> None:
    family, settings, reason = PADDED[name]
    folder = tiny_encoder(tmp_path, family, **settings)
    encoder = SentenceEncoder.load(folder).eval()
    assert reason in (encoder.padded_reason or "")
    planned = why_padded(json.loads((folder / "config.json").read_text()))  # as planning reads it, without transformers
    assert planned == encoder.padded_reason
    with pytest.raises(EncoderError, match="drophead"):
        SentenceEncoder.load(folder, drophead=0.2)
    with torch.no_grad():
        found, expected = encoder(encoder.tokenize(SENTENCES)), padded_embeddings(eager(folder), folder, SENTENCES)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_gradient_under_attention_dropout_is_that_of_the_drawn_function(tmp_path: Path) -> None:
    """With the generator reset, the dropped network is one fixed function: central differences give its gradient."""
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "mistral", sliding_window=3), attention_dropout=0.3).train().double()
    tokens, weight = encoder.tokenize(SENTENCES), encoder.model.get_parameter("layers.0.self_attn.k_proj.weight")
    direction = torch.randn(weight.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def loss() -> Tensor:
        torch.manual_seed(5)
        return encoder(tokens).pow(3).sum()

    (gradient,) = torch.autograd.grad(loss(), weight)
    losses = []
    with torch.no_grad():
        for shift in (1e-2, -2e-2):
            weight.add_(shift * direction)
            losses.append(float(loss()))
    slope = (losses[0] - losses[1]) / 2e-2
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=0.03)  # pooling is float32 whatever the model is
