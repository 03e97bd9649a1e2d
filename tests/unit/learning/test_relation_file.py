"""The relation table beside an encoder: written, read, refused when damaged, unseen by those who do not know it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sentdist.errors import EncoderError
from sentdist.learning.encoder.card import EncoderCard
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.relation_file import NAMES_FILE, VECTORS_FILE, Relations, has_relations, read_relations, write_relations

TABLE = Relations(names=("entailment", "duplicate-question"), vectors=np.arange(8, dtype=np.float32).reshape(2, 4))


def test_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    assert not has_relations(tmp_path)
    write_relations(tmp_path, TABLE)
    assert has_relations(tmp_path)
    found = read_relations(tmp_path)
    assert found.names == TABLE.names
    np.testing.assert_array_equal(found.vectors, TABLE.vectors)


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


def test_sentence_transformers_loads_an_encoder_with_a_table(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = SentenceEncoder.load(tiny_encoder_dir, pooling="cls_mlp").eval()
    encoder.save(tmp_path, card=EncoderCard(base_model="tiny", objective="relational"))
    before = SentenceTransformer(str(tmp_path), device="cpu").encode(["a dog runs", "a cat"])
    write_relations(tmp_path, Relations(names=("entailment",), vectors=np.ones((1, 32), dtype=np.float32)))
    np.testing.assert_array_equal(SentenceTransformer(str(tmp_path), device="cpu").encode(["a dog runs", "a cat"]), before)
    SentenceEncoder.load(tmp_path, pooling="cls_mlp")
