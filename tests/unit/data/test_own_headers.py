"""Whether the first line of a person's own file names its columns: names that end in a question mark, and names that were given."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.own.columns import KNOWN_NAMES
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def seen(folder: Path, first: str, row: str, **asked: object) -> RecognisedFile:
    """What a file of 40 rows is, below a first line."""
    path = folder / "own.csv"
    path.write_text(f"{first}\n" + "".join(row.format(n=number, odd=number % 2) + "\n" for number in range(40)))
    return recognise(path.name, path, OwnFileOptions(near=None, **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "row", "shape"),
    [
        ("question?,answer", "How do I {n}?,By {n}.", "pairs"),
        ("Question?,Reply text", "How do I {n}?,By {n}.", "pairs"),
        ("left,right,duplicate?", "How do I {n}?,What is {n}?,{odd}", "graded"),
        ("question1,question2,is duplicate?", "How do I {n}?,What is {n}?,{odd}", "graded"),
        ("one text,other text,similar?", "a {n} b,c {n} d,{n}.5", "graded"),
        ("What the customer asked,What we then answered", "How do I {n}?,By {n}.", "pairs"),
        (",the left,the right", "{n},How do I {n}?,By {n}.", "pairs"),  # the index of pandas has no name
    ],
)
def test_a_name_may_have_four_words_and_end_in_a_question_mark(tmp_path: Path, first: str, row: str, shape: str) -> None:
    found = seen(tmp_path, first, row)
    assert found.file.has_header and sum(found.sizes) == 40
    assert found.file.shape == shape and set(found.file.columns) <= set(first.split(","))


@pytest.mark.parametrize(
    ("first", "row"),
    [
        ("Why?,Because", "What of {n}?,Part {n}"),
        ("How much?,Ten dollars", "How many {n}?,Just {n}"),
        ("What do you want?,Nothing", "I want {n},You have {n}"),
        ("Really!,Indeed", "Statement {n},Another {n}"),
    ],
)
def test_a_question_in_the_first_line_is_a_row(tmp_path: Path, first: str, row: str) -> None:
    found = seen(tmp_path, first, row)
    assert not found.file.has_header and sum(found.sizes) == 41


def test_columns_that_were_named_are_names_however_they_are_written(tmp_path: Path) -> None:
    first = "What did the customer ask us?,What did we answer the customer in the end?"
    given = tuple(first.split(","))
    found = seen(tmp_path, first, "How do I {n}?,By {n}.", columns=given)
    assert found.file.has_header and found.file.columns == given and sum(found.sizes) == 40
    semicolons = seen(tmp_path, first.replace(",", ";"), "How, if I may ask, do I {n}?;First, second, by {n}.", columns=given)
    assert semicolons.file.separator == ";" and semicolons.file.columns == given


def test_numbers_that_were_named_count_columns_and_are_no_names(tmp_path: Path) -> None:
    found = seen(tmp_path, "1,2,one text,another text", "{n},{n},a {n} b,c {n} d", columns=("3", "4"))
    assert not found.file.has_header
    found = seen(tmp_path, "one text of 2,4,another text of 3,2", "a {n} b,{n},c {n} d,{n}", columns=("1", "3", "4"), shape="graded")
    assert not found.file.has_header and sum(found.sizes) == 41


@pytest.mark.parametrize(
    ("first", "row", "asked"),
    [
        ("what was asked.,what was answered.", "How do I {n}?,By {n}.", {"columns": ("asked", "answered")}),
        ("a text of five words,no. 2", "How do I {n}?,{n}", {"shape": "graded"}),
    ],
)
def test_a_refusal_of_a_file_without_a_header_says_how_to_tell_it(tmp_path: Path, first: str, row: str, asked: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"--header \(tune\).*corpus\.header=true"):
        seen(tmp_path, first, row, **asked)


def test_a_refusal_where_the_header_was_given_does_not_speak_of_it(tmp_path: Path) -> None:
    for has_header in (True, False):
        with pytest.raises(DataError) as refused:
            seen(tmp_path, "a text of five words,b", "How do I {n}?,By {n}.", columns=("c", "d"), has_header=has_header)
        assert "header" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "field"), [({"has_header": False}, "header"), ({"has_header": True}, "header"), ({"separator": ";"}, "separator")]
)
@pytest.mark.parametrize(("name", "kind"), [("a.jsonl", "JSON"), ("a.json", "JSON"), ("a.parquet", "a Parquet file")])
def test_a_header_or_separator_of_a_table_that_has_none_is_refused(
    tmp_path: Path, name: str, kind: str, given: dict[str, object], field: str
) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match=rf"{field} .* for {kind}, which names its columns itself"):
        recognise(name, tmp_path / name, OwnFileOptions(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("above", "names", "said"),
    [
        ("FAQ export 2026\n", "question;answer;topic", "'FAQ export 2026' above the names of the columns, which are in line 2 .question"),
        ("FAQ export 2026;;\n;;\n", "Frage;Antwort;Thema", "'FAQ export 2026' .* in line 3 .Frage, Antwort, Thema.*Delete lines 1 to 2"),
        ("# 2026-05-01, by sales\n\n", "Wort;Satz;Thema", "in line 3 .*Delete lines 1 to 2"),
        ("Our FAQ; as of May; 2026\n", "question;answer;topic", "in line 2 .*Delete line 1"),
        ("sep=;\nOur FAQ\n", "question;answer;topic", "in line 3 .*Delete line 2"),
    ],
)
def test_a_title_above_the_header_is_reported_with_the_line(tmp_path: Path, above: str, names: str, said: str) -> None:
    """The names of columns were a row to train on, or a row of more fields than the title has."""
    path = tmp_path / "own.csv"
    path.write_text(f"{above}{names}\n" + "".join(f"how is {n};it is so {n};topic {n % 3}\n" for n in range(40)))
    for has_header in (None, True):
        with pytest.raises(DataError, match=said):
            recognised("own.csv", path, FileFormat(has_header=has_header), sorted(KNOWN_NAMES))


@pytest.mark.parametrize("first", ["question,answer\n", "a first question without an answer,\n", ",text\n"])
def test_what_is_no_title_is_read(tmp_path: Path, first: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(first + "".join(f"{n},it is so {n}\n" for n in range(40)))
    assert recognised("own.csv", path, FileFormat(), sorted(KNOWN_NAMES)).separator == ","


@pytest.mark.parametrize(
    ("first", "row", "shape"),
    [
        ("Sl. No.,Sentence One,Sentence Two,Similarity Score (0 to 1)", "{n},a {n} b,c {n} d,0.{odd}", "graded"),
        ("Timestamp,What is it that you ask?,What should be the answer?", "2026/01/{n:02} 10:00:00,How do I {n}?,By {n}.", "pairs"),
        ("What was asked by them?,What was answered?,Are they the same?", "How do I {n}?,What is {n}?,{odd}", "graded"),
        ("Which one do you mean?,What is that like?,Points", "a {n} b,c {n} d,{odd}.5", "graded"),
    ],
)
def test_a_word_above_numbers_or_dates_is_a_name(tmp_path: Path, first: str, row: str, shape: str) -> None:
    """A form's questions were a row to train on, and so was `Sl. No.` with what is beside it."""
    found = seen(tmp_path, first, row)
    assert found.file.has_header and sum(found.sizes) == 40 and found.file.shape == shape


@pytest.mark.parametrize("row", ["How is {n}?,So {n} it is.,{n}", "How is {n}?,So {n} it is.,n/a"])
def test_rows_without_a_header_keep_their_first(tmp_path: Path, row: str) -> None:
    assert seen(tmp_path, row.format(n=99), row, columns=("1", "2")).file.has_header is False
