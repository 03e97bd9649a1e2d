"""Paraphrases by a sequence-to-sequence checkpoint: order, seeds, refusals; by a tiny random T5."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.errors import EncoderError
from sentdist.learning import paraphrase as module
from sentdist.learning.paraphrase import paraphrase
from tests.support.tiny_encoders import SENTENCES, WORDS, tiny_writer


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


def test_on_a_processor_no_gpu_is_seeded(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fork_rng would not give its generator back: a training beside it would draw on from another place."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(torch.cuda, "manual_seed", seeded.append)
    paraphrase(SENTENCES[:1], checkpoint=writer, max_tokens=8, seed=1)
    assert not seeded


def test_what_a_stage_before_it_computed_in_plays_no_part(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU "high" is TensorFloat-32, which rounds: other words would be drawn behind a training in tf32 than in a fresh process."""
    generate, used = module._generate, set[str]()

    def seen(*arguments: Any) -> list[str]:
        used.add(torch.get_float32_matmul_precision())
        return generate(*arguments)

    monkeypatch.setattr(module, "_generate", seen)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        paraphrase(SENTENCES, checkpoint=writer, max_tokens=8)
        assert (used, torch.get_float32_matmul_precision()) == ({"highest"}, "high")
    finally:
        torch.set_float32_matmul_precision(before)


def test_equal_sentences_get_different_paraphrases(writer: Path) -> None:
    assert len(set(paraphrase(["a dog runs"] * 6, checkpoint=writer, max_tokens=8))) > 1


def test_a_prefix_stands_before_each_sentence(writer: Path) -> None:
    prefixed = paraphrase(SENTENCES, checkpoint=writer, prefix="music ", max_tokens=8)
    assert prefixed == paraphrase([f"music {sentence}" for sentence in SENTENCES], checkpoint=writer, prefix="", max_tokens=8)
    assert prefixed != paraphrase(SENTENCES, checkpoint=writer, prefix="", max_tokens=8)


def test_words_are_drawn_from_the_likeliest_that_hold_so_much_of_the_probability(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = ["a dog runs"] * 300
    monkeypatch.setattr(module, "TOP_P", 1.0)
    said = {word for answer in paraphrase(many, checkpoint=writer, max_tokens=8) for word in answer.split()}
    assert len(said) == len(WORDS), "however many they are"
    monkeypatch.setattr(module, "TOP_P", 1e-6)
    assert len(set(paraphrase(many, checkpoint=writer, max_tokens=8))) == 1


def test_how_many_words_are_drawn_from_does_not_follow_what_a_checkpoint_says(writer: Path, tmp_path: Path) -> None:
    """Released ones say `top_k` in a file beside their weights."""
    shutil.copytree(writer, greedy := tmp_path / "greedy")
    said = json.loads((greedy / "generation_config.json").read_text())
    (greedy / "generation_config.json").write_text(json.dumps(said | {"top_k": 1}))
    assert paraphrase(SENTENCES, checkpoint=greedy, max_tokens=8) == paraphrase(SENTENCES, checkpoint=writer, max_tokens=8)


def test_nothing_to_paraphrase(writer: Path) -> None:
    assert paraphrase([], checkpoint=writer) == []


def test_no_checkpoint_is_refused() -> None:
    with pytest.raises(EncoderError, match=r"augmentation\.checkpoint: found none; expected a sequence-to-sequence model"):
        paraphrase(["a dog runs"], checkpoint=None)


def test_an_encoder_is_refused(tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match="a bert, which has no decoder"):
        paraphrase(["a dog runs"], checkpoint=tiny_encoder_dir)


def test_an_absent_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no such folder"):
        paraphrase(["a dog runs"], checkpoint=tmp_path / "parrot")
