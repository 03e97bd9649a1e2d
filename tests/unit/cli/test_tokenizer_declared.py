"""A tokenizer's files say how many tokens it has: one of another model is known while planning, before a worker loads the encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.learning.encoder.declared import num_tokens
from tests.support.tiny_encoders import tiny_encoder, word_tokenizer


def write_words(folder: Path) -> None:
    word_tokenizer(words=("one", "two")).save_pretrained(folder)


def write_lines(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "a", "\u2028"]) + "\n")


@pytest.mark.parametrize("write", [write_words, write_lines])
def test_the_files_of_a_tokenizer_list_its_tokens(write: object, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    write(folder)  # type: ignore[operator]
    assert num_tokens(folder) == len(AutoTokenizer.from_pretrained(folder))


def test_the_tokenizer_of_another_model_is_refused_while_planning(tmp_path: Path) -> None:
    assert num_tokens(tmp_path) is None
    folder = tiny_encoder(tmp_path / "encoder", "bert")
    assert num_tokens(folder) == 53
    word_tokenizer(words=tuple(f"word{number}" for number in range(500))).save_pretrained(folder)
    reported = CliRunner().invoke(app, ["evaluate", str(folder), "--tasks", "scenes-sts", "--store", str(tmp_path / "store")])
    assert reported.exit_code == 2 and not (tmp_path / "store").exists()
    assert f"encoder: {folder}: found a tokenizer of 504 tokens and 53 word embeddings" in reported.stderr
