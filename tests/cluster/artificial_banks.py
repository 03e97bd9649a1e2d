"""Bank artifacts full of random numbers: what look-ups need of an entropy encoder without training one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sentdist.corpora.rows import RowsCorpus
from sentdist.objectives.entropy import Entropy
from sentdist.recipe.specs import EncoderSpec, Training
from sentdist.recipe.stages import Bank, Train
from sentdist.store.store import ArtifactStore


def bank_stage(number: int, *, dtype: str = "float16") -> Bank:
    """The stage of a bank; stages of different numbers have different keys."""
    corpus = RowsCorpus(source="generated/nli", source_revision="r")
    entropy = Train(
        encoder=EncoderSpec(checkpoint="minilm-l6", revision="r"),
        corpus=corpus,
        objective=Entropy(phi=0.01 * (number + 1)),
        training=Training(),
        seed=0,
    )
    return Bank.model_validate({"encoder": entropy, "corpus": corpus, "dtype": dtype})


def commit_bank(store: ArtifactStore, stage: Bank, *, num_sentences: int, width: int, rows_per_shard: int, seed: int = 0) -> np.ndarray:
    """Write an artifact for the stage; returns its (S, D) table."""
    table = np.random.default_rng(seed).standard_normal((num_sentences, width), dtype=np.float32).astype(stage.dtype)
    shape = {"num_sentences": num_sentences, "width": width, "dtype": stage.dtype, "rows_per_shard": rows_per_shard}
    with store.staged() as folder:
        (folder / "shards").mkdir()
        for shard, first in enumerate(range(0, num_sentences, rows_per_shard)):
            np.save(folder / "shards" / f"{shard:05d}.npy", table[first : first + rows_per_shard])
        (folder / "bank.json").write_text(json.dumps(shape))
        store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})
    return table


def store_with_banks(folder: Path) -> ArtifactStore:
    """A new store with the banks of stages 0 and 1, of three shards each."""
    store = ArtifactStore(folder / "store")
    for number in range(2):
        commit_bank(store, bank_stage(number), num_sentences=1000, width=384, rows_per_shard=400, seed=number)
    return store
