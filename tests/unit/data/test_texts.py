"""Sentences read in batches from every kind of file, and mistakes in them named with their row."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sentdist.data.texts import open_texts
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
    assert texts.num_rows == (5 if suffix == ".parquet" else None)


def test_a_line_of_standard_input_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read once alone, and so is not looked through."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\r\nthree"))
    texts = open_texts("-")
    assert list(texts.looked_through()) == [] and [batch["sentence"] for batch in texts.batches(2)] == [["one", "two"], ["three"]]
    for content, said in (("", "standard input: found no rows"), ("one\n\ntwo\n", "row 2")):
        monkeypatch.setattr("sys.stdin", io.StringIO(content))
        with pytest.raises(DataError, match=said):
            list(open_texts("-").batches(2))


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        ("corpus.csv", None, [], "Did you mean"),
        ("corpus.gz", "x", [], "suffix .gz"),
        ("a.csv", "sentence\n", ["sentence"], "no rows"),
        ("a.csv", "sentence,id\none,1\n", ["sentense"], "columns sentence, id"),
        ("a.csv", "one,two\n1,2\n", [], "expected one that holds the sentences"),
        ("a.csv", "id,sentence\n1,one\n2,\n3, \n", ["sentence"], "row 2, sentence: found no sentence"),
        ("a.jsonl", '{"sentence": "one"}\n{"sentence": null}\n', ["sentence"], "row 2, sentence: found no sentence"),
        ("a.jsonl", '{"sentence": 3}\n', ["sentence"], "row 1, sentence: found 3"),
        ("a.jsonl", '{"sentence": ["One.", "Two."]}\n', ["sentence"], "not a list"),
        ("a.csv", "id,question,text\n1,a,one\n", [], "Use --column question, or others"),
        ("a.csv", "A man eats.\ntwo birds\n", [], "as .txt"),
        ("a.txt", "one\n", ["text"], "columns sentence"),
        ("a.txt", ("Как сбросить пароль?\n" * 40).encode("cp1251"), [], "-t utf-8"),
        ("a.arrow", "no arrow", ["sentence"], "a file that cannot be read"),
    ],
)
def test_a_mistake_is_named_with_its_place(name: str, content: str | bytes | None, columns: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "corpora.csv").write_text("sentence\none\n")
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as raised:
        list(open_texts(str(tmp_path / name), columns=columns).batches(10))
    assert words in str(raised.value)
