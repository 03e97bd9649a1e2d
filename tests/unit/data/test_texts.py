"""Sentences read in batches from every kind of file, and mistakes in them named with their row."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

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
def test_every_kind_of_file_gives_its_sentences_in_order(suffix: str, tmp_path: Path) -> None:
    sentences = [sentence.replace("\t", " ") for sentence in SENTENCES]
    plain = suffix == ".txt"
    texts = open_texts(str(_written(tmp_path, suffix, sentences)), columns=[] if plain else ["sentence"], id_column=None if plain else "id")
    batches = list(texts.batches(2))
    assert [len(batch["sentence"]) for batch in batches] == [2, 2, 1]
    assert [sentence for batch in batches for sentence in batch["sentence"]] == sentences
    if not plain:
        assert [one for batch in batches for one in batch["id"]] == ["10", "11", "12", "13", "14"]
    assert texts.num_rows == (5 if suffix in (".parquet", ".arrow") else None)


def test_a_line_of_standard_input_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read once alone, and so is not looked through."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\r\nthree"))
    texts = open_texts("-")
    assert list(texts.looked_through()) == [] and [batch["sentence"] for batch in texts.batches(2)] == [["one", "two"], ["three"]]
    for content, said in (("", "standard input: found no rows"), ("one\n\ntwo\n", "row 2")):
        monkeypatch.setattr("sys.stdin", io.StringIO(content))
        with pytest.raises(DataError, match=said):
            list(open_texts("-").batches(2))


@pytest.mark.parametrize("suffix", [".tsv"])
def test_a_first_line_of_sentences_is_no_header_of_pairs(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"pairs{suffix}"
    mark = "\t" if suffix == ".tsv" else ","
    path.write_text(f"red tent{mark}Our tent is red.\nblue tent{mark}Our tent is blue.\n")
    with pytest.raises(DataError, match=r"a first line of sentences, such as 'Our tent is red\.'; expected one that names the columns"):
        open_texts(str(path), num_columns=2)
    assert list(open_texts(str(path), columns=("red tent", "Our tent is red."), num_columns=2).batches(9))
    path.write_text(f"query{mark}what was clicked\nred tent{mark}Our tent is red.\n")
    assert open_texts(str(path), num_columns=2).columns == ("query", "what was clicked")


@pytest.mark.parametrize(
    ("name", "content", "notes"),
    [
        ("a.csv", 'id; answer \n1;"Bär; two"\n'.encode("cp1252"), ["text in cp1252", "separated by semicolons"]),
        ("a.csv", "\n\nsep=|\nid|answer\n1|Bär; two\n".encode()[2:], ["separated by bars"]),
        ("a.CSV", "id\tanswer\n1\tBär; two\n".encode("utf-16"), ["text in utf-16", "separated by tabs"]),
        ("a.tsv", '"id"\t"answer"\n1\t"Bär; two"\n'.encode("utf-8-sig"), ["text in utf-8-sig"]),
        ("a.txt", "Bär; two\n".encode("utf-16"), ["text in utf-16"]),
        ("a.jsonl", '\n{"answer": "Bär; two"}\n'.encode("utf-16-le"), ["text in utf-16-le"]),
    ],
)
def test_files_are_read_as_recipes_read_them(name: str, content: bytes, notes: list[str], tmp_path: Path) -> None:
    """Separators, encodings, marks and empty lines that spreadsheets write, and what of them is reported."""
    (tmp_path / name).write_bytes(content)
    texts = open_texts(str(tmp_path / name), columns=[] if name == "a.txt" else ["answer"])
    assert [batch[texts.columns[0]] for batch in texts.batches(10)] == [["Bär; two"]]
    assert list(texts.notes) == notes


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        ("corpus.csv", None, [], "Did you mean"),
        ("a.xlsx", "x", [], "Save it as CSV"),
        ("corpus.gz", "x", [], "suffix .gz"),
        ("a.txt", "", [], "no rows"),
        ("a.csv", "sentence\n", ["sentence"], "no rows"),
        ("a.csv", "\ufeff", [], "an empty file"),
        ("a.csv", "sentence,id\none,1\n", ["sentense"], 'Did you mean "sentence"'),
        ("a.csv", "one,two\n1,2\n", [], "expected one that holds the sentences"),
        ("a.csv", "id,sentence\n1,one\n2,\n", ["sentence"], "row 2, sentence: found ''"),
        ("a.csv", "id,sentence\n1,one\n2\n", ["sentence"], "row 2, sentence: found None"),
        ("a.jsonl", '{"sentence": "one"}\n{"sentence": 3}\n', ["sentence"], "row 2, sentence: found 3"),
        ("a.jsonl", '{"sentence": ["One.", "Two."]}\n', ["sentence"], "a sentence, not a list"),
        ("a.jsonl", '{"sentence": "one"}\n{"sen\n', ["sentence"], 'line 2: found {"sen'),
        ("a.csv", "id,sentence\n1,one\n2,two, or more\n", ["sentence"], "row 2: found 3 fields, such as ' or more'; expected 2"),
        ("a.csv", "question;answer\none\ntwo\n", [], "one column, 'question;answer'"),
        ("a.csv", "sep=;\nquestion;answer\none;two\n", [], "Use --column question, or others"),
        ("a.csv", "id,kind,text\n1,a,one\n", [], "Use --column text, or others"),
        ("a.csv", "sentence,id,sentence\none,1,two\n", ["sentence"], "several columns named 'sentence'"),
        ("a.csv", "A man eats.\ntwo birds\n", [], "as .txt"),
        ("a.txt", "one\ntwo\0\n", [], "without NUL characters"),
        ("a.txt", "one\n", ["sentence"], "plain text, and sentence asked for"),
        ("a.txt", "nr\ttext\n1\tone\n2\ttwo\n".encode("utf-16"), [], "Call the file a.tsv"),
        ("a.txt", ("Как сбросить\n" * 40).encode("cp1251"), [], "cat a.txt | iconv -f cp1251 -t utf-8"),
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


def test_a_file_is_distinguished_from_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its suffix; what is there may have any name."""
    monkeypatch.chdir(tmp_path)
    for name in ("my a.txt", "notes.md"):
        (tmp_path / name).write_text("one\n")
    files = ("my a.txt", str(tmp_path / "my a.txt"), "notes.md", "-", "PAIRS.CSV", "./a/b.parquet", "faq.csv.gz")
    others = ("word", "your a.txt", "other.md", "/", "x" * 5000 + ".md", "A man plays.", "I wrote notes.txt")
    assert [looks_like_a_file(one) for one in (*files, *others)] == [True] * 7 + [False] * 7


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


@pytest.mark.parametrize(("suffix", "is_pattern"), [(".csv", True), (".jsonl", False), (".txt", False), (".parquet", True)])
def test_the_command_that_is_reported_makes_one_table_of_the_parts(
    suffix: str, is_pattern: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    for number, text in enumerate(["A dog runs.", "A cat sleeps."]):
        _written(tmp_path, suffix, [text]).rename(tmp_path / f"shards/part-{number}{suffix}")
    with pytest.raises(DataError) as refused:
        open_texts(f"shards/*{suffix}" if is_pattern else "shards")
    command = refused.value.remedy.partition("put into one file first: ")[2].replace("python -c", f"{sys.executable} -c")
    subprocess.run(command, shell=True, check=True)
    whole = open_texts(f"shards{suffix}", columns=[] if suffix == ".txt" else ["sentence"])
    assert [text for batch in whole.batches(10) for text in batch["sentence"]] == ["A dog runs.", "A cat sleeps."]
