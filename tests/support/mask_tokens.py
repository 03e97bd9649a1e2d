"""A tiny encoder whose tokenizer can mask: the unknown word doubles as mask token, so that the vocabulary stays as it is."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from tests.support.tiny_encoders import tiny_encoder


def maskable_encoder(folder: Path, family: str = "bert", **settings: object) -> Path:
    """Write the tiny encoder of a family, dropout as in `settings`, with a mask token."""
    tiny_encoder(folder, family, **settings)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = "[UNK]"
    tokenizer.save_pretrained(folder)
    return folder
