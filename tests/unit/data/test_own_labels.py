"""Columns beside the texts of a person's own file: labels and numbers are scores, or asked about; they are neither lost nor negatives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.file_rows import OwnFile
from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import TRAIN
from sentdist.errors import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def with_column(folder: Path, names: str, cells: Sequence[object], **asked: object) -> OwnFile:
    """What is found in a file of 60 pairs and a third column that repeats these cells."""
    path, (first, second, third) = folder / "own.csv", names.split(",")
    rows = [f"a {n} b,c {n} d,{cells[n % len(cells)]}\n" for n in range(60)]
    path.write_text(f"{first},{second},{third}\n" + "".join(rows))
    return recognise(path.name, path, OwnFileOptions(**asked)).file  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cells", [("yes", "no", "maybe"), ("de", "en", "fr"), ("10 %", "20 %", "unclear"), ("0.5", "0.7", "missing"), ("very good", "bad")]
)
def test_labels_are_no_negatives(tmp_path: Path, cells: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"third with '.*', which is no negative"):
        with_column(tmp_path, "first,second,third", cells)
    with pytest.raises(DataError, match=r"which is no negative"):
        with_column(tmp_path, "first,second,third", cells, columns=("first", "second", "third"))
    assert with_column(tmp_path, "first,second,third", cells, shape="triplets").shape == "triplets"
    assert with_column(tmp_path, "first,second,negative", cells, columns=("first", "second", "negative")).shape == "triplets"
    assert with_column(tmp_path, "first,second,third", cells, columns=("first", "second")).shape == "pairs"


@pytest.mark.parametrize(
    ("names", "cells"),
    [
        ("question1,question2,is_duplicate,votes", ("0", "1")),
        ("sentence1,sentence2,gold_of_two", ("entailment", "contradiction")),
        ("sentence_A,sentence_B,relatedness_score", ("1.5", "4.5")),
        ("question,answer,Rater 1", ("1", "5")),
        ("Frage,Antwort,Ähnlichkeit", ("0.5", "0.7")),
        ("sentence1,sentence2,label", ("0",)),
    ],
)
def test_labels_beside_pairs_are_asked_about(tmp_path: Path, names: str, cells: tuple[str, ...]) -> None:
    path, columns = tmp_path / "own.csv", names.split(",")[:3]
    path.write_text(
        names + "\n" + "".join(f"a {n} b,c {n} d,{cells[n % len(cells)]}{f',{n}7' * names.count('votes')}\n" for n in range(60))
    )
    with pytest.raises(DataError, match=f"{columns[2]} beside {columns[0]}, {columns[1]}.*--columns '?{','.join(columns)}"):
        recognise(path.name, path, OwnFileOptions())
    assert recognise(path.name, path, OwnFileOptions(columns=tuple(columns[:2]))).file.shape in ("pairs", "faq")
    assert recognise(path.name, path, OwnFileOptions(shape="pairs")).file.columns == tuple(columns[:2])
    if len(cells) > 1:
        assert recognise(path.name, path, OwnFileOptions(columns=tuple(columns))).file.shape == "graded"


@pytest.mark.parametrize("cells", [("0", "1", "2"), ("-1", "0", "1", "2"), ("0", "2")])
def test_numbers_that_stand_for_entailment_are_refused(tmp_path: Path, cells: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"labels of NLI as numbers .*in most releases 0 is entailment"):
        with_column(tmp_path, "premise,hypothesis,label", cells)
    assert with_column(tmp_path, "sentence1,sentence2,label", cells, shape="graded").shape == "graded"
    assert with_column(tmp_path, "premise,hypothesis,label", ("0", "0.5", "3.5")).shape == "graded"
    assert with_column(tmp_path, "premise,hypothesis,label", ("neutral", "entailment")).shape == "graded"


@pytest.mark.parametrize("cells", [("yes", "no"), ("Nein", "ja", ""), ("Y", "N")])
def test_yes_and_no_are_scores_where_labels_are_meant(tmp_path: Path, cells: tuple[str, ...]) -> None:
    """They were refused: expected a number."""
    for names in ("question1,question2,is_duplicate", "sentence1,sentence2,label"):
        file = with_column(tmp_path, names, cells)
        assert (file.shape, file.low, file.high) == ("graded", 0.0, 1.0)
    notes = recognise("own.csv", tmp_path / "own.csv", OwnFileOptions()).notes
    number = 60 // len(cells)
    ends = f"label read as how alike the texts are, the last most: no ({number} rows), yes ({number} rows)"
    assert ends in notes[0] and (f"{number} rows without a text or a score left out" in notes[0]) == ("" in cells)
    with pytest.raises(DataError, match=r"third with yes or no beside first, second; expected to know whether it says how alike"):
        with_column(tmp_path, "first,second,third", cells)
    assert with_column(tmp_path, "first,second,third", cells, columns=("first", "second", "third")).shape == "graded"


@pytest.mark.parametrize("other", ["0.5", "maybe"])
def test_yes_and_no_beside_others_are_refused(tmp_path: Path, other: str) -> None:
    with pytest.raises(DataError, match="or yes or no in each row"):
        with_column(tmp_path, "sentence1,sentence2,label", ("yes", "no", other))


@pytest.mark.parametrize(("names", "before"), [("id,qid1,qid2,question1,question2,is_duplicate", 3), ("idx,sentence1,sentence2,labels", 1)])
def test_releases_of_pairs_with_labels_are_graded(tmp_path: Path, names: str, before: int) -> None:
    """Quora's file, and pairs as mteb has them, were asked about, where the same columns without their numbers were read."""
    path = tmp_path / "own.csv"
    path.write_text(f"{names}\n" + "".join(f"{','.join([str(n * 7 % 50)] * before)},a {n} b,c {n} d,{n % 2}\n" for n in range(60)))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert found.file.columns == tuple(names.split(",")[before:]) and "read as how alike the texts are" in found.notes[0]


