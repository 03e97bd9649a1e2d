"""Which sentences hold no word that a tokenizer knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import UnknownWords


@pytest.mark.parametrize(
    ("sentences", "number", "first"),
    [
        ((), 0, ""),
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
