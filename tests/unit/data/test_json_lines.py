"""JSON lines as people write them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from sentdist.data.sources.files import read_lines, read_objects, read_text_table
from sentdist.data.sources.separated import FileFormat
from sentdist.data.texts import open_texts
from sentdist.errors import DataError

LINES = """{"title": "a", "id": "2020-01-01", "with": ["2020-01-01", "2021-06-30 10:00:00"], "about": {"day": "2020-01-01", "views": 3}}
{"title": "b", "id": "2020-01-02", "with": [], "about": {"day": "2020-01-02", "views": 4}}
"""


def test_texts_that_look_like_dates_stay_texts(tmp_path: Path) -> None:
    """An id "2020-01-01" became a time, which no judgement names."""
    plain, packed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    plain.write_text(LINES)
    packed.write_bytes(gzip.compress(LINES.encode()))
    table = read_lines(plain)
    assert table.column_names == ["title", "id", "with", "about"]
    assert table.to_pylist()[0] == {
        "title": "a", "id": "2020-01-01", "with": ["2020-01-01", "2021-06-30 10:00:00"], "about": {"day": "2020-01-01", "views": 3},
    }  # fmt: skip
    assert read_lines(packed) == table == read_lines(io.BytesIO(LINES.encode()))


def test_a_key_that_comes_later_is_a_column_too(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"b": "x"}, {"a": "y", "b": null}, {"c": 1}]')
    assert read_objects(tmp_path / "rows.json").to_pydict() == {"b": ["x", None, None], "a": [None, "y", None], "c": [None, None, 1]}


@pytest.mark.parametrize(
    ("text", "number", "remedy"),
    [
        ('{"text": "a"},\n{"text": "b"}\n', 1, "Leave the comma behind it out"),
        ("{\"text\": \"a\"}\n{'text': 'b'}\n", 2, "double quotation marks"),
        ('[{"text": "a"}]\n', 1, "A list of objects is called .json"),
        ('{"text": "a"}\n\n{"text": b}\n', 3, "Correct that line"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_that_is_none_is_named_with_what_is_wrong_about_it(
    text: str, number: int, remedy: str, encoding: str, tmp_path: Path
) -> None:
    """pyarrow's words were reported: "The document is empty" of a comma behind an object."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding=encoding)
    for read in (
        lambda: read_text_table(path, FileFormat(encoding=encoding), may_repeat=True),
        lambda: list(open_texts(str(path), columns=["text"]).batches(10)),
    ):
        with pytest.raises(DataError, match=rf"line {number}: found .*expected a JSON object\. .*{remedy}"):
            read()


FAQ = '[{"question": "how", "answer": "so"}]'


@pytest.mark.parametrize("text", [FAQ, f'{{"data": {FAQ}}}', f'{{"version": 2, "next": null, "name": "faq", "rows": {FAQ}}}'])
def test_the_only_list_of_objects_may_stand_under_a_key(text: str, tmp_path: Path) -> None:
    """Web services send it so: it was a file that cannot be read."""
    (tmp_path / "faq.json").write_text(text)
    assert read_objects(tmp_path / "faq.json").to_pylist() == [{"question": "how", "answer": "so"}]
    assert next(open_texts(str(tmp_path / "faq.json"), columns=["answer"]).batches(9)) == {"answer": ["so"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"train": {FAQ}, "test": {FAQ}}}', "several lists of objects, under train, test.*file of its own"),
        (f'{{"data": {FAQ}, "columns": ["a"]}}', "a list of objects under data, beside columns.*that list alone"),
        ('{"question": ["how"], "answer": ["so"]}', 'an object of columns, question, answer.*orient="records"'),
        ('{"question": {"0": "how"}, "answer": {"0": "so"}}', "an object of columns, question, answer"),
        ('{"how": "so", "who": "she"}', "an object with the keys how, who; expected JSON, a list of objects"),
        ('[[{"how": "so"}]]', "a list of lists; expected"),
        ('["how", "so"]', "a list of texts; expected"),
        ('[{"question": "how"}, "so"]', "a list of objects and others; expected"),
        ("7", "found 7; expected"),
    ],
)
def test_json_of_another_shape_is_reported(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_objects(tmp_path / "faq.json")


@pytest.mark.parametrize(
    "text", ['{"a": "x"}\n{"b": 1}\n', '{"a": "x"}\r\n\r\n{"b": 1}', '\n{\n  "a": "x"\n}\n{\n  "b": 1\n}\n', '{"a": "x"} {"b": 1}']
)
def test_objects_one_behind_the_other_are_a_list_of_them(text: str, tmp_path: Path) -> None:
    """Spark and `datasets` call lines of JSON .json, and jq writes objects over several lines."""
    (tmp_path / "rows.json").write_text(text, newline="")
    assert read_objects(tmp_path / "rows.json").to_pylist() == [{"a": "x", "b": None}, {"a": None, "b": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"a": 1}\n{"a": 2}\n{a: 3}\n', "in line 3"), ('{"a": 1},\n{"a": 2}\n', "in line 1"), ("{} 7", "objects and others")],
)
def test_where_objects_end_is_reported(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_objects(tmp_path / "rows.json")


PAIR = {"1": "Where is it?", "2": "Here."}


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("rows.jsonl", '["Where is it?", "Here."]\n\n["Who?", "I."]\n', [PAIR, {"1": "Who?", "2": "I."}]),
        ("rows.json", '[["Where is it?", "Here."], ["Who?", "I."]]', [PAIR, {"1": "Who?", "2": "I."}]),
        ("rows.jsonl", '["Question", "answer"]\n["Where is it?", "Here."]\n', [{"Question": "Where is it?", "answer": "Here."}]),
        ("rows.json", '[["question", "answer"], ["Where is it?", "Here."]]', [{"question": "Where is it?", "answer": "Here."}]),
    ],
)
def test_an_array_a_row_is_read_as_columns(name: str, text: str, rows: list[dict[str, str]], tmp_path: Path) -> None:
    """As training pairs are often published: they were refused, with the advice to write objects."""
    path = tmp_path / name
    path.write_text(text)
    assert read_text_table(path, FileFormat(), may_repeat=True).to_pylist() == rows
    first = next(iter(rows[0]))
    (batch,) = open_texts(str(path), columns=[first]).batches(10)
    assert batch == {first: [row[first] for row in rows]}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rows.jsonl", '["a", "b"]\n["c"]\n', r"line 2: found 1 value; expected 2, as in the first array"),
        ("rows.json", '[["a", "b"], ["c"]]', r"list 2: found 1 value; expected 2, as in the first array"),
        ("rows.jsonl", '["a", "b"]\n{"c": "d"}\n', r"line 2: .*expected a JSON object"),
        ("rows.jsonl", '{"c": "d"}\n["a", "b"]\n', r"line 2: .*or an array in each"),
        ("rows.jsonl", '"a sentence"\n', r'Write \{"text": …\} in each line, or a file .txt with a sentence a line'),
    ],
)
def test_arrays_of_other_lengths_or_beside_objects_are_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_text_table(path, FileFormat(), may_repeat=True)
    with pytest.raises(DataError, match=words):
        list(open_texts(str(path), columns=["c" if text.startswith("{") else "1"]).batches(10))
