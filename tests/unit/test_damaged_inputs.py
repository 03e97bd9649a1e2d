"""Files that are read here, damaged: one sentence with the path, soon; never a traceback, never forever."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from sentdist.data.corpus import OpenedCorpus, build_corpus
from sentdist.data.sources import inspect_source, read_source
from sentdist.data.texts import open_texts
from sentdist.errors import SentdistError
from sentdist.inference.embedding_file import open_embeddings
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.relation_file import Relations, read_relations, write_relations
from sentdist.recipe.recipe import load_recipe, recipe_text
from sentdist.stages.resolve import FileResolver
from tests.support.damage import CERTAIN
from tests.support.planning import small_values
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

ROWS = [{"sentence1": one, "sentence2": other, "score": 1.5} for one, other in pairwise(SENTENCES)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole file of every kind."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ("my", "corpus"):
        (folder / name).mkdir()
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / "my/pairs.parquet")
    pyarrow.csv.write_csv(table, folder / "my/commas.csv")
    (folder / "my/lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "my/plain.txt").write_text("".join(f"{row['sentence1']}\n" for row in ROWS))
    build_corpus(table, columns=("sentence1", "sentence2"), folder=folder / "corpus")
    plain = SentenceEncoder.load(tiny_encoder(folder / "plain", "bert"), pooling="cls_mlp")
    plain.save(folder / "own", base_model="tiny")
    write_relations(folder, Relations(names=("one", "two"), vectors=np.ones((2, 4), dtype=np.float32)))
    np.save(folder / "a.npy", np.ones((3, 4), dtype=np.float32))
    (folder / "r.yaml").write_text(recipe_text(small_values()))
    return folder


def _source(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        inspect_source(name, data_root=folder)
        return read_source(name, data_root=folder).to_pylist()

    return read


def _texts(name: str, *columns: str) -> Callable[[Path], object]:
    return lambda folder: list(open_texts(str(folder / name), columns=columns).batches(3))


def _load(folder: Path) -> object:
    encoder = SentenceEncoder.load(folder)
    with torch.no_grad():
        return encoder(encoder.tokenize(["a man plays"]))


READERS: dict[str, Callable[[Path], object]] = {
    "r.yaml": lambda folder: load_recipe(folder / "r.yaml"),
    "my/pairs.parquet": _source("my/pairs"),
    "my/commas.csv": _source("my/commas.csv"),
    "my/lines.jsonl": _texts("my/lines.jsonl", "sentence1"),
    "my/plain.txt": _texts("my/plain.txt"),
    "corpus/sentences.arrow": lambda folder: [list(block) for block in OpenedCorpus.open(folder / "corpus").sentence_blocks()],
    "corpus/rows.arrow": lambda folder: OpenedCorpus.open(folder / "corpus").ids.tolist(),
    "plain/config.json": lambda folder: FileResolver().encoder(str(folder / "plain"), revision=None, where="encoder.checkpoint"),
    "plain/model.safetensors": lambda folder: _load(folder / "plain"),
    "plain/tokenizer.json": lambda folder: _load(folder / "plain"),
    "own/modules.json": lambda folder: _load(folder / "own"),
    "own/2_Dense/model.safetensors": lambda folder: _load(folder / "own"),
    "relations.json": read_relations,
    "relations.safetensors": read_relations,
    "a.npy": lambda folder: open_embeddings(folder / "a.npy"),
}


class _Endless(BaseException):
    """Reading did not end; not an Exception, which readers would take for damage."""


def _expired(*_: object) -> None:
    raise _Endless


@pytest.mark.parametrize("name", READERS)
def test_damage_is_reported_in_a_sentence(name: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    READERS[name](whole)
    before = signal.signal(signal.SIGALRM, _expired)
    try:
        for damage, harm in CERTAIN.items():
            if damage == "deep" and name == "my/plain.txt":
                continue  # what is left is text, too
            root = tmp_path / damage
            shutil.copytree(whole, root)
            harm(root / name)
            signal.alarm(60)
            with pytest.raises(SentdistError) as caught:
                READERS[name](root)
            signal.alarm(0)
            message = str(caught.value)
            assert str((root / name).parent) in message and len(message.splitlines()) == 1 and "Traceback" not in message, damage
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
