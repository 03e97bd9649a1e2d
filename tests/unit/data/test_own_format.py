"""Files as spreadsheets, databases and other programs write them: what stands for nothing, lines that are no rows, marks, encodings."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest

from sentdist.data.own.columns import KNOWN_NAMES
from sentdist.data.own.file_rows import SPOILT
from sentdist.data.own.files import NOTHING, own_table
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import DEV, TEST, TRAIN
from sentdist.data.sources.hub import read_source
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pairs(found: RecognisedFile, path: Path) -> set[tuple[str, str]]:
    """The pairs of all sides."""
    tables = (read_rows(path.name, path, found.file, side, revision=found.revision) for side in (TRAIN, DEV, TEST))
    return {(row["sent0"], row["sent1"]) for table in tables for row in table.to_pylist()}


def cells(path: Path) -> list[dict[str, object]]:
    return own_table(path.name, path, recognised(path.name, path, FileFormat(), sorted(KNOWN_NAMES))).to_pylist()


@pytest.mark.parametrize("word", NOTHING)
@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_words_for_no_value_are_none(tmp_path: Path, name: str, word: str) -> None:
    path = tmp_path / name
    rows = [{"question": f"question {n}", "answer": f" {word}" if n % 4 == 0 else f"answer {n}", "group": word} for n in range(60)]
    if name == "own.csv":
        path.write_text("question,answer,group\n" + "".join(",".join(row.values()) + "\n" for row in rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    found = recognise(name, path, OwnFileOptions(near=None))
    assert "15 rows without a text left out" in found.notes[0] and "in 45 groups" in found.notes[1]
    assert pairs(found, path) == {(f"question {n}", f"answer {n}") for n in range(60) if n % 4}


@pytest.mark.parametrize("end", [",,\n" * 30, " , ,\n,,\n", "\n\n", ',"",\n'])
def test_blank_rows_at_the_end_are_no_rows(tmp_path: Path, end: str) -> None:
    """They were counted among those that were left out; those that lack a text still are."""
    path = tmp_path / "own.csv"
    rows = [f"one {n},other {n},{n % 7}.5\n" for n in range(60)]
    for lacks, said in (("", None), ("one,,\n,,\n,other,1\n", "3 rows without a text or a score left out")):
        path.write_text("a,b,score\n" + "".join(rows[:40]) + lacks + "".join(rows[40:]) + end)
        found = recognise("own.csv", path, OwnFileOptions(near=None))
        assert sum(found.sizes) == 60 and ("left out" in found.notes[0]) == (said is not None) and (said or "") in found.notes[0]
    path.write_text("a,b,score\n" + end)
    with pytest.raises(DataError, match="no rows"):
        recognise("own.csv", path, OwnFileOptions(near=None, has_header=True))


@pytest.mark.parametrize(("names", "row"), [("question,answer", "one {n},other {n}\n"), ("a,b,score", "one {n},other {n},{n}.5\n")])
def test_a_header_between_rows_is_no_row(tmp_path: Path, names: str, row: str) -> None:
    """Files that were put one behind the other had the names of columns trained on, or as a score that is no number."""
    path = tmp_path / "own.csv"
    rows = [row.format(n=n) for n in range(60)]
    path.write_text("".join([f"{names}\n", f"{names}\n", *rows[:30], f"{names}\n", *rows[30:]]))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert (
        sum(found.sizes) == 60 and "; 2 rows with the names of the columns left out" in found.notes[0] and "repeated" not in found.notes[0]
    )


def test_a_header_between_rows_hides_no_classes(tmp_path: Path) -> None:
    """The word label made words of numbers, and NLI's 0, 1, 2 became scores the wrong way round."""
    path = tmp_path / "own.csv"
    names = "premise,hypothesis,label\n"
    path.write_text("".join([names, *(f"one {n},other {n},{n % 3}\n" for n in range(60)), names]))
    with pytest.raises(DataError, match=r"label"):
        recognise("own.csv", path, OwnFileOptions(near=None))


@pytest.mark.parametrize(
    ("third", "is_negative"), [("hard_negative_1", True), ("contradiction", True), ("hardware", False), ("negozio", False)]
)
def test_a_negative_is_called_so_in_a_word_of_its_own(tmp_path: Path, third: str, is_negative: bool) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"titel,teaser,{third}\n" + "".join(f"a title {n},its teaser {n},a third text {n}\n" for n in range(60)))
    if is_negative:
        assert recognise("own.csv", path, OwnFileOptions(near=None)).file.shape == "triplets"
        return
    with pytest.raises(DataError, match="three columns of texts"):
        recognise("own.csv", path, OwnFileOptions(near=None))


