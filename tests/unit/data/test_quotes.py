"""Rows are never lost in a field that somebody forgot to close."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentdist.data.own.files import own_table
from sentdist.data.sources.csv_dialect import line_of_escaped_mark, line_of_open_quote
from sentdist.data.sources.hub import read_source
from sentdist.data.sources.separated import FileFormat
from sentdist.data.texts import open_texts
from sentdist.errors import DataError


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('a,b\n"who is he,a man\nwhen,now\nsay "hi",hello\nx,y\n', 2),
        ('a,b\nx,y\n"who is he,a man\nwhen,now\n"why not",because\n', 3),
        ('a,b\n"who is he,a man\nwhen,now\nx,y\n', 2),  # to the file's end
        ('a,b\nx,"who is he\nwhen,now\nx,"y"\n', 2),
        ('a,b\n"two\nlines",y\n"Hello" he said,y\n"who is he,a man\nwhen,"now"\n', 5),
        ('a,b\n"two\nlines",y\n"Hello" he said,y\nwhat is "this,y\n"say ""hi""\nto me","now"\n', None),
        ('a,b\n"who is he,a man\n', None),  # a single line: it has too few fields, which is reported as such
        ("", None),
    ],
)
def test_the_line_that_swallows_others_is_found(content: str, line: int | None) -> None:
    assert line_of_open_quote(io.StringIO(content, newline=""), ",") == line


@given(st.lists(st.tuples(st.text('ab\\\\",\n ') | st.text(), st.text()), min_size=1))
def test_what_a_program_has_written_is_let_through(rows: list[tuple[str, str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([(one.replace("\0", ""), other.replace("\0", "")) for one, other in rows])
    assert line_of_open_quote(io.StringIO(written.getvalue(), newline=""), ",") is None
    assert line_of_escaped_mark(io.StringIO(written.getvalue(), newline=""), ",") is None


BROKEN = 'question,answer\nhow are you,fine\n"who is he,a man\nwhen,now\nsay "hi",hello\n'


def test_ones_own_file_and_a_source_below_the_data_root_say_the_line(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text(BROKEN)
    with pytest.raises(DataError, match=r"faq\.csv, line 3: found a field that a quotation mark opens and none closes"):
        own_table("faq.csv", tmp_path / "faq.csv", FileFormat(encoding="utf-8", separator=",", has_header=True))
    with pytest.raises(DataError, match=r"faq\.csv, line 3: found a field"):
        read_source("faq", data_root=tmp_path)


def test_fields_of_several_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text('question,answer\n"how\nare ""you""",fine\n')
    rows = [{"question": 'how\nare "you"', "answer": "fine"}]
    assert read_source("faq", data_root=tmp_path).to_pylist() == rows
    assert own_table("faq.csv", tmp_path / "faq.csv", FileFormat(encoding="utf-8", separator=",", has_header=True)).to_pylist() == rows


ESCAPED = 'question,answer\nhow are you,fine\n"he said \\"hi\\" to me","so, what"\nx,y\n'


def test_marks_behind_backslashes_are_refused_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(ESCAPED)
    said = r"faq\.csv, line 3: found quotation marks behind backslashes"
    with pytest.raises(DataError, match=said):
        own_table("faq.csv", path, FileFormat(encoding="utf-8", separator=",", has_header=True))
    with pytest.raises(DataError, match=said):
        read_source("faq", data_root=tmp_path)
    with pytest.raises(DataError, match=said):
        list(open_texts(str(path), columns=["question"]).batches(10))


def test_backslashes_are_letters(tmp_path: Path) -> None:
    path, rows = (
        tmp_path / "faq.csv",
        [{"question": "C:\\dir\\", "answer": 'a \\"b\\", and\n" \\"c'}, {"question": "\\n", "answer": '\\"x'}],
    )
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(rows)
    assert read_source("faq", data_root=tmp_path).to_pylist() == rows
    assert own_table("faq.csv", path, FileFormat(encoding="utf-8", separator=",", has_header=True)).to_pylist() == rows
    assert [one for batch in open_texts(str(path), columns=["answer"]).batches(10) for one in batch["answer"]] == [
        row["answer"] for row in rows
    ]
