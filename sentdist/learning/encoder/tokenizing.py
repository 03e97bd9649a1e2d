"""From sentences to token ids: the same for a batch of a few and for a whole corpus, and the digest by which tokenizers differ."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
import transformers
from transformers import PreTrainedTokenizerBase as Tokenizer

from sentdist.errors import DataError

__all__ = ["Tokenizer", "token_ids", "tokenizer_digest"]


def token_ids(tokenizer: Tokenizer, sentences: Sequence[str], *, max_length: int, first: int = 0) -> tuple[list[list[int]], int]:
    """The token ids of each sentence, special ones included, at most `max_length`; and how many sentences lost their end.

    first: index of the first sentence, for errors, which count from 1. DataError for a sentence without a visible character.
    """
    for index, sentence in enumerate(sentences):
        if not sentence.strip():
            raise DataError(
                where=f"sentence {first + index + 1:,}",
                found=repr(sentence),
                expected="a sentence with at least one visible character",
                remedy="Fill it in, or leave it out.",
            )
    encoded = tokenizer(list(sentences), truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=False)
    num_truncated = sum(bool(encoding.overflowing) for encoding in encoded.encodings or ())
    ids: list[list[int]] = encoded["input_ids"]
    return ids, num_truncated


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """`sha256:…` of all that the ids of a sentence depend on beside its length: rules, vocabulary, and the library that applies them.

    Equal for a checkpoint and for an encoder that was trained from it and saved.
    """
    if tokenizer.is_fast:
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()  # each call sets both as it needs them
        backend.no_padding()
        facts = [tokenizers.__version__, tokenizer.truncation_side, str(tokenizer.split_special_tokens), backend.to_str()]
        return _digest(fact.encode() for fact in facts)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        files = [path for path in sorted(Path(scratch).rglob("*")) if path.is_file()]
        return _digest([transformers.__version__.encode(), *(part for path in files for part in (path.name.encode(), path.read_bytes()))])


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8))
        found.update(part)
    return f"sha256:{found.hexdigest()[:32]}"