@pytest.mark.parametrize(
    ("word", "is_spoilt"),
    [
        ("schÃ¶n", True),
        ("itâ€™s", True),
        ("sch\ufffdn", True),
        ("Ãlvaro CÂMARA", False),
        ("schön", False),
        ("AMANHÃ…", False),
        ("LÃ”", False),
        ("GRÃ–SSE", True),
        ("voilÃ\xa0", True),
        ("Ã…ngström", True),
        ("CAFÃ©", True),
    ],
)
def test_letters_that_were_lost_before_are_reported(tmp_path: Path, word: str, is_spoilt: bool) -> None:
    path = tmp_path / "own.csv"
    path.write_text("question,answer\n" + "".join(f"one {n},{word if n < 3 else 'other'} {n}\n" for n in range(60)), encoding="utf-8")
    notes = recognise("own.csv", path, OwnFileOptions(near=None)).notes
    assert (f"3 texts with letters like {word!r}, spoilt before they came here: export them again as UTF-8." in notes) == is_spoilt
    assert len(notes) == 2 + is_spoilt


@pytest.mark.parametrize(("number", "is_reported"), [(40, True), (3, True), (2, False)])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Press it.<br>Then wait", "'<br>' in 'Press it.<br>Then wait"),
        ("Tom &amp; Jerry", "'&amp;' in 'Tom &amp; Jerry"),
        ('<a href="x">see</a>', """'<a href="x">' in"""),
        ("it&#39;s so", "'&#39;' in"),
    ],
)
def test_html_in_many_texts_is_reported_once(tmp_path: Path, number: int, is_reported: bool, text: str, shown: str) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("question\tanswer\n" + "".join(f"one {n}\t{text if n < number else 'a < b & c; x > y'} {n}\n" for n in range(60)))
    notes = recognise("own.tsv", path, OwnFileOptions(near=None)).notes
    assert len(notes) == 2 + is_reported
    if is_reported:
        assert notes[-1].startswith(f"{number} texts with HTML, such as {shown}")


def test_texts_without_blanks_are_looked_through_once() -> None:
    """A word is cut out around letters that were lost, not looked for from each letter of a text on: that took the square of its length."""
    took = []
    for length in (5_000, 20_000):
        began = time.process_time()
        assert not SPOILT.search("漢字" * length)
        took.append(time.process_time() - began)
    assert took[1] < 8 * took[0] + 0.05


def test_a_score_that_is_null_is_no_score(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("a,b,score\n" + "".join(f"one {n},other {n},{'NULL' if n % 4 == 0 else n % 3}\n" for n in range(60)))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert (found.file.shape, sum(found.sizes)) == ("graded", 45)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [";", ",", "\t"])
@pytest.mark.parametrize("header", [True, False])
def test_the_line_that_tells_excel_the_separator_is_no_row(tmp_path: Path, encoding: str, separator: str, header: bool) -> None:
    path, rows = tmp_path / "own.csv", [(f"Frage {n}, wie?", f"Antwort für {n}.", f"Gegenteil; {n}!") for n in range(40)]
    lines = [("anchor", "positive", "negative"), *rows] if header else rows
    written = [separator.join(f'"{cell}"' if separator in cell else cell for cell in line) for line in lines]
    path.write_bytes("\r\n".join([f"sep={separator}", *written, ""]).encode(encoding))
    assert [tuple(row.values()) for row in cells(path)] == rows
    assert list(cells(path)[0]) == (["anchor", "positive", "negative"] if header else ["1", "2", "3"])


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_text_may_hold_what_other_programs_take_for_a_line_end(tmp_path: Path, mark: str) -> None:
    path, rows = tmp_path / "own.csv", [(f"question{mark}{n}", f"answer{mark}{n}") for n in range(40)]
    path.write_text("question,answer\n" + "".join(f"{one},{other}\n" for one, other in rows), encoding="utf-8")
    assert [tuple(row.values()) for row in cells(path)] == rows


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\xff\xfe", b"\xef\xbb\xbf\r\n"])
@pytest.mark.parametrize("name", ["own.csv", "own.txt"])
def test_a_file_that_is_a_mark_of_its_encoding_is_empty(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="an empty file"):
        cells(tmp_path / name)