def test_words_of_no_known_order_are_to_be_numbers(tmp_path: Path) -> None:
    """The remedy was to correct row 1, or to leave it out: all rows are so."""
    with pytest.raises(DataError, match=r"'duplicate' in row 1.*Write numbers in their place, higher for texts that are more alike"):
        with_column(tmp_path, "text1,text2,label", ("duplicate", "other"))
    with pytest.raises(DataError, match=r"'maybe' in row 2.*Correct the row or leave it out"):
        with_column(tmp_path, "text1,text2,label", ("0", "maybe", "1"))


def test_rows_on_which_annotators_did_not_agree_are_left_out(tmp_path: Path) -> None:
    """SNLI's - was refused: each of some 785 rows was to be taken out by hand."""
    columns = ("sentence1", "sentence2", "gold_label")
    with_column(tmp_path, ",".join(columns), ("entailment", "-", "neutral"), columns=columns)
    assert (
        "20 rows without a text or a score left out" in recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(columns=columns)).notes[0]
    )


def test_snlis_labels_are_scores_by_their_name(tmp_path: Path) -> None:
    """The releases of SNLI and MultiNLI were asked about, whose labels are words that everybody knows."""
    found = with_column(tmp_path, "sentence1,sentence2,gold_label", ("entailment", "-", "neutral"))
    assert (found.shape, found.columns) == ("graded", ("sentence1", "sentence2", "gold_label"))


def test_classes_of_texts_are_no_pairs(tmp_path: Path) -> None:
    """Each text was trained to be like the name of its class."""
    path = tmp_path / "own.csv"
    for names in ("text,label", "utterance,intent", "title,body"):
        path.write_text(f"{names}\n" + "".join(f"how is {n} of {n},class {n % 100}\n" for n in range(2000)))
        with pytest.raises(DataError, match=rf"with 'class \d' and few others, as classes are called.*--columns {names} "):
            recognise("own.csv", path, OwnFileOptions(near=None))
        assert recognise("own.csv", path, OwnFileOptions(near=None, columns=tuple(names.split(",")))).file.shape in ("pairs", "faq")


def test_a_release_without_header_is_asked_which_column_grades(tmp_path: Path) -> None:
    """STSb: to name the texts alone was the advice, which trains on unlike pairs as on like ones."""
    path = tmp_path / "sts.tsv"
    path.write_text("".join(f"main\tvid\t2012test\t{n:04d}\t{n % 11 / 2}\tone is {n}\tother is {n}\n" for n in range(60)))
    with pytest.raises(DataError, match=r"numbers of a usual scale in 5, beside 6, 7; .*If it does: --columns 6,7,5 "):
        recognise("sts.tsv", path, OwnFileOptions(near=None))


def test_keys_alone_are_no_texts(tmp_path: Path) -> None:
    """`--columns question,answer` was the advice for columns 1, 2, 3."""
    path = tmp_path / "triples.tsv"
    path.write_text("".join(f"{n + 1000}\t{n * 7 + 90}\t{n * 3 + 77}\n" for n in range(60)))
    with pytest.raises(DataError, match=r"columns 1, 2, 3, none of which holds texts.*Write the texts themselves"):
        recognise("triples.tsv", path, OwnFileOptions(near=None))


CLASSES = [
    ("sentence1,sentence2,label", ("0", "1", "2")), ("sentence1,sentence2,label", ("2.0", "1.0", "3.0")), ("a1,b1,gold_label", ("0", "1", "2")),
    ("a1,b1,Gold Label", ("-1", "0", "1")), ("a1,b1,class", ("0", "1")), ("a1,b1,Category", ("1", "2", "3", "4", "5")), ("a1,b1,c", ("0", "1", "2")),
    ("a1,b1,Wert", ("1", "2")),
]  # fmt: skip


