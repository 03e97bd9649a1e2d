"""The relation table beside an encoder: written, read, refused when damaged, unseen by those who do not know it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sentdist.errors import EncoderError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.learning.relation_file import NAMES_FILE, VECTORS_FILE, Relations, has_relations, read_relations, write_relations

TABLE = Relations(names=("entailment", "duplicate-question"), vectors=np.arange(8, dtype=np.float32).reshape(2, 4))


def test_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    assert not has_relations(tmp_path)
    write_relations(tmp_path, TABLE)
    assert has_relations(tmp_path)
    found = read_relations(tmp_path)
    assert found.names == TABLE.names
    np.testing.assert_array_equal(found.vectors, TABLE.vectors)


def _no_vectors(folder: Path) -> None:
    (folder / VECTORS_FILE).unlink()


def _cut_vectors(folder: Path) -> None:
    (folder / VECTORS_FILE).write_bytes((folder / VECTORS_FILE).read_bytes()[:20])


def _third_name(folder: Path) -> None:
    (folder / NAMES_FILE).write_text(json.dumps({"names": ["a", "b", "c"]}))


def _name_twice(folder: Path) -> None:
    (folder / NAMES_FILE).write_text(json.dumps({"names": ["a", "a"]}))


def _not_json(folder: Path) -> None:
    (folder / NAMES_FILE).write_text("entailment")


def _a_list(folder: Path) -> None:
    (folder / NAMES_FILE).write_text("[]")


def _not_finite(folder: Path) -> None:
    save_file({"relations": np.full((2, 4), np.nan, dtype=np.float32)}, folder / VECTORS_FILE)


@pytest.mark.parametrize("damage", [_no_vectors, _cut_vectors, _third_name, _name_twice, _not_json, _a_list, _not_finite])
def test_a_damaged_table_is_refused(tmp_path: Path, damage: object) -> None:
    write_relations(tmp_path, TABLE)
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(EncoderError, match=str(tmp_path)):
        read_relations(tmp_path)


def test_a_table_that_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="distinct names"):
        write_relations(tmp_path, Relations(names=("a",), vectors=TABLE.vectors))
    assert not has_relations(tmp_path)


def test_sentence_transformers_loads_an_encoder_with_a_table(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = SentenceEncoder.load(tiny_encoder_dir, pooling="cls_mlp").eval()
    encoder.save(tmp_path, card=EncoderCard(base_model="tiny", objective="relational"))
    before = SentenceTransformer(str(tmp_path), device="cpu").encode(["a dog runs", "a cat"])
    write_relations(tmp_path, Relations(names=("entailment",), vectors=np.ones((1, 32), dtype=np.float32)))
    np.testing.assert_array_equal(SentenceTransformer(str(tmp_path), device="cpu").encode(["a dog runs", "a cat"]), before)
    SentenceEncoder.load(tmp_path, pooling="cls_mlp")
