"""Checkpoints whose embeddings would be wrong are refused, with what to do, by loading and while planning alike; and rightly so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from sentdist.errors import EncoderError
from sentdist.learning.encoder.declared import CLASSES_WITHOUT_MASK, lacks_mask_token, why_refused
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import UnknownWords
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_encoders import released_t5, tiny_encoder

# What one would write, and what is said of it.
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "convolutions": ({"model_type": "convbert"}, "a convbert: its convolutions read what pads a sentence"),
    "trigrams": ({"model_type": "mobilebert"}, "a mobilebert with trigram_input"),
    "blocks": ({"model_type": "big_bird", "attention_type": "block_sparse"}, "original_full"),
    "blocks by default": ({"model_type": "big_bird"}, "original_full"),
    "a language": ({"model_type": "xmod", "languages": ["en_XX", "de_DE"]}, "without default_language.*'de_DE'"),
    "another width": ({"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512}, "word_embed_proj_dim=512"),
    "distances": ({"model_type": "bert", "position_embedding_type": "relative_key"}, "a bert with position_embedding_type='relative_key'"),
    "Jina v2": ({"model_type": "bert", "position_embedding_type": "alibi"}, "computes as if it were absolute"),
    "Jina v3's code": ({"model_type": "xlm-roberta", "position_embedding_type": "rotary"}, "jinaai/jina-embeddings-v3-hf"),
    "GTE's code": ({"model_type": "new", "position_embedding_type": "rope"}, "model_type gte"),
    "Nomic v2": ({"model_type": "nomic_bert", "activation_function": "gelu"}, "activation_function='gelu'.*'swiglu'"),
    "many kinds of input": ({"model_type": "embedding_gemma2"}, "images and sound"),
}


COMPUTED: dict[str, dict[str, object]] = {
    "nothing": {},
    "one token at a time": {"model_type": "mobilebert", "trigram_input": False},
    "whole attention": {"model_type": "big_bird", "attention_type": "original_full"},
    "a language": {"model_type": "xmod", "default_language": "en_XX"},
    "one width": {"model_type": "opt", "hidden_size": 768},
    "a table": {"model_type": "bert", "position_embedding_type": "absolute"},
    "a word that its family never read": {"model_type": "gte", "position_embedding_type": "rope"},
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


def test_what_is_right_is_not_refused() -> None:
    assert {name: why_refused(config) for name, config in COMPUTED.items()} == dict.fromkeys(COMPUTED)


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
    assert not (has_one and lacks_mask_token(tmp_path))
    assert has_one or lacks_mask_token(tmp_path), "all of these say it"


@pytest.mark.parametrize(
    ("sentences", "number", "first"),
    [
        (("the dog", "a cat"), 0, ""),
        (("the zebra", "zebra dog"), 0, ""),
        (("the dog", "你好", "zebra", "a"), 2, "你好"),
    ],
)
def test_sentences_without_a_known_word_are_counted(tiny_encoder_dir: Path, sentences: tuple[str, ...], number: int, first: str) -> None:
    encoder, unknown = SentenceEncoder.load(tiny_encoder_dir), UnknownWords()
    for part in (sentences[:2], sentences[2:]):
        if part:
            unknown.count(encoder.tokenizer, encoder.tokenize(part), part)
    assert (unknown.num_sentences, unknown.first) == (number, first)