@pytest.mark.parametrize(("names", "cells"), CLASSES)
def test_numbers_that_may_be_classes_are_asked_about(tmp_path: Path, names: str, cells: tuple[str, ...]) -> None:
    """Neutral was taken for half as alike as contradiction."""
    said = rf"{names.rpartition(',')[2]} with .*{cells[0]} \(\d+ rows\).* beside .*If a higher number is more alike: --columns '?{names}'? "
    with pytest.raises(DataError, match=said):
        with_column(tmp_path, names, cells)
    assert with_column(tmp_path, names, cells, columns=tuple(names.split(","))).shape == "graded"
    assert with_column(tmp_path, names, cells, columns=tuple(names.split(",")[:2])).shape == "pairs"


@pytest.mark.parametrize(
    ("names", "cells"),
    [
        ("sentence1,sentence2,label", ("0", "1")),
        ("a1,b1,similarity", ("0", "1", "2")),
        ("a1,b1,c", ("1", "0")),
        ("a1,b1,Rating", ("1", "5")),
    ],
)
def test_few_scores_are_counted_in_the_first_line(tmp_path: Path, names: str, cells: tuple[str, ...]) -> None:
    file = with_column(tmp_path, names, cells)
    assert file.shape == "graded"
    path, column = tmp_path / "own.csv", names.rpartition(",")[2]
    counts = ", ".join(f"{cell} ({60 // len(cells)} rows)" for cell in sorted(cells))
    assert (
        f"; {column} read as how alike the texts are, the highest most: {counts}" in recognise("own.csv", path, OwnFileOptions()).notes[0]
    )
    path.write_text(f"{names}\n" + "".join(f"a {n} b,c {n} d,{n / 60}\n" for n in range(60)))
    assert "read as how alike" not in recognise("own.csv", path, OwnFileOptions()).notes[0], "many scores are not counted"


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("third", [n % 2 == 1 for n in range(60)]),
        ("label", [n % 2 == 1 for n in range(60)]),
        ("third", [Decimal(n % 2) for n in range(60)]),
        ("third", ["True" if n % 2 else "false" for n in range(60)]),
        ("third", [float("nan") if n == 7 else float(n % 2) for n in range(60)]),
    ],
)
def test_truths_and_decimals_are_scores(tmp_path: Path, name: str, cells: list[object]) -> None:
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"first": [f"a {n} b" for n in range(60)], "second": [f"c {n} d" for n in range(60)], name: cells}), path)
    asked = OwnFileOptions(columns=("first", "second", name), near=None)
    for found in (recognise(path.name, path, OwnFileOptions(near=None) if name == "third" else asked), recognise(path.name, path, asked)):
        assert (found.file.shape, found.file.low, found.file.high) == ("graded", 0.0, 1.0)
        rows = read_rows(path.name, path, found.file, TRAIN, revision=found.revision).to_pylist()
        assert all(row["score"] == 5.0 * (int(row["sentence1"].split()[1]) % 2) for row in rows)
        assert sum(found.sizes) == sum(cell == cell for cell in cells)


def test_labels_are_reported_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """10 stood before 2."""
    with pytest.raises(DataError, match=r"label with 1 \(6 rows\), 2 \(6 rows\), 3 .*, 8 \(6 rows\), … beside"):
        with_column(tmp_path, "first,second,label", range(1, 11))


@pytest.mark.parametrize(
    ("cells", "said"),
    [((0.5, 3, 7.5), "scores that are higher for texts that are more alike"), (("same", "other"), "to know whether it says how alike")],
)
def test_how_different_texts_are_is_asked_about(tmp_path: Path, cells: tuple[object, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        with_column(tmp_path, "question,answer,difference", cells)
    texts = [f"this one differs in its {n} words of all" for n in range(60)]
    assert with_column(tmp_path, "question,answer,difference", texts).shape == "faq"  # 1 minus a text was asked for


def test_labels_in_words_are_reported_in_words(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    words = ("entailment", "Neutral", "contradiction")
    path.write_text("premise,hypothesis,label\n" + "".join(f"one {n},other {n},{words[n % 3]}\n" for n in range(60)))
    notes = recognise("own.csv", path, OwnFileOptions(near=None)).notes
    assert "the last most: contradiction (20 rows), neutral (20 rows), entailment (20 rows)" in notes[0]


@pytest.mark.parametrize("names", ["question,answer,score", "titel,teaser,score"])
@pytest.mark.parametrize("nothing", ["nan", None])
def test_scores_that_are_all_missing_are_not_passed_over(tmp_path: Path, names: str, nothing: str | None) -> None:
    """They became a contrastive training."""
    path = tmp_path / "own.jsonl"
    first, second, third = names.split(",")
    path.write_text("".join(json.dumps({first: f"a {n} b", second: f"c {n} d", third: nothing}) + "\n" for n in range(60)))
    with pytest.raises(DataError) as caught:
        recognise(path.name, path, OwnFileOptions())
    assert "score without a number" in caught.value.found
    assert recognise(path.name, path, OwnFileOptions(columns=(first, second))).file.shape in ("pairs", "faq")
