"""JSON as people and programs write it: lines, lists, arrays, objects within objects."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.file_format import own_table
from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.sources.files import read_lines, read_objects, read_text_table
from sentdist.data.sources.separated import FileFormat
from sentdist.data.texts import open_texts
from sentdist.errors import DataError

LINES = """{"title": "a", "id": "2020-01-01", "with": ["2020-01-01", "2021-06-30 10:00:00"], "about": {"day": "2020-01-01", "views": 3}}
{"title": "b", "id": "2020-01-02", "with": [], "about": {"day": "2020-01-02", "views": 4}}
"""
FAQ = '[{"question": "how", "answer": "so"}]'
PAIR = {"1": "Where is it?", "2": "Here."}
ROWS = [
    {"id": n, "ticket": {"question": f"how is thing number {n} opened", "by": {"answer": f"with the key {n} of the house"}}, "lang": "de"}
    for n in range(40)
]
COLUMNS = ("ticket.question", "ticket.by.answer")


def test_texts_that_look_like_dates_stay_texts(tmp_path: Path) -> None:
    plain, packed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    plain.write_text(LINES)
    packed.write_bytes(gzip.compress(LINES.encode()))
    assert read_lines(plain).to_pylist() == [json.loads(line) for line in LINES.splitlines()]
    assert read_lines(packed) == read_lines(plain) == read_lines(io.BytesIO(LINES.encode()))


@pytest.mark.parametrize(
    ("text", "number", "remedy"),
    [
        ('{"text": "a"},\n{"text": "b"}\n', 1, "comma"),
        ("{\"text\": \"a\"}\n{'text': 'b'}\n", 2, "double quotation marks"),
        ('[{"text": "a"}]\n', 1, ".json"),
        ('{"text": "a"}\n\n{"text": b}\n', 3, "Correct that line"),
    ],
)
def test_a_line_that_is_none_is_named_with_what_is_wrong_about_it(text: str, number: int, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-16")
    for read in (
        lambda: read_text_table(path, FileFormat(encoding="utf-16"), may_repeat=True),
        lambda: list(open_texts(str(path), columns=["text"]).batches(10)),
    ):
        with pytest.raises(DataError, match=f"line {number}: found .*expected a JSON object") as refused:
            read()
        assert remedy in refused.value.remedy


@pytest.mark.parametrize("text", [FAQ, f'{{"data": {FAQ}}}', f'{{"version": 2, "next": null, "name": "faq", "rows": {FAQ}}}'])
def test_the_only_list_of_objects_may_stand_under_a_key(text: str, tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(text)
    assert read_objects(tmp_path / "faq.json").to_pylist() == [{"question": "how", "answer": "so"}]
    assert next(open_texts(str(tmp_path / "faq.json"), columns=["answer"]).batches(9)) == {"answer": ["so"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"train": {FAQ}, "test": {FAQ}}}', "several lists of objects, under train, test"),
        (f'{{"data": {FAQ}, "columns": ["a"]}}', "a list of objects under data, beside columns"),
        ('{"question": ["how"], "answer": ["so"]}', "an object of columns, question, answer"),
        ('{"how": "so", "who": "she"}', "an object with the keys how, who"),
        ('[[{"how": "so"}]]', "a list of lists"),
        ('["how", "so"]', "a list of texts"),
        ('[{"question": "how"}, "so"]', "a list of objects and others"),
        ("7", "found 7"),
        ("[", "cannot be read"),
        ('{"a": 1}\n{"a": 2}\n{a: 3}\n', "in line 3"),
        ('{"a": 1},\n{"a": 2}\n', "in line 1"),
    ],
)
def test_json_of_another_shape_is_reported(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_objects(tmp_path / "faq.json")


def test_objects_one_behind_the_other_are_a_list_with_the_columns_of_all(tmp_path: Path) -> None:
    """Spark and `datasets` call lines of JSON .json, and jq writes objects over several lines."""
    path = tmp_path / "rows.json"
    for text in ('[{"a": "x"}, {"b": 1}]', '{"a": "x"}\r\n\r\n{"b": 1}', '\n{\n  "a": "x"\n}\n{\n  "b": 1\n}\n', '{"a": "x"} {"b": 1}'):
        path.write_text(text, newline="")
        assert read_objects(path).to_pylist() == [{"a": "x", "b": None}, {"a": None, "b": 1}]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("rows.jsonl", '["Where is it?", "Here."]\n\n["Who?", "I."]\n', [PAIR, {"1": "Who?", "2": "I."}]),
        ("rows.json", '[["question", "answer"], ["Where is it?", "Here."]]', [{"question": "Where is it?", "answer": "Here."}]),
    ],
)
def test_an_array_a_row_is_read_as_columns(name: str, text: str, rows: list[dict[str, str]], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_text_table(path, FileFormat(), may_repeat=True).to_pylist() == rows
    first = next(iter(rows[0]))
    assert list(open_texts(str(path), columns=[first]).batches(10)) == [{first: [row[first] for row in rows]}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.jsonl", '["a", "b"]\n["c"]\n', "line 2: found 1 value; expected 2"),
        ("rows.json", '[["a", "b"], ["c"]]', "list 2: found 1 value; expected 2"),
        ("rows.jsonl", '["a", "b"]\n{"c": "d"}\n', "line 2: .*expected a JSON object"),
        ("rows.jsonl", '{"c": "d"}\n["a", "b"]\n', "line 2: .*or an array in each"),
        ("rows.jsonl", '"a sentence"\n', "a file .txt with a sentence a line"),
    ],
)
def test_rows_of_other_lengths_or_kinds_are_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_text_table(path, FileFormat(), may_repeat=True)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_fields_within_objects_are_columns_by_a_name_with_points(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"tickets{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text(json.dumps(ROWS) if suffix == ".json" else "\n".join(map(json.dumps, ROWS)))
    with pytest.raises(DataError, match=r"found columns id, ticket\.question, ticket\.by\.answer, lang"):
        recognise(path.name, path, OwnFileOptions())
    found = recognise(path.name, path, OwnFileOptions(columns=COLUMNS))
    rows = read_rows(path.name, path, found.file, 0, revision=found.revision)
    assert found.file.columns == COLUMNS and sum(found.sizes) == 40
    pairs = {(row["ticket"]["question"], row["ticket"]["by"]["answer"]) for row in ROWS}  # type: ignore[index]
    assert rows.num_rows == found.sizes[0] and {tuple(row.values()) for row in rows.to_pylist()} <= pairs
    with pytest.raises(DataError, match=r"ticket\.nothing"):
        recognise(path.name, path, OwnFileOptions(columns=("ticket.question", "ticket.nothing")))
    assert own_table("t", path, FileFormat(), named=("id", None)).column_names == ["id", "ticket", "lang"]
    if suffix != ".jsonl":
        return
    first = next(iter(open_texts(str(path), columns=("ticket.by.answer",), id_column="id").batches(1)))
    assert first == {"ticket.by.answer": ["with the key 0 of the house"], "id": ["0"]}
