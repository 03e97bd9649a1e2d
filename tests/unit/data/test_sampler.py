"""Batches: every row at most once, no sentence twice, the same from seed and epoch."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentdist.data import sampler
from sentdist.data.sampler import _Packing, epoch_batches, shuffled
from sentdist.errors import DataError

GOLDEN_ORDER = [6, 2, 8, 1, 3, 9, 0, 5, 4, 7]  # of ten rows in epoch 0 of seed 0
ROWS_64 = np.stack([np.arange(64), np.arange(64) + 64]).astype(np.int32)


def _repeats(ids_CR: np.ndarray, batch: np.ndarray) -> bool:
    sentences = [sentence for row in batch for sentence in set(ids_CR[:, row].tolist())]
    return len(sentences) != len(set(sentences))


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(*[st.integers(0, 25)] * 3), min_size=1, max_size=60),
    batch_size=st.integers(1, 8),
    seed=st.integers(0, 3),
)
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


@pytest.mark.parametrize("unique_sentences", [True, False])
def test_without_shared_sentences_only_the_rest_is_left_out(unique_sentences: bool) -> None:
    batches = epoch_batches(ROWS_64, batch_size=10, seed=0, epoch=0, unique_sentences=unique_sentences)
    assert batches.shape == (6, 10)
    assert len(set(batches.reshape(-1).tolist())) == 60


def test_both_ways_agree_where_no_sentence_is_shared() -> None:
    either = [epoch_batches(ROWS_64, batch_size=8, seed=5, epoch=2, unique_sentences=unique) for unique in (True, False)]
    assert np.array_equal(*either)


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    def draw(seed: int, epoch: int) -> list[list[int]]:
        return epoch_batches(ROWS_64, batch_size=8, seed=seed, epoch=epoch, unique_sentences=True).tolist()

    assert draw(0, 0) == draw(0, 0)
    assert draw(0, 0) != draw(0, 1) != draw(1, 1)
    # Written down, because a changed order changes every trained encoder: it must come with a new revision of the Train stage.
    assert shuffled(10, seed=0, stream="epoch 0").tolist() == GOLDEN_ORDER


def test_premises_in_threes_lose_almost_nothing() -> None:
    anchors = np.repeat(np.arange(1000), 3)
    ids = np.stack([anchors, np.arange(3000) + 1000])
    batches = epoch_batches(ids, batch_size=64, seed=0, epoch=0, unique_sentences=True)
    assert len(batches) >= 3000 // 64 - 1
    assert not any(_repeats(ids, batch) for batch in batches)


def test_one_sentence_in_half_of_the_rows() -> None:
    """At most one row a batch can hold it: the others lead to fewer batches, not to an endless search."""

    def search(num_rows: int) -> float:
        ids = np.stack([np.where(np.arange(num_rows) % 2, 0, np.arange(num_rows)), np.arange(num_rows) + num_rows])
        started = time.process_time()
        batches = epoch_batches(ids, batch_size=64, seed=0, epoch=0, unique_sentences=True)
        seconds = time.process_time() - started
        assert num_rows // 2 // 64 <= len(batches) <= num_rows // 2 // 63 + 1
        return seconds

    few, many = (min(search(num_rows) for _ in range(3)) for num_rows in (20_000, 160_000))
    assert many < 24 * few, "O(R): eight times the rows; trying every waiting row for every batch would take 64 times as long"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_batch_of_nothing_but_rows_that_waited(seed: int) -> None:
    """Ten anchors and ten positives: rows that wait can fill a batch, and no fresh one may then be added to it."""
    ids = np.stack([(np.arange(300) * 7919) % 10, 10 + (np.arange(300) * 104729 // 10) % 10])
    batches = epoch_batches(ids, batch_size=4, seed=seed, epoch=0, unique_sentences=True)
    assert batches.shape == (74, 4)  # of 75 at best
    assert len(set(batches.reshape(-1).tolist())) == batches.size
    assert not any(_repeats(ids, batch) for batch in batches)


def test_rows_that_wait_fill_the_last_batch_too() -> None:
    """No fresh row is left when row 1 comes up; row 2 has a sentence in common with it, and row 3, behind row 2, is asked as well."""
    rows = np.array([(2, 0), (1, 0), (1, 2), (2, 2), (1, 1)])
    assert _Packing(np.arange(5), rows.T, 2).pack().tolist() == [[0, 4], [1, 3]]


def _one_by_one(order: np.ndarray, ids_CR: np.ndarray, batch_size: int) -> list[list[int]]:
    """The rule itself: first who waits, in turn by the sentence that they wait behind, then fresh rows, then who waits once more."""
    fresh, waiting, turns, batches = deque(order.tolist()), defaultdict(deque), deque(), []
    while True:
        batch: list[int] = []
        taken: set[int] = set()

        def add(row: int, batch: list[int] = batch, taken: set[int] = taken) -> None:
            sentences = ids_CR[:, row].tolist()
            shared = next((sentence for sentence in sentences if sentence in taken), None)
            if shared is None:
                batch.append(row)
                taken.update(sentences)
                return
            if not waiting[shared]:
                turns.append(shared)
            waiting[shared].append(row)

        def ask(most: int, batch: list[int] = batch, add: Callable[[int], None] = add) -> None:
            for _ in range(min(most, len(turns))):
                if len(batch) < batch_size:
                    sentence = turns.popleft()
                    row = waiting[sentence].popleft()
                    if waiting[sentence]:
                        turns.append(sentence)
                    add(row)

        ask(batch_size)
        while len(batch) < batch_size and fresh:
            add(fresh.popleft())
        ask(len(turns))
        if len(batch) < batch_size:
            return batches
        batches.append(batch)


@settings(max_examples=200)
@given(
    num_rows=st.integers(1, 120),
    num_sentences=st.sampled_from([5, 30, 300, 3000]),
    num_columns=st.integers(1, 3),
    batch_size=st.integers(1, 9),
    block_rows=st.integers(1, 40),
    seed=st.integers(0, 10**6),
)
def test_blocks_of_rows_give_what_one_row_after_another_gives(
    num_rows: int, num_sentences: int, num_columns: int, batch_size: int, block_rows: int, seed: int
) -> None:
    drawn = np.random.default_rng(seed)
    ids_CR = drawn.integers(num_sentences, size=(num_columns, num_rows))
    order = drawn.permutation(num_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "BLOCK_ROWS", block_rows)
        assert _Packing(order, ids_CR, batch_size).pack().tolist() == _one_by_one(order, ids_CR, batch_size)


def test_a_row_may_hold_a_sentence_twice() -> None:
    """Unsupervised SimCSE: anchor and positive are one sentence, made two by dropout."""
    ids = np.stack([np.arange(8), np.arange(8)])
    assert epoch_batches(ids, batch_size=4, seed=0, epoch=0, unique_sentences=True).shape == (2, 4)


def test_too_few_rows_and_no_batch_at_all() -> None:
    with pytest.raises(DataError, match="64 rows for a batch of 65"):
        epoch_batches(ROWS_64, batch_size=65, seed=0, epoch=0, unique_sentences=False)
    with pytest.raises(DataError, match="batch size 0"):
        epoch_batches(ROWS_64, batch_size=0, seed=0, epoch=0, unique_sentences=False)
    with pytest.raises(DataError, match="no 2 rows of 3 without a sentence in common"):
        epoch_batches(np.array([[0, 0, 0], [1, 2, 3]]), batch_size=2, seed=0, epoch=0, unique_sentences=True)
