"""Columns of negatives in a person's own table, by whatever name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.errors import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("names", "shape", "third"),
    [
        ("anchor,positive,negative_1", "triplets", "negative_1"),
        ("anchor,positive,neg_0,neg_1,neg_2", "triplets", "neg_0"),
        ("question,answer,Hard Negative 1,Hard Negative 2", "triplets", "Hard Negative 1"),
        ("question,answer,wrong_answer", "triplets", "wrong_answer"),
        ("titel,teaser,negative_1,negative_2", "triplets", "negative_1"),
        ("sent0,sent1,sent2", "triplets", "sent2"),
        ("question,answer,hardware", "faq", None),
    ],
)
def test_negatives_are_known_by_any_of_their_names(names: str, shape: str, third: str | None, tmp_path: Path) -> None:
    """`negative_1` beside an anchor and a positive was dropped, and pairs were trained."""
    path, columns = tmp_path / "own.csv", names.split(",")
    path.write_text(names + "\n" + "".join(",".join(f"the text {place} of {n}" for place in range(len(columns))) + "\n" for n in range(60)))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert found.file.shape == shape and found.file.columns == (*columns[:2], *([third] if third else []))
    assert ("a row has one negative" in found.notes[0]) == (columns[3:] != [])


@pytest.mark.parametrize("cell", ["yes,no", "3,1"])
def test_labels_that_are_called_as_negatives_are_none(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("question,answer,hard\n" + "".join(f"how is {n},so {n},{cell.split(',')[n % 2]}\n" for n in range(60)))
    assert recognise("own.csv", path, OwnFileOptions(near=None)).file.shape == "faq"


def test_lists_of_negatives_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f'{{"anchor": "how is {n}", "positive": "so {n}", "hard_negatives": ["no {n}"]}}\n' for n in range(60)))
    with pytest.raises(DataError, match=r"hard_negatives with lists beside anchor, positive.*--columns anchor,positive"):
        recognise("own.jsonl", path, OwnFileOptions())
    assert recognise("own.jsonl", path, OwnFileOptions(columns=("anchor", "positive"), near=None)).file.shape == "pairs"
