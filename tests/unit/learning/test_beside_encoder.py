"""What stands beside an encoder: its table of relations, and a checkpoint that paraphrases for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from sentdist.errors import EncoderError
from sentdist.learning.paraphrase import paraphrase
from sentdist.learning.relation_file import NAMES_FILE, VECTORS_FILE, Relations, has_relations, read_relations, write_relations
from tests.support.tiny_encoders import SENTENCES, tiny_writer

TABLE = Relations(names=("entailment", "duplicate-question"), vectors=np.arange(8, dtype=np.float32).reshape(2, 4))


def test_a_damaged_table_is_refused_and_none_is_written(tmp_path: Path) -> None:
    damages: list[tuple[str, Callable[[Path], object]]] = [
        (VECTORS_FILE, Path.unlink),
        (VECTORS_FILE, lambda file: file.write_bytes(file.read_bytes()[:20])),
        (VECTORS_FILE, lambda file: save_file({"relations": np.full((2, 4), np.nan, dtype=np.float32)}, file)),
        *(
            (NAMES_FILE, lambda file, text=text: file.write_text(text))
            for text in ('{"names": ["a", "b", "c"]}', '{"names": ["a", "a"]}', "no", "[]")
        ),
    ]
    for name, damage in damages:
        write_relations(tmp_path, TABLE)
        damage(tmp_path / name)
        with pytest.raises(EncoderError, match=str(tmp_path)):
            read_relations(tmp_path)
    with pytest.raises(EncoderError, match="names"):
        write_relations(tmp_path / "other", Relations(names=("a",), vectors=TABLE.vectors))
    assert not has_relations(tmp_path / "other")


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_writer(tmp_path_factory.mktemp("tiny-t5"))


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
