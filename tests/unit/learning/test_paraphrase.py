"""Paraphrases by a sequence-to-sequence checkpoint: order, seeds, refusals; by a tiny random T5."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sentdist.learning.paraphrase import paraphrase
from tests.support.tiny_encoders import SENTENCES, tiny_writer


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_writer(tmp_path_factory.mktemp("tiny-t5"))


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


def test_a_prefix_stands_before_each_sentence(writer: Path) -> None:
    prefixed = paraphrase(SENTENCES, checkpoint=writer, prefix="music ", max_tokens=8)
    assert prefixed == paraphrase([f"music {sentence}" for sentence in SENTENCES], checkpoint=writer, prefix="", max_tokens=8)
    assert prefixed != paraphrase(SENTENCES, checkpoint=writer, prefix="", max_tokens=8)
