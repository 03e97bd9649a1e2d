"""Token ids of a corpus: what the tokenizer gives for each sentence, made once and shared by all trainings that read it alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from sentdist.errors import DataError, EncoderError
from sentdist.learning.encoder import tokens
from sentdist.learning.encoder.tokens import TokenTable, token_ids
from sentdist.recipe.stages import Tokens, Train
from sentdist.stages import train_setup
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.rungs import train_here
from sentdist.stages.train_setup import load_encoder, tokens_of
from sentdist.store.garbage import dependents
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Any:
    """A training that needs no other, its corpus built, and its context."""
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "rows_per_shard": 7})
    plan, context = tiny_plan(values, data=write_data(tmp_path_factory.mktemp("data")), store=tmp_path_factory.mktemp("store"))
    train = next(stage for stage in plan.stages if isinstance(stage, Train) and not stage.banks)
    build_here(train.corpus, context)
    return train, context


def _kept(context: Context) -> list[str]:
    return [artifact.record.place for artifact in context.store.artifacts(Tokens.kind)]


def test_seeds_and_trained_encoders_share_the_tokens_of_a_corpus(prepared: Any) -> None:
    train, context = prepared
    build_here(train, context)
    other = train.model_copy(update={"seed": train.seed + 1})
    continued = train.model_copy(update={"start": train})
    kept = _kept(context)
    with patch.object(train_setup, "token_ids", side_effect=AssertionError("made again")):
        train_here(other, context)
        train_here(continued, context)
    assert _kept(context) == kept
    corpus = context.store.get(train.corpus)
    assert corpus is not None
    assert set(kept) <= {artifact.record.place for artifact in dependents(context.store, corpus)}


def test_what_cannot_be_read_is_said(prepared: Any, tmp_path: Path) -> None:
    train, context = prepared
    encoder = load_encoder(train, context)
    table = tokens_of(train, context, encoder.tokenizer)
    with pytest.raises(DataError, match=rf"sentence ids from 0 to {table.num_sentences}.*0 to {table.num_sentences - 1}"):
        table.batch(np.array([0, table.num_sentences]))
    with pytest.raises(DataError, match=r"sentence 13: .*visible"):
        token_ids(encoder.tokenizer, ["a man", " "], max_length=9, first=11)
    np.save(tmp_path / tokens.IDS, np.arange(9, dtype=np.uint16))
    np.save(tmp_path / tokens.BOUNDS, np.array([0, 4, 8]))
    with pytest.raises(DataError, match="do not fit together"):
        TokenTable.open(tmp_path)
    too_long = train.model_copy(update={"training": train.training.model_copy(update={"max_length": 4000})})
    with pytest.raises(EncoderError, match="max_length: found 4000"):
        train_here(too_long, context)
