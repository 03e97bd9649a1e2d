"""An encoder without padding equals the obvious padded one: embeddings, loss and gradients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from sentdist.errors import EncoderError
from sentdist.families import DECODERS, FAMILIES, FLAT_FAMILIES, POOLINGS, READ_WITHOUT_DECODER, why_padded
from sentdist.learning.encoder.pooling import pool
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import collate
from tests.support.pooled import pooled, with_dense_layer
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

pytestmark = pytest.mark.parity

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


@pytest.mark.in_turns
@pytest.mark.parametrize("family", sorted(FLAT_FAMILIES))
def test_loss_and_gradients_of_every_flat_family(family: str, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, family)
    encoder, model, flat, padded = both_losses(folder, SENTENCES)
    assert encoder.is_flat
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(encoder, model)


YARN = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}
# Sentences have 3 to 24 tokens: windows of 3 are narrower than most of them, of 30 wider than all.
WINDOWED = {
    "mistral": ("mistral", {"sliding_window": 3}),
    "mistral-wide": ("mistral", {"sliding_window": 30}),
    "mistral-none": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1}),
    "gemma3": ("gemma3_text", {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}),
    "gemma3-both-ways": (
        "gemma3_text",
        {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "use_bidirectional_attention": True},
    ),
    "modernbert": ("modernbert", {"local_attention": 4}),
    "modernbert-own-token": ("modernbert", {"local_attention": 0}),
    "gemma2": ("gemma2", {"sliding_window": 4, "query_pre_attn_scalar": 3}),
    "ministral": ("ministral", {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
    "ministral3": ("ministral3", {"sliding_window": 3, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.5}}),
    "modernbert-decoder": ("modernbert-decoder", {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
    "olmo3": ("olmo3", {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
    "phi3": ("phi3", {"sliding_window": 3}),
    "phi3-partly-rotated": ("phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "smollm3": ("smollm3", {"use_sliding_window": True, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}),
    "smollm3-without-positions": ("smollm3", {"no_rope_layers": [1, 0]}),
    "granite": ("granite", {"attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}),
    "llama-both-ways": ("llama", {"is_causal": False}),
    "qwen2-both-ways": ("qwen2", {"is_causal": False}),
    "qwen3-both-ways": ("qwen3", {"is_causal": False}),
    "llama-one-key-head": ("llama", {"num_key_value_heads": 1}),
    "eurobert-shared-keys": ("eurobert", {"num_key_value_heads": 2}),
    "gte-without-token-types": ("gte", {"type_vocab_size": 0}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
    "qwen3-wide-heads": ("qwen3", {"head_dim": 24}),
    "t5-gated": ("t5", {"feed_forward_proj": "gated-gelu"}),
    "t5-few-buckets": ("t5", {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}),
    "mt5-ungated": ("mt5", {"feed_forward_proj": "relu", "d_kv": 16}),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("name", WINDOWED)
def test_loss_and_gradients_of_windows_and_shared_heads(name: str, tmp_path: Path) -> None:
    family, settings = WINDOWED[name]
    folder = tiny_encoder(tmp_path, family, **settings)
    encoder, model, flat, padded = both_losses(folder, SENTENCES)
    assert encoder.is_flat
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(encoder, model)


@pytest.mark.parametrize(
    "family", [family for family in FLAT_FAMILIES if FAMILIES[family].positions == "table_behind_padding" and family != "mpnet"]
)  # which runs padded then
def test_positions_begin_behind_the_padding_token_wherever_it_stands(family: str, tmp_path: Path) -> None:
    known = ("a man sleeps", "the dog", "a woman sings slowly", "the old house")  # none has [UNK], which is 3
    _, _, flat, padded = both_losses(tiny_encoder(tmp_path, family, pad_token_id=3), known)
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)


def test_loss_and_gradients_of_minilm(minilm: Path) -> None:
    encoder, model, flat, padded = both_losses(minilm, SENTENCES)
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(encoder, model)


@pytest.mark.parametrize("family", ["deberta-v2", "megatron-bert", "umt5"])
def test_padded_family_equals_the_obvious_way(family: str, tmp_path: Path) -> None:
    encoder, model, bucketed, padded = both_losses(tiny_encoder(tmp_path, family), SENTENCES)
    assert not encoder.is_flat
    assert family in (encoder.padded_reason or "")
    torch.testing.assert_close(bucketed, padded, rtol=1e-5, atol=1e-6)
    assert_equal_gradients(encoder, model)


@pytest.mark.parametrize("training", [True, False], ids=["training", "test"])
@pytest.mark.parametrize("pooling", sorted(POOLINGS))
def test_pooling_equals_padded_pooling(pooling: str, training: bool, tiny_roberta_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_roberta_dir, pooling=pooling, attention_dropout=0.0, hidden_dropout=0.0).train(training)
    with torch.no_grad():
        expected = padded_embeddings(eager(tiny_roberta_dir), tiny_roberta_dir, SENTENCES, pooling=pooling, training=training)
        expected = with_dense_layer(expected, {} if encoder.head is None else encoder.head.state_dict(), pooling, training=training)
        torch.testing.assert_close(encoder(encoder.tokenize(SENTENCES)), expected, **CLOSE)


@pytest.mark.parametrize("training", [True, False], ids=["training", "test"])
@pytest.mark.parametrize("pooling", sorted(POOLINGS))
def test_pooling_reads_its_own_layers_of_a_deep_model_and_gives_float32(pooling: str, training: bool) -> None:
    """Seven layers in bfloat16, more than any pooling reads."""
    states_LTD = torch.randn(8, 5, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = pool(list(states_LTD), collate([[1, 2], [3, 4, 5]]), pooling=pooling, training=training)
    padded = [torch.nn.utils.rnn.pad_sequence(layer.float().split([2, 3]), batch_first=True) for layer in states_LTD]
    expected = pooled(padded, torch.tensor([[1, 1, 0], [1, 1, 1]]), pooling, training=training)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)  # the mean of two layers is taken in bfloat16; another layer is 1 off


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_token_is_found_on_whichever_side_padding_is(side: str) -> None:
    states = torch.arange(12.0).view(1, 2, 3, 2)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]] if side == "right" else [[0, 1, 1], [1, 1, 1]])
    expected = [[2.0, 3.0] if side == "right" else [4.0, 5.0], [10.0, 11.0]]
    assert POOLINGS["last_token"].reduction.padded(list(states), mask).tolist() == expected


PADDED = {
    "bounded scores": ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    "scores that are bounded by default": ("gemma2", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    "a decoder of a family of encoders": ("bert", {"is_decoder": True}, "is_decoder=True"),
    "of a batch, in Phi's words": (
        "phi3",
        {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}},
        "'longrope'",
    ),
    "of a batch": ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "'dynamic'"),
    "both ways": ("mistral", {"is_causal": False, "sliding_window": 3}, "is_causal=false"),
    "a word of another family": ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
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


WORDS_THAT_DECIDE: dict[str, dict[str, object]] = {
    "nothing": {}, "both ways": {"is_causal": False}, "both ways, as Gemma says it": {"use_bidirectional_attention": True},
    "a decoder": {"is_decoder": True},
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS_THAT_DECIDE)
@pytest.mark.parametrize("family", sorted(FLAT_FAMILIES))
def test_what_a_file_leaves_out_is_the_family_s_default(family: str, name: str) -> None:
    """Planning reads the file alone; transformers fills it in."""
    words = WORDS_THAT_DECIDE[name]
    assert why_padded({"model_type": family} | words) == why_padded(AutoConfig.for_model(family, **words).to_dict())


@pytest.mark.parametrize("kind", ["yarn", "longrope"])
def test_phi_s_words_for_positions_of_a_batch(kind: str) -> None:
    scaling = {"type": kind, "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    file = {"model_type": "phi3", "rope_scaling": scaling, "original_max_position_embeddings": 4096}
    loaded = AutoConfig.for_model(**{**file, "rope_scaling": dict(scaling)}).to_dict()
    assert (
        why_padded(file)
        == why_padded(loaded)
        == "frequencies of positions of the kind 'longrope' depend on the longest sentence of a batch"
    )


def test_train_only_head_acts_in_training_only(tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, pooling="cls_mlp_train_only", attention_dropout=0.0, hidden_dropout=0.0)
    tokens = encoder.tokenize(SENTENCES)
    with torch.no_grad():
        trained, tested = encoder.train()(tokens), encoder.eval()(tokens)
    assert encoder.head is not None
    torch.testing.assert_close(trained, torch.tanh(encoder.head.dense(tested)), **CLOSE)


def test_sentences_do_not_see_each_other(tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir).eval()
    with torch.no_grad():
        together = encoder(encoder.tokenize(SENTENCES))
        alone = torch.cat([encoder(encoder.tokenize([sentence])) for sentence in SENTENCES])
    torch.testing.assert_close(together, alone, **CLOSE)


@pytest.mark.parametrize("pooling", ["mean", "cls_mlp"])
def test_bfloat16_stays_near_float32(pooling: str, tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, pooling=pooling).eval()
    tokens = encoder.tokenize(SENTENCES)
    with torch.no_grad():
        exact = encoder(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = encoder(tokens)
    assert rounded.dtype == torch.float32
    cosine = torch.nn.functional.cosine_similarity(exact, rounded)
    assert float(cosine.min()) > 0.999  # bfloat16 keeps 8 bits: 4e-3 a value, averaged over 32 axes


@pytest.mark.in_turns
@pytest.mark.parametrize("family", sorted(FLAT_FAMILIES))
def test_bfloat16_stays_near_float32_in_every_flat_family(family: str, tmp_path: Path) -> None:
    """Where positions are rotated, queries and keys are, by angles in float32; values are not."""
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, family)).eval()
    found = []
    for is_rounded in (False, True):
        encoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_rounded):
            embeddings = encoder(encoder.tokenize(SENTENCES))
        contrast(embeddings).backward()
        gradient = torch.cat([weight.grad.flatten() for weight in encoder.parameters() if weight.grad is not None])
        found.append((embeddings.detach(), gradient))
    for exact, rounded in zip(*found, strict=True):
        assert float(torch.nn.functional.cosine_similarity(exact, rounded, dim=-1).min()) > 0.995  # 8 bits a value


def test_attention_dropout_keeps_the_mean_and_changes_the_draw(tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, attention_dropout=0.3, hidden_dropout=0.0).train()
    torch.manual_seed(0)
    with torch.no_grad():
        draws = encoder(encoder.tokenize(SENTENCES * 200)).view(200, len(SENTENCES), -1)
        exact = encoder.eval()(encoder.tokenize(SENTENCES))
    spread = draws.std(dim=0)
    assert float(spread.mean()) > 0.01
    # attention is not linear in its dropout beyond the first layer, so the mean is only near: within a third of one draw's spread
    assert float((draws.mean(dim=0) - exact).abs().mean()) < float(spread.mean()) / 3


@pytest.mark.parametrize(
    ("family", "hidden_dropout", "name"),
    [
        ("bert", 0.2, "encoder.layer.0.attention.self.query.weight"),
        ("mistral", None, "layers.0.self_attn.k_proj.weight"),
        ("modernbert", None, "layers.1.attn.Wqkv.weight"),
    ],
)
def test_gradient_under_attention_dropout_is_that_of_the_drawn_function(
    family: str, hidden_dropout: float | None, name: str, tmp_path: Path
) -> None:
    """With the generator reset, the dropped network is one fixed function: central differences give its gradient."""
    settings = {"mistral": {"sliding_window": 3}, "modernbert": {"local_attention": 4}}.get(family, {})
    folder = tiny_encoder(tmp_path, family, **settings)
    encoder = SentenceEncoder.load(folder, attention_dropout=0.3, hidden_dropout=hidden_dropout).train().double()
    tokens = encoder.tokenize(SENTENCES)
    weight = encoder.model.get_parameter(name)

    direction = torch.from_numpy(np.random.default_rng(0).normal(size=tuple(weight.shape)))

    def loss_at(shift: float) -> float:
        torch.manual_seed(5)
        with torch.no_grad():
            weight.add_(shift * direction)
            loss = float(encoder(tokens).pow(3).sum())
            weight.sub_(shift * direction)
        return loss

    torch.manual_seed(5)
    encoder(tokens).pow(3).sum().backward()
    assert weight.grad is not None
    analytic = float((weight.grad * direction).sum())
    numeric = (loss_at(1e-2) - loss_at(-1e-2)) / 2e-2
    # pooling is float32 whatever the model is, so a difference of losses keeps a few digits only
    assert analytic == pytest.approx(numeric, rel=1e-2)
