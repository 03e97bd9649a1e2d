"""Graded pairs: what is kept, and which row is named when one is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import read_pairs
from sentdist.errors import DataError


def _written(folder: Path, **columns: list[object]) -> Path:
    rows: dict[str, list[object]] = {"sentence1": ["a b", "c", "d"], "sentence2": ["a", "b", "c"], "score": [0.0, 2.5, 5.0]}
    pq.write_table(pa.table(rows | columns), folder / "sts.parquet")
    return folder


def test_pairs_in_order(tmp_path: Path) -> None:
    pairs = read_pairs("sts", data_root=_written(tmp_path, subset=["x", "y", "x"]))
    assert pairs.subset == ("x", "y", "x")
    assert pairs.sentence1 == ("a b", "c", "d") and pairs.sentence2 == ("a", "b", "c")
    assert pairs.score.dtype == np.float64 and pairs.score.tolist() == [0.0, 2.5, 5.0]
    assert (pairs.num_pairs, pairs.num_ungraded) == (3, 0)


def test_some_of_the_rows_keep_what_is_theirs(tmp_path: Path) -> None:
    pairs = read_pairs("sts", data_root=_written(tmp_path, subset=["x", "y", "z"], group=["g", "h", "i"]))
    some = pairs.only(np.array([2, 0]))
    assert (some.subset, some.sentence1, some.sentence2, some.group) == (("z", "x"), ("d", "a b"), ("c", "a"), ("i", "g"))
    assert some.score.tolist() == [5.0, 0.0]
    assert read_pairs("sts", data_root=_written(tmp_path)).only(np.array([1])).group == ()


def test_rows_without_a_gold_score_are_left_out(tmp_path: Path) -> None:
    pairs = read_pairs("sts", data_root=_written(tmp_path, score=[1.0, None, 2.0]))
    assert (pairs.num_pairs, pairs.num_ungraded) == (2, 1)
    assert pairs.sentence1 == ("a b", "d")
    (tmp_path / "sixteen.tsv").write_text('sentence1\tsentence2\tscore\n"a\tb\t4.5\nc\td\t\n')
    pairs = read_pairs("sixteen", data_root=tmp_path)
    assert (pairs.sentence1, pairs.score.tolist(), pairs.num_ungraded) == (('"a',), [4.5], 1)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.1, 5.1])
def test_a_score_out_of_range_names_its_row(tmp_path: Path, score: float) -> None:
    with pytest.raises(DataError, match=r"score .* in row 2; expected a number from 0 to 5"):
        read_pairs("sts", data_root=_written(tmp_path, score=[1.0, score, 2.0]))


def test_a_score_that_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="score high in row 3"):
        read_pairs("sts", data_root=_written(tmp_path, score=["1", "2", "high"]))


def test_another_range(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"score 0\.0 in row 1; expected a number from 1 to 5"):
        read_pairs("sts", data_root=_written(tmp_path), score_range=(1.0, 5.0))


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_an_empty_sentence_names_its_row_and_column(tmp_path: Path, empty: str | None) -> None:
    with pytest.raises(DataError, match="an empty sentence2 in row 2"):
        read_pairs("sts", data_root=_written(tmp_path, sentence2=["a", empty, "b"]))


def test_sentences_that_are_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sentence1 1 in row 1"):
        read_pairs("sts", data_root=_written(tmp_path, sentence1=[1, 2, 3]))


def test_wrong_columns(tmp_path: Path) -> None:
    (tmp_path / "qqp.csv").write_text("sentence1,sentence2,label\na,b,1\n")
    with pytest.raises(DataError, match="expected columns sentence1, sentence2, score"):
        read_pairs("qqp", data_root=tmp_path)


def test_a_split_without_public_scores(tmp_path: Path) -> None:
    (tmp_path / "hidden.csv").write_text("sentence1,sentence2,score\na,b,\n")
    with pytest.raises(DataError, match="no graded pair"):
        read_pairs("hidden", data_root=tmp_path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("text1,sentence2,score", r"expected columns sentence1, sentence2, score\. Rename columns in the file \(sentence1 missing\)\.$"),
        ("Sentence1,sentence2,score", r'Did you mean "Sentence1"\? Rename columns in the file'),
        ("sentence1,sentence2,scores, SCORE ", r'Did you mean "SCORE"\?'),  # the same word goes before one that is like it
        ("sentence1,sentence1,score", r"found several columns named 'sentence1'; expected each name once\."),
    ],
)
def test_a_column_that_is_in_use_is_not_proposed_for_another(tmp_path: Path, header: str, words: str) -> None:
    (tmp_path / "s.csv").write_text(f"{header}\n{','.join('a' * len(header.split(',')))}\n")
    with pytest.raises(DataError, match=words):
        read_pairs("s", data_root=tmp_path)
