"""An encoder without padding equals the obvious padded one: embeddings, loss and gradients."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from sentdist.errors import EncoderError
from sentdist.families import DECODERS, FLAT_FAMILIES, POOLINGS, READ_WITHOUT_DECODER, why_padded
from sentdist.learning.encoder.pooling import pool
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import collate
from tests.support.pooled import pooled, with_dense_layer
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

pytestmark = pytest.mark.parity

OFTEN = ("bert", "qwen3", "t5")  # an encoder, a decoder, and one whose scores depend on distances
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
    "t5-gated-few-buckets": (
        "t5", {"feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["mistral", *nightly(sorted({*SET_OTHERWISE} - {"mistral"}))])
def test_loss_and_gradients_of_windows_and_shared_heads(name: str, tmp_path: Path) -> None:
    family, settings = SET_OTHERWISE[name]
    assert_like_padded(tiny_encoder(tmp_path, family, **settings))


def test_positions_begin_behind_the_padding_token_wherever_it_stands(tmp_path: Path) -> None:
    known = ("a man sleeps", "the dog", "a woman sings slowly", "the old house")  # none has [UNK], which is 3
    _, _, flat, padded = both_losses(tiny_encoder(tmp_path, "roberta", pad_token_id=3), known)
    torch.testing.assert_close(flat, padded, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["deberta-v2", *nightly(["megatron-bert", "umt5"])])
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
