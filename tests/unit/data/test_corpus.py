"""Corpora: the same sentences come back by id, once each, and bad rows are named or counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentdist.data.corpus import (
    SENTENCES_PER_BATCH,
    CorpusFacts,
    OpenedCorpus,
    build_corpus,
    first_of_each_row,
    number_by_appearance,
    same_strings,
)
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
    assert corpus.column_names == ("anchor", "positive")
    assert (corpus.num_rows, corpus.num_sentences) == (3, 4)
    assert facts == CorpusFacts(
        num_rows=3,
        num_sentences=4,
        num_dropped_duplicates=0,
        num_repeating=0,
        num_over_long=0,
        mean_words=1.25,
        max_words=2,
    )


def test_the_files_are_mapped_and_cannot_be_written(tmp_path: Path) -> None:
    build_corpus(_table([("a", "b", "c"), ("d", "e", "f")], ("x", "y", "z")), columns=("x", "y", "z"), folder=tmp_path)
    before = pa.total_allocated_bytes()
    corpus = OpenedCorpus.open(tmp_path)
    assert pa.total_allocated_bytes() == before
    assert corpus.column_names == ("anchor", "positive", "negative")
    assert corpus.ids.dtype == np.int32 and not corpus.ids.flags.writeable and not corpus.ids.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        corpus.ids[0, 0] = 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(*[st.text("ab é", min_size=1, max_size=3).filter(str.strip)] * 3), min_size=1, max_size=30))
def test_every_row_comes_back(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    facts = build_corpus(_table(rows, ("x", "y", "z")), columns=("x", "y", "z"), folder=tmp_path)
    corpus = OpenedCorpus.open(tmp_path)
    assert _rows_of(corpus) == list(dict.fromkeys(rows))
    unique = list(dict.fromkeys(sentence for row in rows for sentence in row))
    assert corpus.sentences(np.arange(corpus.num_sentences)) == unique
    assert facts.num_dropped_duplicates == len(rows) - len(set(rows))


def test_sentences_lie_in_blocks_of_one_size(tmp_path: Path) -> None:
    count = SENTENCES_PER_BATCH + 10
    rows = _table([(f"s {number}", f"t {number}") for number in range(count)])
    build_corpus(rows, columns=PAIRS, folder=tmp_path)
    corpus = OpenedCorpus.open(tmp_path)
    assert [len(block) for block in corpus.sentence_blocks()] == [SENTENCES_PER_BATCH, SENTENCES_PER_BATCH, 20]
    ids = np.array([2 * count - 1, 0, SENTENCES_PER_BATCH, 0])
    assert corpus.sentences(ids) == [f"t {count - 1}", "s 0", f"s {SENTENCES_PER_BATCH // 2}", "s 0"]


def test_tables_in_many_chunks_give_the_same_corpus(tmp_path: Path) -> None:
    rows = _table([(f"s {number % 7}", f"t {number % 11}") for number in range(100)])
    chunked = pa.concat_tables([rows.slice(start, 9) for start in range(0, 100, 9)])
    assert build_corpus(rows, columns=PAIRS, folder=tmp_path / "a") == build_corpus(chunked, columns=PAIRS, folder=tmp_path / "b")
    for name in ("sentences.arrow", "rows.arrow"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_one_column_used_twice(tmp_path: Path) -> None:
    build_corpus(_table([("a", "b"), ("c", "d")]), columns=("one", "one"), folder=tmp_path)
    assert OpenedCorpus.open(tmp_path).ids.tolist() == [[0, 1], [0, 1]]


def test_rows_that_repeat_a_sentence_are_kept_and_counted(tmp_path: Path) -> None:
    rows = [("a", "a", "b"), ("c", "d", "c"), ("a", "b", "c")]
    facts = build_corpus(_table(rows, ("x", "y", "z")), columns=("x", "y", "z"), folder=tmp_path)
    assert (facts.num_rows, facts.num_repeating) == (3, 2)


def test_plain_text_is_a_corpus_of_one_column(tmp_path: Path) -> None:
    build_corpus(_table([("a", "b"), ("c", "d")]), columns=("two",), folder=tmp_path)
    corpus = OpenedCorpus.open(tmp_path)
    assert corpus.ids.tolist() == [[0, 1]] and corpus.sentences(corpus.ids) == ["b", "d"]


def test_a_limit_keeps_distinct_rows_in_order(tmp_path: Path) -> None:
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


def test_reversed_rows_follow_without_repeating_any(tmp_path: Path) -> None:
    rows = [("a", "b", "n"), ("b", "a", "n"), ("c", "d", "m")]
    facts = build_corpus(_table(rows, ("x", "y", "z")), columns=("x", "y", "z"), folder=tmp_path, add_reversed=True)
    assert _rows_of(OpenedCorpus.open(tmp_path)) == [*rows, ("d", "c", "m")]
    assert facts.num_rows == 4


@pytest.mark.parametrize("empty", ["", " \t", None])
def test_an_empty_sentence_names_row_and_column(tmp_path: Path, empty: str | None) -> None:
    rows = _table([("a", "b"), ("c", "d"), ("e", empty)])
    with pytest.raises(DataError, match="an empty sentence in row 3, column two"):
        build_corpus(rows, columns=PAIRS, folder=tmp_path)


def test_rows_that_differ_in_a_value_are_not_the_same(tmp_path: Path) -> None:
    rows = _table([("a", "b"), ("a", "b"), ("a", "b"), ("c", "d")]).append_column("label", pa.array([1.0, 2.0, 1.0, 0.0], pa.float32()))
    facts = build_corpus(rows, columns=PAIRS, values=("label",), folder=tmp_path)
    corpus = OpenedCorpus.open(tmp_path)
    assert _rows_of(corpus) == [("a", "b"), ("a", "b"), ("c", "d")] and facts.num_dropped_duplicates == 1
    assert corpus.labels is not None and corpus.labels.tolist() == [1.0, 2.0, 0.0]


def test_over_long_sentences_are_counted(tmp_path: Path) -> None:
    facts = build_corpus(_table([("w " * 256, "w " * 257)]), columns=PAIRS, folder=tmp_path)
    assert (facts.num_over_long, facts.max_words) == (1, 257)


def test_wrong_columns(tmp_path: Path) -> None:
    rows = _table([("a", "b")])
    with pytest.raises(DataError, match="expected columns one, three"):
        build_corpus(rows, columns=("one", "three"), folder=tmp_path)
    with pytest.raises(DataError, match="0 columns"):
        build_corpus(rows, columns=(), folder=tmp_path)
    with pytest.raises(DataError, match="column n of type double; expected text"):
        build_corpus(pa.table({"one": ["a"], "n": [float("nan")]}), columns=("one", "n"), folder=tmp_path)


def test_no_rows_and_a_useless_limit(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        build_corpus(_table([]), columns=PAIRS, folder=tmp_path)
    with pytest.raises(DataError, match="limit 0"):
        build_corpus(_table([("a", "b")]), columns=PAIRS, folder=tmp_path, limit=0)
    with pytest.raises(DataError, match="anchor and positive to exchange"):
        build_corpus(_table([("a", "b")]), columns=("one",), folder=tmp_path, add_reversed=True)


def test_an_absent_or_damaged_corpus(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected a corpus \(sentences.arrow, rows.arrow\)"):
        OpenedCorpus.open(tmp_path)
    build_corpus(_table([("a", "b")]), columns=PAIRS, folder=tmp_path)
    (tmp_path / "sentences.arrow").write_bytes(b"cut off")
    with pytest.raises(DataError, match="the next run builds it again"):
        OpenedCorpus.open(tmp_path)


@pytest.mark.parametrize("identifier", [-1, 2])
def test_an_id_of_another_corpus(tmp_path: Path, identifier: int) -> None:
    build_corpus(_table([("a", "b")]), columns=PAIRS, folder=tmp_path)
    with pytest.raises(DataError, match="expected 0 to 1"):
        OpenedCorpus.open(tmp_path).sentences(np.array([0, identifier]))


def test_strings_that_share_half_a_digest_stay_apart() -> None:
    digests = np.array([[[7, 1], [7, 2]], [[7, 1], [8, 1]]], dtype=np.uint64)
    identity = same_strings(digests)
    assert len(set(identity.reshape(-1).tolist())) == 3
    assert identity[0, 0] == identity[1, 0] != identity[0, 1]


def test_numbering_and_repeated_rows() -> None:
    identity = np.array([[5, 3], [5, 3], [3, 9], [3, 5]])
    assert first_of_each_row(identity).tolist() == [True, False, True, True]
    ids, first_cells = number_by_appearance(identity)
    assert ids.tolist() == [[0, 1], [0, 1], [1, 2], [1, 0]]
    assert first_cells.tolist() == [0, 1, 5]
