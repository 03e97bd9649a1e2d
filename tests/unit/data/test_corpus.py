"""Corpora and batches: sentences come back by id, no sentence is twice in a batch, the same from seed and epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentdist.data.corpus import CorpusFacts, OpenedCorpus, build_corpus, first_of_each_row, number_by_appearance
from sentdist.data.sampler import epoch_batches, shuffled
from sentdist.errors import DataError

PAIRS = ("one", "two")


def _table(rows: list[tuple[str | None, ...]], names: tuple[str, ...] = PAIRS) -> pa.Table:
    return pa.table({name: pa.array([row[place] for row in rows], pa.large_string()) for place, name in enumerate(names)})


def _rows_of(corpus: OpenedCorpus) -> list[tuple[str, ...]]:
    return list(zip(*(corpus.sentences(column) for column in corpus.ids), strict=True))


def test_ids_follow_the_first_appearance_row_by_row(tmp_path: Path) -> None:
    facts = build_corpus(_table([("b", "a"), ("c", "b"), ("a", "d e")]), columns=PAIRS, folder=tmp_path)
    corpus = OpenedCorpus.open(tmp_path)
    assert [sentence for block in corpus.sentence_blocks() for sentence in block] == ["b", "a", "c", "d e"]
    assert corpus.ids.tolist() == [[0, 2, 1], [1, 0, 3]]
    assert corpus.column_names == ("anchor", "positive") and corpus.ids.dtype == np.int32 and not corpus.ids.flags.writeable
    assert (corpus.num_rows, corpus.num_sentences) == (3, 4)
    assert facts == CorpusFacts(
        num_rows=3, num_sentences=4, num_dropped_duplicates=0, num_repeating=0, num_over_long=0, mean_words=1.25, max_words=2
    )


def test_a_limit_keeps_distinct_rows_in_order_and_reversed_rows_repeat_none(tmp_path: Path) -> None:
    build_corpus(_table([("a", "b"), ("b", "a"), ("c", "d")]), columns=PAIRS, folder=tmp_path / "reversed", add_reversed=True)
    assert _rows_of(OpenedCorpus.open(tmp_path / "reversed")) == [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    rows = [(f"s {number}", "t") for number in range(50)]
    everything = _table([row for row in rows for _ in range(2)])
    facts = build_corpus(everything, columns=PAIRS, folder=tmp_path, limit=20, seed=3)
    kept = _rows_of(OpenedCorpus.open(tmp_path))
    assert facts.num_rows == len(kept) == len(set(kept)) == 20
    assert kept == [row for row in rows if row in set(kept)]
    assert (facts.num_sentences, facts.num_dropped_duplicates) == (21, 50), "rows beyond the limit are no duplicates"
    build_corpus(everything, columns=PAIRS, folder=tmp_path / "again", limit=20, seed=3)
    assert _rows_of(OpenedCorpus.open(tmp_path / "again")) == kept
    build_corpus(everything, columns=PAIRS, folder=tmp_path / "other", limit=20, seed=4)
    assert _rows_of(OpenedCorpus.open(tmp_path / "other")) != kept


@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        ([("a", "b")], {"columns": ("one", "three")}, "expected columns one, three"),
        ([("a", "b"), ("c", "d"), ("e", " \t")], {}, "an empty sentence in row 3, column two"),
        ([("a", None)], {}, "an empty sentence in row 1, column two"),
        ([], {}, "no rows"),
    ],
)
def test_what_makes_no_corpus_is_refused(rows: list[tuple[str | None, ...]], settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        build_corpus(_table(rows), folder=tmp_path, **{"columns": PAIRS, **settings})
    with pytest.raises(DataError, match="column n of type double; expected text"):
        build_corpus(pa.table({"one": ["a"], "n": [float("nan")]}), columns=("one", "n"), folder=tmp_path)


def test_numbering_and_repeated_rows() -> None:
    identity = np.array([[5, 3], [5, 3], [3, 9], [3, 5]])
    assert first_of_each_row(identity).tolist() == [True, False, True, True]
    ids, first_cells = number_by_appearance(identity)
    assert ids.tolist() == [[0, 1], [0, 1], [1, 2], [1, 0]]
    assert first_cells.tolist() == [0, 1, 5]


GOLDEN_ORDER = [6, 2, 8, 1, 3, 9, 0, 5, 4, 7]  # of ten rows in epoch 0 of seed 0
ROWS_64 = np.stack([np.arange(64), np.arange(64) + 64]).astype(np.int32)


def _repeats(ids_CR: np.ndarray, batch: np.ndarray) -> bool:
    sentences = [sentence for row in batch for sentence in set(ids_CR[:, row].tolist())]
    return len(sentences) != len(set(sentences))


@settings(max_examples=150)
@given(rows=st.lists(st.tuples(*[st.integers(0, 25)] * 3), min_size=1, max_size=60), batch_size=st.integers(1, 8), seed=st.integers(0, 3))
def test_no_sentence_twice_in_a_batch(rows: list[tuple[int, int, int]], batch_size: int, seed: int) -> None:
    ids = np.array(rows).T
    try:
        batches = epoch_batches(ids, batch_size=batch_size, seed=seed, epoch=0, unique_sentences=True)
    except DataError:
        assert batch_size > 1
        return
    assert batches.shape[1] == batch_size and len(batches) >= 1
    used = batches.reshape(-1).tolist()
    assert len(used) == len(set(used)) <= len(rows)
    assert not any(_repeats(ids, batch) for batch in batches)


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def draw(seed: int, epoch: int) -> list[list[int]]:
        return epoch_batches(ROWS_64, batch_size=8, seed=seed, epoch=epoch, unique_sentences=True).tolist()

    unshared = epoch_batches(ROWS_64, batch_size=10, seed=0, epoch=0, unique_sentences=False)
    assert np.array_equal(unshared, epoch_batches(ROWS_64, batch_size=10, seed=0, epoch=0, unique_sentences=True))
    assert unshared.shape == (6, 10) and len(set(unshared.reshape(-1).tolist())) == 60
    twice = np.stack([np.arange(8), np.arange(8)])  # unsupervised SimCSE: anchor and positive are one sentence
    assert epoch_batches(twice, batch_size=4, seed=0, epoch=0, unique_sentences=True).shape == (2, 4)
    assert draw(0, 0) == draw(0, 0)
    assert draw(0, 0) != draw(0, 1) != draw(1, 1)
    # Written down, because a changed order changes every trained encoder: it must come with a new revision of the Train stage.
    assert shuffled(10, seed=0, stream="epoch 0").tolist() == GOLDEN_ORDER


def test_too_few_rows_and_no_batch_at_all() -> None:
    with pytest.raises(DataError, match="64 rows for a batch of 65"):
        epoch_batches(ROWS_64, batch_size=65, seed=0, epoch=0, unique_sentences=False)
    with pytest.raises(DataError, match="no 2 rows of 3 without a sentence in common"):
        epoch_batches(np.array([[0, 0, 0], [1, 2, 3]]), batch_size=2, seed=0, epoch=0, unique_sentences=True)
