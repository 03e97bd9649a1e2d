"""Loading, cutting, saving and embedding with an encoder, and what it says about bad input."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoTokenizer

from sentdist.errors import DataError, EncoderError, RecipeError, ResourceError
from sentdist.learning.encoder import encode as encode_module
from sentdist.learning.encoder import encode as packed_linear
from sentdist.learning.encoder.declared import CLASSES_WITHOUT_MASK, Checkpoint
from sentdist.learning.encoder.encode import encode, length_sorted
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import UnknownWords, collate
from sentdist.learning.optimization import Learner, Optimization, parameter_groups
from sentdist.stages.resolve import FileResolver
from tests.support import make
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_encoders import MAX_POSITIONS, SENTENCES, WIDTH, released_t5, tiny_encoder, word_tokenizer

# float32 sums in another order, through up to seven layers: on a Xeon with AVX-512 one number in 256 was 2.7e-6 of itself away


@pytest.mark.parametrize("sentences", [[], [[1], []]])
def test_collate_refuses_nothing(sentences: list[list[int]]) -> None:
    with pytest.raises(DataError, match=r"no (sentences|token)"):
        collate(sentences)


def test_minilm_equals_sentence_transformers(minilm: Path) -> None:
    encoder = SentenceEncoder.load("minilm-l6")
    assert (encoder.pooling, encoder.max_length, encoder.width) == ("mean", 256, 384)
    ours = encode(encoder, SENTENCES)
    theirs = SentenceTransformer(str(minilm), device="cpu").encode(list(SENTENCES))
    np.testing.assert_allclose(ours / np.linalg.norm(ours, axis=1, keepdims=True), theirs, atol=1e-6)


def test_encode_keeps_the_order_whatever_the_batches(tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir).train()
    expected = encode(encoder, SENTENCES)
    for budget in (1, 13, 50):
        np.testing.assert_allclose(encode(encoder, SENTENCES, tokens_per_batch=budget), expected, atol=2e-6)
    assert encoder.training, "encode leaves the mode as it was"
    assert encode(encoder, []).shape == (0, 32)
    with pytest.raises(ResourceError, match="tokens_per_batch"):
        encode(encoder, SENTENCES, tokens_per_batch=0)
    encode(encoder.eval(), SENTENCES)
    assert not encoder.training
    monkeypatch.setattr(encode_module, "_SENTENCES_AT_ONCE", 3)
    np.testing.assert_allclose(encode(encoder, SENTENCES), expected, atol=2e-6)


def test_batches_stay_under_their_budget_and_cover_all() -> None:
    tokens = collate([[1] * length for length in (9, 2, 2, 30, 5, 5, 1)])
    batches = list(length_sorted(tokens, tokens_per_batch=12))
    assert sorted(np.concatenate([rows for rows, _ in batches]).tolist()) == list(range(7))
    assert all(part.num_tokens <= 12 or part.num_sentences == 1 for _, part in batches)


def test_missing_folder_names_its_neighbour(tiny_encoder_dir: Path) -> None:
    wrong = tiny_encoder_dir.parent / (tiny_encoder_dir.name + "x")
    with pytest.raises(EncoderError, match="Did you mean") as caught:
        SentenceEncoder.load(wrong)
    assert str(tiny_encoder_dir) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, "bert")
    word_tokenizer(words=tuple(f"word{number}" for number in range(500))).save_pretrained(folder)
    with pytest.raises(EncoderError, match="504"):
        SentenceEncoder.load(folder)


def test_weights_of_another_model_are_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_encoder_dir, tmp_path / "deeper")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(EncoderError, match=r"no weights for encoder\.layer\.2"):
        SentenceEncoder.load(folder)


@pytest.mark.parametrize(
    ("pooling", "module", "change", "reported"),
    [
        ("cls_mlp", "2_Dense", {"activation_function": "torch.nn.modules.linear.Identity"}, "Identity"),
        ("cls_mlp", "2_Dense", {"use_residual": True}, "residual"),
        ("cls_mlp", "2_Dense", {"out_features": 16}, "'out_features': 16"),
        ("first_last", "1_WeightedLayerPooling", {"layer_start": 2}, "'layer_start': 2"),
    ],
)
def test_modules_that_compute_otherwise_than_ours_are_refused(
    pooling: str, module: str, change: dict[str, object], reported: str, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    """Else another encoder's embeddings would come out, in silence."""
    SentenceEncoder.load(tiny_encoder_dir, pooling=pooling).save(tmp_path / "saved", base_model="tiny")
    assert SentenceEncoder.load(tmp_path / "saved").pooling == pooling
    config = tmp_path / "saved" / module / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(EncoderError, match=reported):
        SentenceEncoder.load(tmp_path / "saved")


