"""Tags and words of sentences: taggers by name, shares on disk that do not depend on how a corpus was cut, bad names and bad files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.data.tagging import (
    FileTargets,
    TargetFacts,
    is_word,
    load_tagger,
    tagger_revision,
    write_tags,
    write_targets,
)
from sentdist.errors import DataError, RecipeError

SENTENCES = ["The old man plays the old guitar .", "A dog runs !", "is the of", "Dogs and cats run , run and run .", "the guitar"]


def ending_tagger(sentences: Sequence[str]) -> list[list[tuple[str, str]]]:
    """A tagger by the last letter: S, PUNCT or OTHER."""
    kinds = {"s": "S", ".": "PUNCT", "!": "PUNCT", ",": "PUNCT"}
    return [[(word, kinds.get(word[-1], "OTHER")) for word in sentence.split()] for sentence in sentences]


def one_too_few(sentences: Sequence[str]) -> list[list[tuple[str, str]]]:
    return ending_tagger(sentences)[1:]


def words_only(sentences: Sequence[str]) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


NOT_A_FUNCTION = 3


def made(folder: Path, cuts: list[int], *, num_words: int = 100) -> tuple[FileTargets, TargetFacts]:
    folder.mkdir()
    parts = []
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(SENTENCES)], strict=True)):
        parts.append(folder / f"{number}.parquet")
        with parts[-1].open("wb") as file:
            write_tags(file, SENTENCES[first:last], tagger=ending_tagger, name="test")
    facts = write_targets(folder, parts, num_words=num_words)
    return FileTargets(folder), facts


def dense(targets: FileTargets, ids: Sequence[int]) -> np.ndarray:
    rows = targets.rows(np.array(ids))
    table = np.zeros((len(ids), targets.num_words), dtype=np.float32)
    table[rows.bow_rows, rows.bow_words] = rows.bow_shares
    return table


@pytest.mark.data
def test_nltk_tags_real_sentences(data_root: Path, tmp_path: Path) -> None:
    tagger = load_tagger("nltk", nltk_data=data_root / "nltk_data")
    assert tagger_revision("nltk", nltk_data=data_root / "nltk_data").startswith("nltk-3")
    (pairs,) = tagger(["The quick dog doesn't bark at 12 cats."])
    assert [tag for _, tag in pairs] == ["DET", "ADJ", "NOUN", "VERB", "ADV", "VERB", "ADP", "NUM", "NOUN", "."]
    sentences = pq.read_table(data_root / "text/wiki.parquet")["sentence"].slice(0, 200).to_pylist()
    with (tmp_path / "part.parquet").open("wb") as file:
        write_tags(file, sentences, tagger=tagger, name="nltk")
    facts = write_targets(tmp_path, [tmp_path / "part.parquet"], num_words=10_000)
    targets = FileTargets(tmp_path)
    assert set(targets.tags) <= {"ADJ", "ADP", "ADV", "CONJ", "DET", "NOUN", "NUM", "PRON", "PRT", "VERB", "X", "."}
    assert facts.num_tags >= 10 and facts.covered_fraction == 1.0
    assert "the" not in targets.vocabulary
    assert 4 < len(targets.rows(np.arange(200)).bow_words) / len(sentences) < 30


def test_rows_come_in_the_order_of_the_ids_and_others_are_refused(tmp_path: Path) -> None:
    targets, _ = made(tmp_path / "targets", [2])
    ids, flat = np.array([[3, 2, 3], [0, 4, 1]]), [3, 2, 3, 0, 4, 1]
    np.testing.assert_array_equal(targets.rows(ids).pos, np.stack([targets.rows(np.array([one])).pos[0] for one in flat]))
    np.testing.assert_array_equal(dense(targets, flat), np.concatenate([dense(targets, [one]) for one in flat]))
    assert (np.diff(targets.rows(ids).bow_rows) >= 0).all() and len(targets.rows(np.array([], dtype=int)).pos) == 0
    for wrong in ([-1], [0, 5]):
        with pytest.raises(DataError, match="targets belong to one corpus"):
            targets.rows(np.array(wrong))
    with (tmp_path / "part.parquet").open("wb") as file:
        write_tags(file, ["the .", "of !"], tagger=ending_tagger, name="test")
    with pytest.raises(DataError, match="no word"):
        write_targets(tmp_path, [tmp_path / "part.parquet"], num_words=10)


def test_a_tagger_is_named_by_module_and_function(tmp_path: Path) -> None:
    assert load_tagger(f"{__name__}:ending_tagger")(["dogs run"]) == [[("dogs", "S"), ("run", "OTHER")]]
    for name in ("spacy", "some module:tag", ":tag", "module:", "a.b:1"):
        with pytest.raises(RecipeError, match="module:function"):
            load_tagger(name)
    for name in ("no_such_module_at_all:tag", f"{__name__}:no_such_function", f"{__name__}:NOT_A_FUNCTION"):
        with pytest.raises(DataError, match=r"tagger .*(No module|no attribute|a int)"):
            load_tagger(name)
    for tagger, found in ((one_too_few, "1 results for 2"), (words_only, r"\['a', 'b'\]")):
        with pytest.raises(DataError, match=found):
            write_tags(io.BytesIO(), ["a b", "c"], tagger=tagger, name="mine")  # type: ignore[arg-type]
    for ask in (load_tagger, tagger_revision):
        with pytest.raises(DataError, match=r"nltk\.downloader averaged_perceptron_tagger_eng"):
            ask("nltk", nltk_data=tmp_path)
    tokens = {"guitar": True, "t-shirt": True, "3rd": True, "the": False, "n't": False, "--": False}
    assert {token: is_word(token) for token in tokens} == tokens
