"""Files as spreadsheets, databases and other programs write them: what stands for nothing, lines that are no rows, marks, encodings."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from sentdist.data.own.file_format import NOTHING, own_table
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.sides import DEV, TEST, TRAIN
from sentdist.data.own.usual_names import KNOWN_NAMES
from sentdist.data.sources.pinned import read_source
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError

NEAR = OwnFileOptions(near=None)


def pairs(found: RecognisedFile, path: Path) -> set[tuple[str, str]]:
    """The pairs of all sides."""
    tables = (read_rows(path.name, path, found.file, side, revision=found.revision) for side in (TRAIN, DEV, TEST))
    return {(row["sent0"], row["sent1"]) for table in tables for row in table.to_pylist()}


def cells(path: Path, asked: FileFormat | None = None) -> list[dict[str, object]]:
    return own_table(path.name, path, recognised(path.name, path, asked or FileFormat(), sorted(KNOWN_NAMES))).to_pylist()


def rows_of(path: Path) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in cells(path)]


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_words_for_no_value_are_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [
        {"question": f"question {n}", "answer": f" {NOTHING[n % len(NOTHING)]}" if n % 4 == 0 else f"answer {n}", "group": NOTHING[n % 3]}
        for n in range(60)
    ]
    if name == "own.csv":
        path.write_text("question,answer,group\n" + "".join(",".join(row.values()) + "\n" for row in rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    found = recognise(name, path, NEAR)
    assert "15 rows without a text left out" in found.notes[0] and "in 45 groups" in found.notes[1]
    assert pairs(found, path) == {(f"question {n}", f"answer {n}") for n in range(60) if n % 4}


@pytest.mark.parametrize("end", ["\n\n", ' , ,\n,"",\n'])
def test_blank_rows_at_the_end_are_no_rows(tmp_path: Path, end: str) -> None:
    path = tmp_path / "own.csv"
    rows = [f"one {n},other {n},{n % 7}.5\n" for n in range(60)]
    for lacks, num_left_out in (("", 0), ("one,,\n,,\n,other,1\n\u200b,other,2\n", 4)):
        path.write_text("a,b,score\n" + "".join(rows[:40]) + lacks + "".join(rows[40:]) + end, encoding="utf-8")
        found = recognise("own.csv", path, NEAR)
        assert sum(found.sizes) == 60 and (f"{num_left_out} rows without a text or a score" in found.notes[0]) == (num_left_out > 0)
    path.write_text("a,b,score\n" + end)
    with pytest.raises(DataError, match="no rows"):
        recognise("own.csv", path, OwnFileOptions(near=None, has_header=True))


def test_a_header_between_rows_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    names, rows = "a,b,score\n", [f"one {n},other {n},{n}.5\n" for n in range(60)]
    path.write_text("".join([names, names, *rows[:30], names, *rows[30:]]))
    found = recognise("own.csv", path, NEAR)
    assert sum(found.sizes) == 60 and "2 rows with the names of the columns left out" in found.notes[0]


@pytest.mark.parametrize(("word", "is_spoilt"), [("schÃ¶n", True), ("sch\ufffdn", True), ("GRÃ–SSE", True), ("Ãlvaro CÂMARA", False), ("schön", False), ("AMANHÃ…", False)])  # fmt: skip
def test_letters_that_were_lost_before_are_reported(tmp_path: Path, word: str, is_spoilt: bool) -> None:
    path = tmp_path / "own.csv"
    path.write_text("question,answer\n" + "".join(f"one {n},{word if n < 3 else 'other'} {n}\n" for n in range(60)), encoding="utf-8")
    notes = recognise("own.csv", path, NEAR).notes
    assert (f"3 texts with letters like {word!r}" in notes[-1]) == is_spoilt and len(notes) == 2 + is_spoilt


@pytest.mark.parametrize(("number", "is_reported"), [(3, True), (2, False)])
@pytest.mark.parametrize("text", ["Press it.<br>Then wait", "Tom &amp; Jerry"])
def test_html_in_many_texts_is_reported_once(tmp_path: Path, number: int, is_reported: bool, text: str) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("question\tanswer\n" + "".join(f"one {n}\t{text if n < number else 'a < b & c; x > y'} {n}\n" for n in range(60)))
    notes = recognise("own.tsv", path, NEAR).notes
    assert len(notes) == 2 + is_reported and notes[-1].startswith(f"{number} texts with HTML") == is_reported


@pytest.mark.parametrize(
    ("encoding", "separator", "header"), [("utf-8-sig", ";", True), ("utf-16", "\t", False), ("cp1252", ",", True), ("utf-8", ";", False)]
)
def test_the_line_that_tells_excel_the_separator_is_no_row(tmp_path: Path, encoding: str, separator: str, header: bool) -> None:
    path, rows = tmp_path / "own.csv", [(f"Frage {n}, wie?", f"Antwort für {n}.", f"Gegenteil; {n}!") for n in range(40)]
    lines = [("anchor", "positive", "negative"), *rows] if header else rows
    written = [separator.join(f'"{cell}"' if separator in cell else cell for cell in line) for line in lines]
    path.write_bytes("\r\n".join([f"sep={separator}", *written, ""]).encode(encoding))
    assert rows_of(path) == rows
    assert list(cells(path)[0]) == (["anchor", "positive", "negative"] if header else ["1", "2", "3"])


@pytest.mark.parametrize("first", ["question\u2028,answer\x85\n", "\n\nquestion,answer\n", '"ques\ntion","the\n\nanswer"\n', "\ufeff\r\nquestion,answer\r\n"])  # fmt: skip
def test_names_and_texts_may_hold_line_breaks_of_any_kind(tmp_path: Path, first: str) -> None:
    rows = [(f"question\u2028{n}", f"answer\x0b{n}") for n in range(40)]
    (tmp_path / "own.csv").write_bytes((first + "".join(f"{one},{other}\n" for one, other in rows)).encode())
    assert rows_of(tmp_path / "own.csv") == rows


def test_a_file_that_is_a_mark_of_its_encoding_is_empty(tmp_path: Path) -> None:
    for content in (b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xef\xbb\xbf\r\n"):
        (tmp_path / "own.csv").write_bytes(content)
        with pytest.raises(DataError, match="an empty file"):
            cells(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("encoding", "question", "answer"),
    [
        ("cp1251", "Как сбросить router {n}?", "Нажмите кнопку reset и подождите {n} минут."),
        ("shift-jis", "ルーター{n}をリセットするには？", "ボタンを{n}分押してください。"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_letters_of_an_encoding_that_is_not_named_are_read_only_when_asked(
    tmp_path: Path, encoding: str, question: str, answer: str, suffix: str
) -> None:
    rows = [(question.format(n=n), answer.format(n=n)) for n in range(40)]
    lines = [f"{one}\t{other}" if suffix == "csv" else json.dumps({"a": one, "b": other}, ensure_ascii=False) for one, other in rows]
    path = tmp_path / f"own.{suffix}"
    path.write_bytes("\n".join(lines).encode(encoding))
    with pytest.raises(DataError, match=r"neither UTF-8 nor of Western Europe.*--set corpus\.encoding="):
        cells(path)
    asked = FileFormat(encoding=encoding, has_header=False if suffix == "csv" else None)
    assert [tuple(row.values()) for row in cells(path, asked)] == rows


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_utf_8_with_bytes_that_are_none_is_not_read_as_other_letters(tmp_path: Path, name: str) -> None:
    row = '{"text": "Größe", "label": "1"}' if name == "own.jsonl" else "Größe,1"
    (tmp_path / name).write_bytes("\n".join(["" if name == "own.jsonl" else "text,label", *[row] * 40, "Ma"]).encode() + b"\xdfe,1\n")
    for read in (lambda: read_source("own", data_root=tmp_path), lambda: cells(tmp_path / name)):
        with pytest.raises(DataError, match="line 42: bytes that are no UTF-8"):
            read()


def test_sentences_alone_are_reported_to_be_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("text\n" + "".join(f"This is sentence {n}{', with more' * (n % 3 == 0)}.\n" for n in range(60)))
    with pytest.raises(DataError, match=r"one text a row, such as 'This is .*unsupervised SimCSE"):
        recognise("own.csv", tmp_path / "own.csv", OwnFileOptions())
    (tmp_path / "own.csv").write_text("".join(["No comma", "One, here", "Two, of, them"][n % 3] + f" {n}\n" for n in range(40)))
    with pytest.raises(DataError, match="another number of them in each line"):
        cells(tmp_path / "own.csv")


def test_a_tsv_with_its_names_in_marks_has_its_texts_in_marks(tmp_path: Path) -> None:
    path, rows = tmp_path / "own.tsv", [(f'how about "{n}"', f"so\nand\t{n}") for n in range(40)]
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL).writerows([("question", "answer"), *rows])
    assert rows_of(path) == rows and list(cells(path)[0]) == ["question", "answer"]
    path.write_text('question\tanswer\n"how"\t"so"\n')
    assert cells(path) == [{"question": '"how"', "answer": '"so"'}]
    path.write_text('"question"\t"answer"\n"how \\"a\\" b"\t"so"\n')
    with pytest.raises(DataError, match="line 2: found quotation marks behind backslashes"):
        cells(path)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("the sky,blue\nthe sea,blue\na leaf,green\n", [("the sky", "blue"), ("the sea", "blue"), ("a leaf", "green")]),
        ("Die Frage, links;Rechts\nSag, wie;So 1\nSag;So 2\n", [("Sag, wie", "So 1"), ("Sag", "So 2")]),
        ("a text of one;a text of two;0,5\nthe third;the fourth;0,7\n", [("a text of one", "a text of two", "0,5"), ("the third", "the fourth", "0,7")]),
    ],
    ids=["a cell that stands again below is no name", "what parts all lines goes before the suffix", "decimal commas part no columns"],
)  # fmt: skip
def test_few_lines_tell_header_and_separator(tmp_path: Path, content: str, rows: list[tuple[str, ...]]) -> None:
    (tmp_path / "own.csv").write_text(content)
    assert rows_of(tmp_path / "own.csv") == rows


def test_what_stands_behind_the_first_look_is_read_too(tmp_path: Path) -> None:
    """A row that is cut off where the look ends, and the only letters that tell the encoding."""
    row = ",".join(["a long text " * 9500] * 4)  # 456 kB; the first MiB holds two rows and the beginning of a third
    (tmp_path / "own.csv").write_text("one,two,three,four\n" + f"{row}\n" * 3)
    assert [list(found) for found in cells(tmp_path / "own.csv")] == [["one", "two", "three", "four"]] * 3
    text = "the same text again and again " * 40
    (tmp_path / "own.csv").write_bytes(("question,answer\n" + f"{text},{text}\n" * 500 + "Größe,Füße\n").encode("cp1252"))
    assert cells(tmp_path / "own.csv")[-1] == {"question": "Größe", "answer": "Füße"}


@pytest.mark.parametrize(("row", "fields"), [("one, or two,three", "3 fields"), ("one", "1 field")])
def test_a_row_of_another_length_is_shown(tmp_path: Path, row: str, fields: str) -> None:
    (tmp_path / "own.csv").write_text("question,answer\n" + "a b,c d\n" * 30 + f"{row}\n")
    for read in (lambda: cells(tmp_path / "own.csv"), lambda: read_source("own", data_root=tmp_path)):
        with pytest.raises(DataError, match=f"a row of {fields} where 2 belong: '{row}'"):
            read()


@pytest.mark.parametrize("separator", [",", "\t"])
def test_columns_without_a_name_are_distinguished_and_those_of_one_name_are_refused(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "own.csv"
    rows = "".join(separator.join((f"question {n}", f"answer {n}", "", "")) + "\n" for n in range(30))
    path.write_text(separator.join(("question", "answer", "", "")) + "\n" + rows)
    assert cells(path)[0] == {"question": "question 0", "answer": "answer 0", "": "", "unnamed_2": ""}
    path.write_text(separator.join(("question", "question", "score", "x")) + "\n" + rows)
    with pytest.raises(DataError, match="several columns named 'question'"):
        cells(path)