def test_trained_weights_of_layers_are_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    pooling = "first_last"
    SentenceEncoder.load(tiny_encoder_dir, pooling=pooling).save(tmp_path / "saved", base_model="tiny")
    assert SentenceEncoder.load(tmp_path / "saved").pooling == pooling
    save_file({"layer_weights": torch.tensor([1.0, 3.0])}, tmp_path / "saved" / "1_WeightedLayerPooling" / "model.safetensors")
    with pytest.raises(EncoderError, match=r"1\.0, 3\.0"):
        SentenceEncoder.load(tmp_path / "saved")
    assert SentenceEncoder.load(tmp_path / "saved", pooling="mean").pooling == "mean"


def test_pooling_that_we_cannot_compute_is_refused_unless_one_is_named(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    SentenceEncoder.load(tiny_encoder_dir).save(tmp_path / "saved", base_model="tiny")
    pooling = tmp_path / "saved" / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"pooling_mode": ["cls", "mean"]}))
    with pytest.raises(EncoderError, match=r"\['cls', 'mean'\]"):
        SentenceEncoder.load(tmp_path / "saved")
    assert SentenceEncoder.load(tmp_path / "saved", pooling="cls").pooling == "cls"


def test_settings_out_of_range_are_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    for name, value in (
        ("max_length", MAX_POSITIONS + 1), ("max_length", 2), ("attention_dropout", 1.0), ("hidden_dropout", -0.1),
        ("revision", "abc"),
    ):  # fmt: skip
        with pytest.raises(EncoderError, match=name):
            SentenceEncoder.load(tiny_encoder_dir, **{name: value})
    with pytest.raises(EncoderError):
        SentenceEncoder.load(tmp_path)
    with pytest.raises(EncoderError, match="max_length"):
        SentenceEncoder.load(tiny_encoder_dir).tokenize(["a dog"], max_length=400)


@pytest.mark.parametrize("family", ["tiny_encoder_dir", "tiny_padded_dir"])
def test_the_first_layers_are_kept_as_they_are(family: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder: Path = request.getfixturevalue(family)
    whole, cut = SentenceEncoder.load(folder).eval(), SentenceEncoder.load(folder, layers=1).eval()
    assert (whole.model.config.num_hidden_layers, cut.model.config.num_hidden_layers) == (2, 1)
    weights = dict(whole.named_parameters())
    kept = dict(cut.named_parameters())
    assert kept.keys() == {name for name in weights if ".layer.1." not in name}
    assert all(torch.equal(weight, weights[name]) for name, weight in kept.items())
    cut.save(tmp_path / "cut", base_model="tiny")
    again = SentenceEncoder.load(tmp_path / "cut").eval()
    assert again.model.config.num_hidden_layers == 1
    with torch.no_grad():
        torch.testing.assert_close(again(again.tokenize(SENTENCES)), cut(cut.tokenize(SENTENCES)), rtol=0, atol=0)


def test_more_layers_than_there_are_is_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="3"):
        SentenceEncoder.load(tiny_encoder_dir, layers=3)
    values = tiny_values(tiny_encoder_dir, methods={"base": {"encoder": {"layers": 3}}}, baseline="base")
    with pytest.raises(RecipeError, match=r"encoder.layers"):
        tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")


MANY = [f"{sentence} {number}" for number in range(60) for sentence in SENTENCES]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is packed until this is undone."""
    monkeypatch.setattr(packed_linear, "_packs_exactly", lambda matmul_precision: False)
    return monkeypatch


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


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "convolutions": ({"model_type": "convbert"}, "a convbert: its convolutions read padding"),
    "Jina v2": ({"model_type": "bert", "position_embedding_type": "alibi"}, "computes as if it were absolute"),
    "Jina v3's code": ({"model_type": "xlm-roberta", "position_embedding_type": "rotary"}, "jinaai/jina-embeddings-v3-hf"),
    "GTE's code": ({"model_type": "new", "position_embedding_type": "rope"}, "model_type gte"),
    "many kinds of input": ({"model_type": "embedding_gemma2"}, "images and sound"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_loading_and_planning_say_the_same(name: str, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    config, reported = REFUSED[name]
    folder = tmp_path / "encoder"
    folder.mkdir()
    for file in tiny_encoder_dir.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError, match=reported) as loading:
        SentenceEncoder.load(folder)
    with pytest.raises(EncoderError, match=reported) as planning:
        FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")
    assert planning.value.where.startswith("encoder.checkpoint") and planning.value.remedy == loading.value.remedy


def test_adapters_are_not_left_out_without_a_word(tmp_path: Path) -> None:
    place = "text-matching/adapter_config.json"
    folder = tiny_encoder(tmp_path / "encoder", "jina_embeddings_v3")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_text("{}")
    with pytest.raises(EncoderError, match="adapters"):
        SentenceEncoder.load(folder)
    with pytest.raises(EncoderError, match="adapters"):
        FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")


UNSAID = "unsaid"


def changed(folder: Path, **fields: object) -> None:
    """Set fields of the tokenizer's configuration, or leave them out."""
    path = folder / "tokenizer_config.json"
    values = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in values.items() if value != UNSAID}))