@pytest.mark.parametrize(
    ("encoding", "question", "answer"),
    [
        ("cp1251", "Как сбросить router {n}?", "Нажмите кнопку reset и подождите {n} минут."),
        ("koi8-r", "Как сбросить {n}?", "Нажмите кнопку {n}."),
        ("cp1253", "Πώς να καθαρίσω {n}", "Πατήστε το κουμπί {n}."),
        ("cp1256", "كيف أعيد ضبط {n}", "اضغط على الزر {n}"),
        ("shift-jis", "ルーター{n}をリセットするには？", "ボタンを{n}分押してください。"),
        ("gb18030", "怎样重置路由器{n}？", "请按住按钮{n}分钟。"),
        ("euc-kr", "라우터 {n} 재설정 방법은?", "버튼을 {n}분 동안 누르세요."),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_other_letters_than_those_that_were_written_are_read_only_when_asked(
    tmp_path: Path, encoding: str, question: str, answer: str, suffix: str
) -> None:
    rows = [(question.format(n=n), answer.format(n=n)) for n in range(40)]
    lines = [f"{one}\t{other}" if suffix == "csv" else json.dumps({"a": one, "b": other}, ensure_ascii=False) for one, other in rows]
    path = tmp_path / f"own.{suffix}"
    path.write_bytes("\n".join(lines).encode(encoding))
    with pytest.raises(DataError, match=r"neither UTF-8 nor of Western Europe.*--set corpus\.encoding="):
        cells(path)
    has_header = False if suffix == "csv" else None
    reported = recognised(path.name, path, FileFormat(encoding=encoding, has_header=has_header), sorted(KNOWN_NAMES))
    assert [tuple(row.values()) for row in own_table(path.name, path, reported).to_pylist()] == rows


@pytest.mark.parametrize("answer", ["Drücken Sie „{n}“ … – fünf Füße", "Appuyez sur le bouton là-bas, s’il vous plaît, {n} fois à l’été"])
def test_words_of_the_west_are_read_as_windows_writes_them(tmp_path: Path, answer: str) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(("Frage;Antwort\n" + "".join(f"Wie geht {n}?;{answer.format(n=n)}\n" for n in range(40))).encode("cp1252"))
    assert [row["Antwort"] for row in cells(path)] == [answer.format(n=n) for n in range(40)]


@pytest.mark.parametrize("name", ["own.txt", "own.csv"])
def test_sentences_alone_are_reported_to_be_no_pairs(tmp_path: Path, name: str) -> None:
    """A person with a sentence a line was asked to quote fields that hold the separator."""
    (tmp_path / name).write_text("text\n" + "".join(f"This is sentence {n}{', with more' * (n % 3 == 0)}.\n" for n in range(60)))
    with pytest.raises(DataError, match=r"one text a row, such as 'This is .*expected two texts a row .*unsupervised SimCSE"):
        recognise(name, tmp_path / name, OwnFileOptions())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "own.jsonl",
            '{"question": "a", "answer": "b"}\n{"question": "c", "answer": 4}\n',
            "answer is string in some rows and number in row 2",
        ),
        ("own.jsonl", '{"question": "a", "answer": "b"}\n["c", "d"]\n', """line 2: found ["c", "d"]; expected a JSON object"""),
        ("own.jsonl", '{"query": ["a"], "pos": ["b", "c"]}\n', "Write a row for each text in a list"),
        (
            "own.jsonl",
            '{"anchor": "a", "positives": ["b"], "no": ["c"]}\n',
            "of which positives, no hold lists: a row for each text in them",
        ),
    ],
)
def test_json_of_another_shape_is_reported_with_what_to_do(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as refused:
        recognise(name, tmp_path / name, OwnFileOptions())
    assert said in str(refused.value) and "no JSON" not in str(refused.value)


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_utf_8_with_bytes_that_are_none_is_not_read_as_other_letters(tmp_path: Path, name: str) -> None:
    row = '{"text": "Größe", "label": "1"}' if name == "own.jsonl" else "Größe,1"
    (tmp_path / name).write_bytes("\n".join(["" if name == "own.jsonl" else "text,label", *[row] * 40, "Ma"]).encode() + b"\xdfe,1\n")
    for read in (lambda: read_source("own", data_root=tmp_path), lambda: cells(tmp_path / name)):
        with pytest.raises(DataError, match=r"line 42: bytes that are no UTF-8\).*Save it as UTF-8 text\."):
            read()


def test_a_tsv_with_its_names_in_marks_has_its_texts_in_marks(tmp_path: Path) -> None:
    path, rows = tmp_path / "own.tsv", [(f'how about "{n}"', f"so\nand\t{n}") for n in range(40)]
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL).writerows([("question", "answer"), *rows])
    assert [tuple(row.values()) for row in cells(path)] == rows and list(cells(path)[0]) == ["question", "answer"]
    path.write_text('question\tanswer\n"how"\t"so"\n')
    assert cells(path) == [{"question": '"how"', "answer": '"so"'}]
    path.write_text('"question"\t"answer"\n"how \\"a\\" b"\t"so"\n')
    with pytest.raises(DataError, match=r"line 2: found quotation marks behind backslashes"):
        cells(path)


