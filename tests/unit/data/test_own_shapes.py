"""What columns of a person's own table are taken for: texts, scores, negatives, names in a first line; and what is asked about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.columns import KNOWN_NAMES, grades_of, scale_of, score_in
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import DEV, TEST, TRAIN
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError

PAIR = "a {n} b,c {n} d"


def looked_at(folder: Path, names: str, row: str, *, cells: Sequence[object] = (0,), **asked: object) -> RecognisedFile:
    """What is found in a file of 60 rows below a first line; `row` may hold its number n, n modulo 2, 3 and 10, and a cell of `cells`."""
    path = folder / "own.csv"
    rows = [row.format(n=n, two=n % 2, three=n % 3, ten=n % 10, cell=cells[n % len(cells)]) for n in range(60)]
    path.write_text("\n".join([names, *rows, ""]), encoding="utf-8")
    return recognise(path.name, path, OwnFileOptions(near=None, **asked))  # type: ignore[arg-type]


def refusal(folder: Path, names: str, row: str, **asked: object) -> str:
    with pytest.raises(DataError) as refused:
        looked_at(folder, names, row, **asked)
    return str(refused.value)


@pytest.mark.parametrize(
    ("names", "row", "shape", "columns"),
    [
        ("anchor,positive", PAIR, "pairs", "anchor,positive"),
        ("id,Frage,Antwort,url", f"{{n}},{PAIR},http", "faq", "Frage,Antwort"),
        ("sent0,sent1,score,hard_neg", f"{PAIR},{{n}},e {{n}} f", "triplets", "sent0,sent1,hard_neg"),
        ("sentence1,sentence2,label", f"{PAIR},1", "pairs", "sentence1,sentence2"),
        ("sentence1,sentence2,label", f"{PAIR},{{two}}", "graded", "sentence1,sentence2,label"),
        ("a1,b1,similarity", f"{PAIR},{{three}}", "graded", "a1,b1,similarity"),
        ("links,rechts,note", f"{PAIR},{{n}}.5", "graded", "links,rechts,note"),
        ("eins,zwei,negativ", f"{PAIR},e {{n}} f", "triplets", "eins,zwei,negativ"),
        ("id,src,tgt,val", f"7{{n}},{PAIR},{{n}}.5", "graded", "src,tgt,val"),
        ("src,tgt,,", f"{PAIR},,", "pairs", "src,tgt"),
        ("id,qid1,qid2,question1,question2,is_duplicate", f"7{{n}},{{n}},9{{n}},{PAIR},{{two}}", "graded", "question1,question2,is_duplicate"),
        ("question,answer,price", f"{PAIR},{{n}}.5", "faq", "question,answer"),
        ("question,answer,hard", f"{PAIR},{{two}}", "faq", "question,answer"),
        ("sent0,sent1,sent2", f"{PAIR},e {{n}} f", "triplets", "sent0,sent1,sent2"),
        ("question,answer,wrong_answer", f"{PAIR},e {{n}} f", "triplets", "question,answer,wrong_answer"),
        ("Datum,Anfrage,Loesung", f"1{{ten}}.03.2024,{PAIR}", "pairs", "Anfrage,Loesung"),
        ("Anfrage,Ticket,Loesung", "a {n} b,T-{n:05d},c {n} d", "pairs", "Anfrage,Loesung"),
        ("question?,Reply text", PAIR, "pairs", "question?,Reply text"),
        ("Timestamp,What is it that you ask?,What should be the answer?", f"2026/01/1{{ten}} 10:00:00,{PAIR}", "pairs", "What is it that you ask?,What should be the answer?"),
    ],
)  # fmt: skip
def test_columns_say_what_rows_are(tmp_path: Path, names: str, row: str, shape: str, columns: str) -> None:
    found = looked_at(tmp_path, names, row)
    assert (found.file.shape, ",".join(found.file.columns), found.file.has_header, sum(found.sizes)) == (shape, columns, True, 60)


@pytest.mark.parametrize(
    ("names", "row", "asked", "said"),
    [
        ("text1,text2,cos", f"{PAIR},0.{{ten}}", {}, "cos beside text1, text2"),
        ("satz a,satz b,Unterschied", f"{PAIR},0.{{ten}}", {}, "scores that are higher"),
        ("Frage,Antwort,Ähnlichkeit", f"{PAIR},0.{{ten}}", {}, "Ähnlichkeit beside Frage, Antwort"),
        ("premise,hypothesis,label", f"{PAIR},{{three}}", {}, "labels of NLI as numbers"),
        ("sentence1,sentence2,label", f"{PAIR},{{three}}", {}, "label with 0 (20 rows), 1 (20 rows), 2 (20 rows)"),
        ("a1,b1,class", f"{PAIR},{{two}}", {}, "class with 0 (30 rows), 1 (30 rows)"),
        ("one,other,Klicks", f"{PAIR},{{ten}}40", {}, "Klicks with numbers from"),
        ("a1,b1,label", f"{PAIR},kind {{three}}", {"columns": ("a1", "b1", "label")}, "'kind 0' in row 1"),
        ("first,second,third", f"{PAIR},kind {{three}}", {}, "which is no negative"),
        ("text,label", "how is {n} of {n},class {two}", {}, "as classes are called"),
        ("text,cluster", "the text of {n},{ten}", {}, "Only text holds texts"),
        ("one,other,third", f"{PAIR},e {{n}} f", {}, "three columns of texts, one, other, third"),
        ("article,title,shelf,text", "A-{n},A red lamp {n},north,It shines at night {n}.", {}, "--columns title,text (tune)"),
        ("a,b,Annotator 1,Annotator 2,Mittelwert", f"{PAIR},{{three}},{{two}},0.{{ten}}", {}, "--columns a,b,Mittelwert (tune)"),
        ("1,2,3", "1{n},2{n},3{n}", {}, "none of which holds texts"),
        ("id,src,tgt,val,other", f"7{{n}},{PAIR},{{n}}.5,{{n}}.25", {"shape": "graded"}, "two and a score"),
        ("question,answer", PAIR, {"columns": ("questions", "answer")}, 'Did you mean "question"?'),
        ("question,answer,score", f"{PAIR},nan", {}, "score without a number"),
        ("what was asked.,what was answered.", PAIR, {"columns": ("asked", "answered")}, "corpus.header=true"),
    ],
)  # fmt: skip
def test_columns_that_may_mean_several_things_are_asked_about(
    tmp_path: Path, names: str, row: str, asked: dict[str, object], said: str
) -> None:
    assert said in refusal(tmp_path, names, row, **asked)


def test_what_somebody_says_of_the_columns_is_taken(tmp_path: Path) -> None:
    """Of a third column of labels, of numbers, and of texts."""
    for row, shape in ((f"{PAIR},kind {{three}}", "triplets"), (f"{PAIR},{{ten}}40", "graded"), (f"{PAIR},e {{n}} f", "triplets")):
        assert looked_at(tmp_path, "one,other,third", row, shape=shape).file.shape == shape
        assert looked_at(tmp_path, "one,other,third", row, columns=("one", "other")).file.shape == "pairs"
    assert looked_at(tmp_path, "one,other,third", f"{PAIR},{{ten}}40", shape="pairs").file.columns == ("one", "other")
    assert looked_at(tmp_path, "one,other,third", f"{PAIR},{{ten}}40", columns=("one", "other", "third")).file.shape == "graded"
    for columns in (("3", "1", "2"), ("1", "3")):
        assert "found numbers; expected texts" in refusal(tmp_path, "1,2,3", f"{PAIR},0.{{ten}}", columns=columns)


@pytest.mark.parametrize(
    ("cells", "num_read", "counts"),
    [
        (("yes", "no"), 60, "no (30 rows), yes (30 rows)"),
        (("Nein", "ja", ""), 40, "no (20 rows), yes (20 rows)"),
        (("entailment", "-", "Neutral", "contradiction"), 45, "contradiction (15 rows), neutral (15 rows), entailment (15 rows)"),
        ((0, 1), 60, "0 (30 rows), 1 (30 rows)"),
    ],
)
def test_labels_are_scores_that_the_first_note_counts(tmp_path: Path, cells: tuple[object, ...], num_read: int, counts: str) -> None:
    """`-` and empty cells grade nothing."""
    found = looked_at(tmp_path, "sentence1,sentence2,label", f"{PAIR},{{cell}}", cells=cells)
    assert (found.file.shape, sum(found.sizes), counts in found.notes[0]) == ("graded", num_read, True)
    assert (found.file.low, found.file.high) == (0.0, 2.0 if "-" in cells else 1.0)
    assert "yes or no" in refusal(tmp_path, "sentence1,sentence2,label", f"{PAIR},{{cell}}", cells=("yes", "no", 0.5))


def test_a_score_is_a_number_or_a_percentage() -> None:
    texts = ("45%", " 12,5\xa0% ", "100%", "0.45", "0,45", "45%%", "four%")
    assert [score_in(text) for text in texts] == [0.45, 0.125, 1.0, 0.45, 0.45, None, None]
    for cells in (["45%", "7"], [None, "0", "", "10 %", "20%"]):
        with pytest.raises(DataError, match="expected all in percent, or none"):
            grades_of("own.csv", "score", cells)
    scales = {(0.2, 0.9): (0.0, 1.0), (-0.5, 0.9): (-1.0, 1.0), (1, 4.5): (1.0, 5.0), (0, 4.5): (0.0, 5.0), ("-3", "300"): (-3.0, 300.0)}
    for grades, scale in scales.items():
        assert scale_of("a.csv", "score", grades) == scale, "the narrowest usual scale that holds them"


def test_a_refusal_speaks_of_the_header_only_where_it_was_not_given(tmp_path: Path) -> None:
    for has_header in (True, False):
        assert "header" not in refusal(tmp_path, "a text of five words,b", PAIR, columns=("c", "d"), has_header=has_header)
    (tmp_path / "a.json").write_text("{}")
    for field, given in (("header", {"has_header": True}), ("separator", {"separator": ";"})):
        with pytest.raises(DataError, match=f"{field} .* for JSON"):
            recognise("a.json", tmp_path / "a.json", OwnFileOptions(**given))  # type: ignore[arg-type]


def test_a_title_above_the_header_is_reported_with_the_line(tmp_path: Path) -> None:
    path, rows = tmp_path / "own.csv", "".join(f"how is {n};it is so {n};topic {n % 3}\n" for n in range(40))
    for above, said in (
        ("FAQ export 2026\n", "in line 2"),
        ("FAQ export 2026;;\n;;\n", "Delete lines 1 to 2"),
        ("sep=;\nOur FAQ\n", "Delete line 2"),
    ):
        path.write_text(f"{above}question;answer;topic\n{rows}")
        with pytest.raises(DataError, match=said):
            recognised("own.csv", path, FileFormat(), sorted(KNOWN_NAMES))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_lists_of_positives_and_negatives_are_read_whole_and_stay_on_one_side(suffix: str, tmp_path: Path) -> None:
    """As FlagEmbedding writes them: 0 to 3 negatives, 1 or 2 positives."""
    rows = [
        {"query": f"how is {n}", "pos": [f"so {n}", f"thus {n}"][: 1 + n % 2], "neg": [f"no {n}", f"not {n}", f"never {n}", " "][: n % 4]}
        for n in range(60)
    ]
    path = tmp_path / f"own{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
    found = recognise(path.name, path, OwnFileOptions(near=None))
    assert (found.file.shape, found.file.columns) == ("triplets", ("query", "pos", "neg")) and "15 rows without" in found.notes[0]
    sides = [read_rows(path.name, path, found.file, side, revision=found.revision).to_pylist() for side in (TRAIN, DEV, TEST)]
    read = {tuple(row.values()) for side in sides for row in side}
    assert {row[1:] for row in read if row[0] == "how is 3"} == {("so 3", "no 3"), ("thus 3", "not 3"), ("so 3", "never 3")}
    assert len(read) == sum(found.sizes) == 15 * (2 + 2 + 3)
    anchors = [{row["sent0"] for row in side} for side in sides]
    assert found.num_apart == len(anchors[0]) and sum(map(len, anchors)) == len(set().union(*anchors)) == 45


def test_passages_beside_a_query_are_read_with_their_titles(tmp_path: Path) -> None:
    """As DPR's files have them."""
    path, further = tmp_path / "train.json", {"answers": ["x"], "negative_ctxs": []}
    rows = [
        {"question": f"where is {n}", "positive_ctxs": [{"text": f"{n} lies here", "docid": "1", "title": " Cities "}]}
        | {"hard_negative_ctxs": [{"text": f"not {n}", "title": ""}, {"text": f"nor {n}", "title": None}], **further}
        for n in range(60)
    ]
    path.write_text(json.dumps(rows))
    found = recognise(path.name, path, OwnFileOptions(near=None))
    read = [read_rows(path.name, path, found.file, side, revision=found.revision).to_pylist() for side in (TRAIN, DEV, TEST)]
    texts = {tuple(row.values()) for side in read for row in side}
    assert texts == {(f"where is {n}", f"Cities {n} lies here", f"{word} {n}") for n in range(60) for word in ("not", "nor")}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"messages": [{"role": "user", "content": "how"}, {"role": "assistant", "content": "so"}]}', "as chats have"),
        ('{"texts": ["how", "so"], "label": 1.0}', "texts in lists, under texts"),
        ('{"anchor": "a", "positives": ["b"], "no": ["c"]}', "of which positives, no hold lists"),
        ('[{"how": "so"}]', "expected a JSON object"),
        ('{"data": [{"question": "how", "answer": "so"}]}', "a line of its own"),
        ('{"q": {"text": "how"}, "a": {"text": "so"}}', "q.text"),
    ],
)
def test_lists_and_objects_in_rows_are_reported_as_what_they_are(row: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f"{row}\n")
    with pytest.raises(DataError) as refused:
        recognise("own.jsonl", path, OwnFileOptions())
    assert said in str(refused.value)