@pytest.mark.parametrize(
    ("named", "is_new", "further", "mask"),
    [
        ("BertTokenizer", False, None, UNSAID), ("BertTokenizer", True, None, None), (CLASSES_WITHOUT_MASK[0], True, None, UNSAID),
        (CLASSES_WITHOUT_MASK[0], False, None, "[UNK]"), (UNSAID, True, "[UNK]", UNSAID),
    ],
)  # fmt: skip
def test_it_is_known_to_lack_one_only_where_it_does(
    named: str, is_new: bool, further: str | None, mask: str | None, tmp_path: Path
) -> None:
    released_t5(tmp_path) if "T5" in named else tiny_encoder(tmp_path, "bert")
    mask = "<unk>" if "T5" in named and mask == "[UNK]" else mask
    changed(tmp_path, tokenizer_class=named, mask_token=mask, added_tokens_decoder={} if is_new else UNSAID)
    if further is not None:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": further}))
    has_one = AutoTokenizer.from_pretrained(tmp_path).mask_token is not None
    assert Checkpoint.open(tmp_path).lacks_mask_token == (not has_one), "all of these say it"


@pytest.mark.parametrize(
    ("sentences", "number", "first"),
    [(("the dog", "a cat"), 0, ""), (("the zebra", "zebra dog"), 0, ""), (("the dog", "你好", "zebra", "a"), 2, "你好")],
)
def test_sentences_without_a_known_word_are_counted(tiny_encoder_dir: Path, sentences: tuple[str, ...], number: int, first: str) -> None:
    encoder, unknown = SentenceEncoder.load(tiny_encoder_dir), UnknownWords()
    for part in (sentences[:2], sentences[2:]):
        if part:
            unknown.count(encoder.tokenizer, encoder.tokenize(part), part)
    assert (unknown.num_sentences, unknown.first) == (number, first)


RATE, DECAY = 1e-3, 0.95


# Where a family keeps its layers; layer 3 of 4 is the last.
LAYERS = {"bert": r"encoder\.layer\.(\d)\.", "t5": r"encoder\.block\.(\d)\.", "distilbert": r"transformer\.layer\.(\d)\."}


def learner_of(family: str, folder: Path) -> Learner:
    depth = {"n_layers": 4} if family == "distilbert" else {"num_hidden_layers": 4}
    torch.manual_seed(0)
    objective = make.regression(width=WIDTH, loss="mse")
    encoder = SentenceEncoder.load(tiny_encoder(folder / family, family, **depth))
    return Learner(encoder, objective)


def rates_of(module: nn.Module, layer_decay: float) -> dict[str, float]:
    optimization = Optimization(num_steps=1, lr=RATE, layer_decay=layer_decay)
    rates = {id(parameter): group["lr"] for group in parameter_groups(module, optimization) for parameter in group["params"]}
    return {name: rates[id(parameter)] for name, parameter in module.named_parameters()}


def expected_rate(family: str, name: str) -> float:
    """The released code's loop: from the last layer, which has the base rate, each layer below has 0.95 of it;
    all the rest has the base rate. So has the table of distances, which all of T5's layers read: with the first layer's rate, it had less
    than MPNet's, which lies outside the layers."""
    layer = None if "relative_attention_bias" in name else re.search(LAYERS[family], name)
    rate = RATE
    for _ in range(0 if layer is None else 3 - int(layer.group(1))):
        rate *= DECAY
    return rate


@pytest.mark.parametrize("family", list(LAYERS))
def test_layers_get_less_than_those_above(family: str, tmp_path: Path) -> None:
    learner = learner_of(family, tmp_path)
    found = rates_of(learner, DECAY)
    assert found == pytest.approx({name: expected_rate(family, name) for name in found})
    rates = sorted(set(found.values()))
    assert rates == pytest.approx([RATE * DECAY**3, RATE * DECAY**2, RATE * DECAY, RATE])
    full = {name for name, rate in found.items() if rate == RATE}
    assert {"heads.head.linear.weight", "heads.head.linear.bias"} <= full
    assert any("embeddings" in name or name == "encoder.model.shared.weight" for name in full)


def test_a_decay_without_layers_is_refused(tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path / "albert", "albert"))
    with pytest.raises(RecipeError, match=r"layer_decay"):
        parameter_groups(encoder, Optimization(num_steps=1, layer_decay=0.95))
    assert parameter_groups(encoder, Optimization(num_steps=1))
