"""Paraphrases by a sequence-to-sequence checkpoint: order, seeds, refusals; by a tiny random T5."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from encoders import SENTENCES, word_tokenizer
from transformers import T5Config, T5ForConditionalGeneration

from sentdist.errors import EncoderError
from sentdist.learning.paraphrase import paraphrase


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random T5 of 2 layers over the words of the tests; it ends a sentence at [SEP]."""
    folder = tmp_path_factory.mktemp("tiny-t5")
    tokenizer = word_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        pad_token_id=0, decoder_start_token_id=0, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_each_sentence_gets_one_in_its_place(writer: Path) -> None:
    answers = paraphrase(SENTENCES, checkpoint=writer, max_tokens=8)
    assert len(answers) == len(SENTENCES) and all(answers)
    assert all("[" not in answer for answer in answers)
    assert answers != list(SENTENCES)


def test_the_seed_decides_and_torchs_generator_is_left_alone(writer: Path) -> None:
    before = torch.get_rng_state()
    first = paraphrase(SENTENCES, checkpoint=writer, max_tokens=8, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert paraphrase(SENTENCES, checkpoint=writer, max_tokens=8, seed=1) == first
    assert paraphrase(SENTENCES, checkpoint=writer, max_tokens=8, seed=2) != first


def test_equal_sentences_get_different_paraphrases(writer: Path) -> None:
    assert len(set(paraphrase(["a dog runs"] * 6, checkpoint=writer, max_tokens=8))) > 1


def test_nothing_to_paraphrase(writer: Path) -> None:
    assert paraphrase([], checkpoint=writer) == []


def test_no_checkpoint_is_refused() -> None:
    with pytest.raises(EncoderError, match=r"paraphrase\.checkpoint: found none; expected a sequence-to-sequence model"):
        paraphrase(["a dog runs"], checkpoint=None)


def test_an_encoder_is_refused(tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match="a bert, which has no decoder"):
        paraphrase(["a dog runs"], checkpoint=tiny_encoder_dir)


def test_an_absent_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no such folder"):
        paraphrase(["a dog runs"], checkpoint=tmp_path / "parrot")
