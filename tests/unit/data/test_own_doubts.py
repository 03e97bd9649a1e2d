"""What a person's own table leaves open, and what is no text or separator although it looks like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.errors import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _pairs(header: str, third: str, separator: str = ",") -> str:
    rows = [separator.join((f"the text {n} of one", f"the text {n} of two", third.format(n % 11))) for n in range(60)]
    return "\n".join([*([header] if header else []), *rows, ""])


@pytest.mark.parametrize(
    ("header", "third", "said"),
    [
        ("text1,text2,cos", "0.{0}", "cos beside text1, text2; expected to know whether it says how alike they are"),
        ("text1,text2,prozent", "{0}", "prozent beside text1, text2; expected to know whether"),
        ("satz a,satz b,Unterschied", "{0}", "Unterschied beside satz a, satz b; expected scores that are higher"),
        ("s1,s2,rank", "{0}", "rank beside s1, s2; expected scores that are higher"),
    ],
)
def test_numbers_that_may_grade_are_asked_about(header: str, third: str, said: str, tmp_path: Path) -> None:
    """Of texts with usual names all rows were positives, whatever a column `cos` said; a rank was read as likeness."""
    (tmp_path / "own.csv").write_text(_pairs(header, third))
    with pytest.raises(DataError) as refused:
        recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None))
    assert said in str(refused.value)


def test_numbers_beside_a_question_and_its_answer_are_not_asked_about(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(_pairs("question,answer,price", "{0}.5"))
    assert recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None)).file.shape == "faq"


def test_decimal_commas_part_no_columns(tmp_path: Path) -> None:
    """Without a header each comma was taken for a separator, and the score's last digit for a column."""
    (tmp_path / "own.csv").write_text(_pairs("", "0,{0}", ";"))
    found = recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None)).file
    assert (found.separator, found.has_header, found.shape) == (";", False, "graded")


def test_one_column_of_texts_is_reported_to_be_too_few(tmp_path: Path) -> None:
    """Columns question and answer were to be named, which the file does not have."""
    (tmp_path / "own.csv").write_text("text,cluster\n" + "".join(f"the text of {n},{n // 3}\n" for n in range(60)))
    with pytest.raises(DataError, match=r"Only text holds texts: write two that belong together into each row"):
        recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None))


def test_texts_within_objects_are_named(tmp_path: Path) -> None:
    rows = [{"q": {"text": f"how {n}"}, "a": {"text": f"so {n}"}} for n in range(60)]
    (tmp_path / "own.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"its fields are q\.text"):
        recognise("own.json", tmp_path / "own.json", OwnFileOptions(near=None))


def test_a_text_of_invisible_letters_alone_is_none(tmp_path: Path) -> None:
    """All rows with such a one were linked by it, and trained on it."""
    rows = [f"how {n},{chr(0x200B) * 2 if n % 5 == 0 else f'so {n}'}" for n in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["question,answer", *rows]), encoding="utf-8")
    found = recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None))
    assert "12 rows without a text left out" in found.notes[0] and sum(found.sizes) == 48