@pytest.mark.parametrize("first", ["\n\nquestion,answer\n", '\r\n"question","answer"\r\n', '"ques\ntion","the\n\nanswer"\n'])
def test_a_header_takes_as_many_lines_as_it_has(tmp_path: Path, first: str) -> None:
    (tmp_path / "own.csv").write_bytes((first + "one,two\nthree,four\n").encode())
    assert [tuple(row.values()) for row in cells(tmp_path / "own.csv")] == [("one", "two"), ("three", "four")]


def test_a_cell_that_stands_again_below_is_no_name(tmp_path: Path) -> None:
    rows = [("the sky", "blue"), ("the sea", "blue"), ("a leaf", "green")]
    (tmp_path / "own.csv").write_text("".join(f"{one},{other}\n" for one, other in rows))
    assert [tuple(row.values()) for row in cells(tmp_path / "own.csv")] == rows


def test_what_parts_all_lines_goes_before_what_the_suffix_says(tmp_path: Path) -> None:
    rows = [(f"Sag, wie {n}" if n % 10 else "Sag", f"So {n}") for n in range(40)]  # one comma in nine of ten lines
    (tmp_path / "own.csv").write_text("Die Frage, links;Rechts\n" + "".join(f"{one};{other}\n" for one, other in rows))
    assert [tuple(row.values()) for row in cells(tmp_path / "own.csv")] == rows


def test_sentences_with_one_two_or_no_commas_are_one_column(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(
        "".join(["No comma", "One, here", "One, there", "Two, of, them"][n % 4] + f" {n}\n" for n in range(40))
    )
    with pytest.raises(DataError, match="another number of them in each line"):
        cells(tmp_path / "own.csv")


def test_a_row_that_is_cut_off_where_the_look_ends_does_not_count(tmp_path: Path) -> None:
    row = ",".join(["a long text " * 9500] * 4)  # 456 kB; the first MiB holds two rows and the beginning of a third
    (tmp_path / "own.csv").write_text("one,two,three,four\n" + f"{row}\n" * 3)
    assert [list(found) for found in cells(tmp_path / "own.csv")] == [["one", "two", "three", "four"]] * 3


def test_letters_far_below_tell_the_encoding(tmp_path: Path) -> None:
    text = "the same text again and again " * 40
    (tmp_path / "own.csv").write_bytes(("question,answer\n" + f"{text},{text}\n" * 500 + "Größe,Füße\n").encode("cp1252"))
    assert cells(tmp_path / "own.csv")[-1] == {"question": "Größe", "answer": "Füße"}


@pytest.mark.parametrize(("row", "fields"), [("one, or two,three", "3 fields"), ("one", "1 field")])
def test_a_row_of_another_length_is_shown_with_what_to_do(tmp_path: Path, row: str, fields: str) -> None:
    (tmp_path / "own.csv").write_text("question,answer\n" + "a b,c d\n" * 30 + f"{row}\n")
    said = f"a row of {fields} where 2 belong: '{row}'; expected as many in each row. Put fields that hold the separator"
    with pytest.raises(DataError, match=said):
        cells(tmp_path / "own.csv")
    with pytest.raises(DataError, match=said):
        read_source("own", data_root=tmp_path)
