"""Sentences read in batches from every kind of file, and mistakes in them named with their row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentdist.data.checked_rows import read_pairs
from sentdist.data.sources.files import read_file
from sentdist.data.texts import looks_like_a_file, open_texts
from sentdist.errors import DataError

SENTENCES = ["A man plays.", 'He said "no", twice.', "ein Haus\tim Grünen", "two", "three"]


def _written(folder: Path, suffix: str, sentences: list[str]) -> Path:
    path = folder / f"corpus{suffix}"
    table = pa.table({"id": [10 + number for number in range(len(sentences))], "sentence": sentences})
    match suffix:
        case ".txt":
            path.write_text("\n".join(sentences) + "\n")
        case ".parquet":
            pq.write_table(table, path, row_group_size=2)
        case ".arrow":
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".tsv":
            path.write_text("id\tsentence\n" + "".join(f"{10 + number}\t{text}\n" for number, text in enumerate(sentences)))
        case ".jsonl":
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".txt", ".parquet", ".arrow", ".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("num_rows", [1, 2, 100])
def test_every_kind_of_file_gives_its_sentences_in_order(suffix: str, num_rows: int, tmp_path: Path) -> None:
    sentences = [sentence.replace("\t", " ") for sentence in SENTENCES]
    plain = suffix == ".txt"
    texts = open_texts(str(_written(tmp_path, suffix, sentences)), columns=[] if plain else ["sentence"], id_column=None if plain else "id")
    batches = list(texts.batches(num_rows))
    assert [len(batch["sentence"]) for batch in batches[:-1]] == [num_rows] * (len(batches) - 1)
    assert [sentence for batch in batches for sentence in batch["sentence"]] == sentences
    if not plain:
        assert [one for batch in batches for one in batch["id"]] == ["10", "11", "12", "13", "14"]
    assert texts.num_rows == (5 if suffix in (".parquet", ".arrow") else None)


@pytest.mark.parametrize(("name", "text"), [("a.txt", "\ufeffone\ntwo\n"), ("a.csv", "\ufeffsentence\none\ntwo\n")])
def test_a_mark_at_the_beginning_is_no_text(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    texts = open_texts(str(tmp_path / name), columns=[] if name == "a.txt" else ["sentence"], id_column=None)
    assert [sentence for batch in texts.batches(10) for sentence in batch["sentence"]] == ["one", "two"]


@pytest.mark.parametrize(("name", "text"), [("a.txt", "Bär\ntwo\n"), ("a.csv", "sentence\nBär\ntwo\n")])
def test_texts_that_windows_wrote_in_utf_16_are_read(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-16")
    texts = open_texts(str(tmp_path / name))
    assert [sentence for batch in texts.batches(10) for sentence in batch["sentence"]] == ["Bär", "two"]


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", "\n\nsentence\none\ntwo\n"), ("a.jsonl", '\n{"sentence": "one"}\n{"sentence": "two"}\n')]
)
def test_empty_lines_at_the_beginning_are_passed_over(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    texts = open_texts(str(tmp_path / name))
    assert [sentence for batch in texts.batches(10) for sentence in batch["sentence"]] == ["one", "two"]


_SENTENCE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ufeff\x00"), min_size=1)


@settings(max_examples=30)
@given(sentences=st.lists(_SENTENCE.filter(lambda text: bool(text.strip())), min_size=1, max_size=8))
def test_what_was_written_is_read(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("texts")
    for suffix in (".txt", ".csv", ".jsonl", ".parquet", ".arrow"):
        written = [text.replace("\t", "→") for text in sentences] if suffix == ".txt" else sentences  # as many tabs a line are a table's
        texts = open_texts(str(_written(folder, suffix, written)), columns=[] if suffix == ".txt" else ["sentence"])
        assert [one for batch in texts.batches(3) for one in batch["sentence"]] == written


def test_a_line_of_standard_input_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\r\nthree"))
    assert [batch["sentence"] for batch in open_texts("-").batches(2)] == [["one", "two"], ["three"]]


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n \r\n"])
def test_empty_lines_at_the_end_of_a_text_are_no_rows(end: str, tmp_path: Path) -> None:
    """They shift nothing; one between sentences does."""
    path = tmp_path / "lines.txt"
    path.write_bytes(f"one\ntwo{end}".encode())
    assert [batch["sentence"] for batch in open_texts(str(path)).batches(1)] == [["one"], ["two"]]
    path.write_bytes(f"one\n\ntwo{end}".encode())
    with pytest.raises(DataError, match="row 2, sentence: found ''"):
        list(open_texts(str(path)).batches(2))
    path.write_bytes(b"\n \n" + end.encode())
    with pytest.raises(DataError, match="no rows"):
        list(open_texts(str(path)).batches(2))


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_first_line_of_sentences_is_no_header_of_pairs(suffix: str, tmp_path: Path) -> None:
    """`similarity` gave 487 scores for 488 pairs, each a row too high."""
    path = tmp_path / f"pairs{suffix}"
    mark = "\t" if suffix == ".tsv" else ","
    path.write_text(f"red tent{mark}Our tent is red.\nblue tent{mark}Our tent is blue.\n")
    with pytest.raises(DataError, match=r"a first line of sentences, such as 'Our tent is red\.'; expected one that names the columns"):
        open_texts(str(path), num_columns=2)
    assert list(open_texts(str(path), columns=("red tent", "Our tent is red."), num_columns=2).batches(9))
    path.write_text(f"query{mark}what was clicked\nred tent{mark}Our tent is red.\n")
    assert open_texts(str(path), num_columns=2).columns == ("query", "what was clicked")


def test_packed_json_lines_are_read_and_damage_is_reported(tmp_path: Path) -> None:
    """Tasks and `tune` read them; `search` and `encode` asked to convert them."""
    lines = "".join(json.dumps({"text": sentence}, ensure_ascii=False) + "\n" for sentence in SENTENCES)
    packed = gzip.compress(lines.encode())
    (tmp_path / "corpus.JSONL.gz").write_bytes(packed)
    assert [row for batch in open_texts(str(tmp_path / "corpus.JSONL.gz")).batches(2) for row in batch["text"]] == SENTENCES
    for damaged in (packed[:-12], lines.encode()):
        (tmp_path / "cut.jsonl.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be read"):
            list(open_texts(str(tmp_path / "cut.jsonl.gz")).batches(2))
    (tmp_path / "corpus.gz").write_bytes(packed)
    with pytest.raises(DataError, match=r"found suffix \.gz; expected one of .*packed: \.csv\.gz.* zcat FILE"):
        open_texts(str(tmp_path / "corpus.gz"))


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl", ".parquet", ".arrow"])
def test_a_file_is_looked_through_for_its_rows_and_mistakes(suffix: str, tmp_path: Path) -> None:
    found = open_texts(str(_written(tmp_path, suffix, SENTENCES * 4000)), columns=() if suffix == ".txt" else ("sentence",))
    assert list(found.looked_through()) == [16_384, 20_000]


def test_what_can_be_read_once_alone_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n"))
    texts = open_texts("-")
    assert list(texts.looked_through()) == []
    with pytest.raises(DataError, match="row 2"):
        list(texts.batches(9))


def test_empty_fields_behind_the_last_column_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,sentence\n1,one,,\n2,two, \n")
    assert [batch["sentence"] for batch in open_texts(str(tmp_path / "a.csv"), columns=["sentence"]).batches(9)] == [["one", "two"]]


def test_the_sentences_to_encode_and_the_pairs_to_score_count_rows_alike(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\na,b,1\nc,,2\n")
    with pytest.raises(DataError, match="an empty sentence2 in row 2"):
        read_pairs("a", data_root=tmp_path)
    with pytest.raises(DataError, match="row 2, sentence2"):
        list(open_texts(str(tmp_path / "a.csv"), columns=["sentence2"]).batches(9))


def test_the_only_column_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\n")
    (tmp_path / "b.csv").write_text("first,second\none,two\n")
    assert open_texts(str(tmp_path / "a.csv")).columns == ("text",)
    (tmp_path / "c.csv").write_text("sentence; or two\none\n")
    assert open_texts(str(tmp_path / "c.csv"), columns=["sentence; or two"]).columns == ("sentence; or two",)
    assert open_texts(str(tmp_path / "b.csv"), num_columns=2).columns == ("first", "second")


@pytest.mark.parametrize(
    ("name", "content", "notes"),
    [
        ("a.csv", 'id; answer \n1;"Bär; two"\n'.encode("cp1252"), ["text in cp1252", "separated by semicolons"]),
        ("a.csv", "sep=|\nid|answer\n1|Bär; two\n".encode(), ["separated by bars"]),
        ("a.csv", "id\tanswer\n1\tBär; two\n".encode("utf-16"), ["text in utf-16", "separated by tabs"]),
        ("a.tsv", '"id"\t"answer"\n1\t"Bär; two"\n'.encode("utf-8-sig"), ["text in utf-8-sig"]),
        ("a.txt", "Bär; two\n".encode("cp1252"), ["text in cp1252"]),
        ("a.jsonl", '{"answer": "Bär; two"}\n'.encode("utf-16-le"), ["text in utf-16-le"]),
    ],
)
def test_files_are_read_as_recipes_read_them(name: str, content: bytes, notes: list[str], tmp_path: Path) -> None:
    """Separators, encodings and marks that spreadsheets write, and what of them is reported."""
    (tmp_path / name).write_bytes(content)
    columns = [] if name == "a.txt" else ["answer"]
    texts = open_texts(str(tmp_path / name), columns=columns)
    assert [batch[texts.columns[0]] for batch in texts.batches(10)] == [["Bär; two"]]
    assert list(texts.notes) == notes


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        ("corpus.csv", None, [], "Did you mean"),
        ("a.xlsx", "x", [], "suffix .xlsx"),
        ("a.xlsx", "x", [], "Save it as CSV in your spreadsheet program (Excel: CSV UTF-8)."),
        ("a.txt", "", [], "no rows"),
        ("a.csv", "sentence\n", ["sentence"], "no rows"),
        ("a.csv", "\ufeff", [], "an empty file"),
        ("a.jsonl", "\ufeff\n", [], "no rows"),
        ("a.csv", "sentence,id\none,1\n", ["sentense"], 'Did you mean "sentence"'),
        ("a.csv", "one,two\n1,2\n", [], "expected one that holds the sentences"),
        ("a.csv", "id,sentence\n1,one\n2,\n", ["sentence"], "row 2, sentence: found ''"),
        ("a.csv", "id,sentence\n1,one\n2\n", ["sentence"], "row 2, sentence: found None"),
        ("a.txt", "one\n \ntwo\n", [], "row 2, sentence: found ' '"),
        ("a.jsonl", '{"sentence": "one"}\n{"sentence": 3}\n', ["sentence"], "row 2, sentence: found 3"),
        ("a.jsonl", '{"sentence": "one"}\n{"sen\n', ["sentence"], 'line 2: found {"sen; expected a JSON object'),
        ("a.csv", "id,sentence\n1,one\n2,two, or more\n", ["sentence"], "row 2: found 3 fields, such as ' or more'; expected 2"),
        ("a.tsv", "sentence\tid\none\t1\ntwo\tor more\t2\n", ["sentence"], "row 2: found 3 fields"),
        (
            "a.csv",
            "question;answer\none\ntwo\n",
            [],
            "one column, 'question;answer'; expected a first line that names the columns, separated by commas",
        ),
        (
            "a.csv",
            "sep=;\nquestion;answer\none;two\n",
            [],
            "columns question, answer; expected one that holds the sentences. Say --column question, or others",
        ),
        ("a.csv", "id,kind,text\n1,a,one\n", [], "Say --column text, or others"),
        ("a.csv", "doc_id,body\n1,one\n", [], "Say --column body, or others"),
        ("a.tsv", "id,sentence\n1,one, and two, or three\n", [], "separated by tabs"),
        ("a.csv", "sentence,id,sentence\none,1,two\n", ["sentence"], "several columns named 'sentence'"),
        ("a.csv", b"PK\x03\x04 a workbook", [], "a spreadsheet or an archive"),
        ("a.txt", "Это предложение\n".encode("cp1251"), [], "neither UTF-8 nor of Western Europe"),
        ("a.csv", "a man eats in the house\ntwo birds\n", [], "as .txt with a sentence a line"),
        ("a.csv", "A man eats.\ntwo birds\n", [], "as .txt with a sentence a line"),
        ("a.txt", "one\ntwo\0\n", [], r"row 2, sentence: found 'two\x00'; expected a sentence without NUL characters"),
        ("a.txt", "one\n", ["sentence"], "plain text, and sentence asked for"),
        (
            "a.txt",
            "nr\ttext\n1\tone\n2\ttwo\n".encode("utf-16"),
            [],
            "2 columns parted by tabs; expected a sentence a line. Call the file a.tsv",
        ),
        ("a.parquet", "no parquet", ["sentence"], "a file that cannot be read"),
        ("a.arrow", "no arrow", ["sentence"], "a file that cannot be read"),
        ("a.txt", b"\xff\xfe\xfa", [], "a file that cannot be read"),
    ],
)
def test_a_mistake_is_named_with_its_place(name: str, content: str | bytes | None, columns: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "corpora.csv").write_text("sentence\none\n")
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    for rows_per_batch in (10, 1):
        with pytest.raises(DataError) as raised:
            list(open_texts(str(tmp_path / name), columns=columns).batches(rows_per_batch))
        assert words in str(raised.value)


def test_nothing_on_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(DataError, match="standard input: found no rows"):
        list(open_texts("-").batches(2))


def test_a_sentence_is_distinguished_from_a_file() -> None:
    assert [looks_like_a_file(one) for one in ("-", "pairs.csv", "./a/b.parquet", "A man plays.", "I wrote notes.txt", "word")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_file_that_is_there_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my a.txt", "notes.md", "word"):
        (tmp_path / name).write_text("one\n")
    asked = (
        "my a.txt",
        str(tmp_path / "my a.txt"),
        "notes.md",
        "./word",
        "PAIRS.CSV",
        "word",
        "your a.txt",
        "other.md",
        "/",
        "x" * 5000 + ".md",
    )
    assert [looks_like_a_file(one) for one in asked] == [True] * 5 + [False] * 5


@pytest.mark.parametrize("suffix", [".TXT", ".Parquet", ".CSV", ".TSV", ".JSONL"])
def test_a_suffix_may_have_capitals(suffix: str, tmp_path: Path) -> None:
    path = _written(tmp_path, suffix.lower(), ["one", 'a "b"']).rename(tmp_path / f"Corpus{suffix}")
    (batch,) = open_texts(str(path), columns=[] if suffix == ".TXT" else ["sentence"]).batches(10)
    assert batch["sentence"] == ["one", 'a "b"']


def _reported(path: Path, content: str, **asked: str) -> str:
    path.write_text(content)
    with pytest.raises(DataError) as raised:
        list(open_texts(str(path), columns=["sentence"], **asked).batches(2))
    return str(raised.value)


def test_a_mark_that_is_never_closed_loses_no_rows(tmp_path: Path) -> None:
    content = 'sentence,note\none,\ntwo,\n"three,\nfour,\n"five",\n'
    assert "corpus.csv, line 4: found a field that a quotation mark opens and none closes" in _reported(tmp_path / "corpus.csv", content)
    (tmp_path / "corpus.csv").write_text('sentence,note\n"one\ntwo",\nthree,"say ""hi""\nnow"\n')
    (batch,) = open_texts(str(tmp_path / "corpus.csv"), columns=["sentence"]).batches(10)
    assert batch == {"sentence": ["one\ntwo", "three"]}


@settings(max_examples=50)
@given(
    fields=st.lists(
        st.text("\"a'", max_size=8).map(lambda text: f"x{text}") | st.text('"a', max_size=8).map(lambda text: f'"{text}"'), min_size=1
    )
)
def test_fields_of_a_tsv_are_those_that_training_reads(fields: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("texts") / "corpus.tsv"
    path.write_text("sentence\tid\n" + "".join(f"{field}\t1\n" for field in fields))
    (batch,) = open_texts(str(path), columns=["sentence"]).batches(100)
    assert batch["sentence"] == read_file("corpus", path)["sentence"].to_pylist()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_long_text_is_read_from_every_kind_of_table(suffix: str, tmp_path: Path) -> None:
    path = _written(tmp_path, suffix, ["one", "two " * 50_000])
    before = csv.field_size_limit()
    (batch,) = open_texts(str(path), columns=["sentence"]).batches(10)
    assert [len(text) for text in batch["sentence"]] == [3, 200_000] and csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".csv", "sentence,id\none,1\ntwo,\nthree,3\nfour\n"),
        (
            ".jsonl",
            '{"sentence": "one", "id": 1}\n{"sentence": "a", "id": ""}\n{"sentence": "a", "id": 0}\n{"sentence": "four", "id": null}\n',
        ),
        (".jsonl", '{"sentence": "one", "id": 1}\n' * 3 + '{"sentence": "four"}\n'),
    ],
)
def test_an_id_that_is_missing_is_named(suffix: str, content: str, tmp_path: Path) -> None:
    assert "row 4, id: found no id" in _reported(tmp_path / f"corpus{suffix}", content, id_column="id")


def test_what_a_shell_substitutes_is_read() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"one\ntwo\n")
        os.close(writing)
        (batch,) = open_texts(f"/dev/fd/{reading}").batches(10)
    finally:
        os.close(reading)
    assert batch == {"sentence": ["one", "two"]}


@pytest.mark.parametrize("name", ["own.txt", "own.csv", "own.csv.gz", "own.jsonl"])
def test_letters_of_an_unknown_encoding_are_reported_with_a_command(tmp_path: Path, name: str) -> None:
    line = '{"text": "Как сбросить router"}\n' if "json" in name else "Как сбросить router\n"
    content = (("text\n" if ".csv" in name else "") + line * 40).encode("cp1251")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match=rf"cat {name} \| iconv -f cp1251 -t utf-8, with the encoding that it is in"):
        open_texts(str(tmp_path / name))


def test_a_list_in_place_of_a_sentence_is_reported_as_one(tmp_path: Path) -> None:
    """As mteb has a whole column in one row: it was said to lack a visible character."""
    (tmp_path / "rows.jsonl").write_text('{"sentences": ["One.", "Two."], "labels": [0, 1]}\n')
    with pytest.raises(DataError, match=r"expected a sentence, not a list\. Write a row for each text in a list"):
        list(open_texts(str(tmp_path / "rows.jsonl"), columns=["sentences"]).batches(8))
