"""A person's own file: how it is written, what it holds, and which rows are held out, so that nothing of them is trained on."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.leaks import LeakFinder, TaskTexts
from sentdist.data.own.columns import KNOWN_NAMES, grades_of, scale_of, score_in
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_groups, read_queries, read_rows
from sentdist.data.own.split import DEV, SIDES, TEST, TRAIN, HeldOut, groups_of, sides_of
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError

THINGS = ("router", "printer", "phone", "tablet", "camera", "oven", "fridge", "lamp", "drone", "clock", "scale", "kettle")
DEEDS = ("reset", "clean", "charge", "update", "repair")


def faq_rows() -> list[tuple[str, str]]:
    """Three questions for each of 60 answers; one of them written in two ways."""
    found = []
    for thing in THINGS:
        for deed in DEEDS:
            answer = f"Open the page of your {thing} and press {deed}, then wait für {len(thing) + len(deed)} minutes."
            found += [
                (f"How do I {deed} my {thing}?", answer),
                (f"what helps to {deed} a {thing}", answer),
                (f"HOW DO I {deed} my {thing}", f"{answer} "),
            ]
    return found


def graded_rows() -> list[tuple[str, str, str]]:
    draw = random.Random(0)
    words = [f"{first}{last}" for first in ("ba", "do", "ke", "lu", "mi", "so") for last in ("rt", "n", "lk", "m", "ss", "ck", "pe", "ga")]
    texts = [" ".join((*draw.sample(words, 8), "every day")) for _ in range(240)]
    return [(one, other, f"{draw.randrange(6) / 5:.1f}".replace(".", ",")) for one, other in zip(texts[::2], texts[1::2], strict=True)]


def written(rows: list[tuple[str, ...]], separator: str = ",") -> str:
    return "".join(separator.join(f'"{cell}"' if separator in cell else cell for cell in row) + "\n" for row in rows)


def seen(path: Path, **asked: object) -> RecognisedFile:
    return recognise(path.name, path, OwnFileOptions(**asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "asked", "said"),
    [
        ("PK\x03\x04", {}, "a spreadsheet or an archive"),
        ("one line\nand another\n", {}, "commas, semicolons, tabs, bars"),
        ("question,answer\n" + "".join(f"what is {word},it is a {word}\n" for word in "abcdefghij"), {}, "10 different rows"),
        ("question,answer,score\na b,c d,x\n", {"shape": "graded", "columns": ("question", "answer", "score")}, "'x' in row 1"),
        ("question,answer\n" + "".join(f"question {n},Please call us.\n" for n in range(100)) + "q,a\nr,b\ns,c\n", {}, "'Please call us.' (100 rows)"),
    ],
)  # fmt: skip
def test_what_cannot_be_held_out_is_reported(tmp_path: Path, content: str, asked: dict[str, object], said: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(DataError) as refused:
        seen(path, **asked)
    assert said in f"{refused.value.found} {refused.value.expected} {refused.value.remedy}"


def texts_of(looked: RecognisedFile, path: Path, side: int) -> TaskTexts:
    """What the rows of a side test, as the project's tasks put it."""
    if looked.file.shape == "graded":
        rows = read_rows(path.name, path, looked.file, side, revision=looked.revision).to_pylist()
        return TaskTexts.of_pairs(SIDES[side], [(row["sentence1"], row["sentence2"]) for row in rows])
    found = read_queries(path.name, path, looked.file, side, revision=looked.revision)
    text = dict(zip(found.document_ids, found.documents, strict=True))
    pairs = [
        (item, query, text[document])
        for item, (key, query) in enumerate(zip(found.query_ids, found.queries, strict=True))
        for document in found.qrels[key]
    ]
    return TaskTexts(name=SIDES[side], sentences=tuple((query,) for query in found.queries), pairs=tuple(pairs))


def shapes(folder: Path) -> list[Path]:
    """A file of each shape, with texts in several rows, disguises and near-duplicates."""
    faq, graded = faq_rows(), graded_rows()
    twins = [(one.replace("every", "each"), other.replace("every", "each"), score) for one, other, score in graded[::4]]
    negatives = [(question, answer, faq[(place + 45) % len(faq)][1]) for place, (question, answer) in enumerate(faq)]
    paraphrases = [(one, other) for one, other, _ in graded] + [(other, one) for one, other, _ in graded[::3]]
    files: dict[str, list[tuple[str, ...]]] = {
        "faq.csv": [("question", "answer"), *faq],
        "graded.csv": [("sentence1", "sentence2", "score"), *graded[::2], *twins],
        "triplets.csv": [("anchor", "positive", "negative"), *negatives],
        "pairs.csv": [("anchor", "positive"), *paraphrases[: len(paraphrases) // 2], *paraphrases[-6:]],
    }
    for name, rows in files.items():
        (folder / name).write_text(written(rows, ";"))
    return [folder / name for name in files]


def test_no_side_holds_anything_of_another(tmp_path: Path) -> None:
    for path in shapes(tmp_path):
        found = seen(path, dev=0.15, test=0.15)
        is_loose = path.name == "triplets.csv"  # its negatives are other rows' answers
        assert found.file.num_linking == 2 and found.file.near == 0.8 and is_loose == any("Negatives link" in line for line in found.notes)
        sides = [read_rows(path.name, path, found.file, side, revision=found.revision) for side in (TRAIN, DEV, TEST)]
        assert all(side.num_rows == size for side, size in zip(sides, found.sizes, strict=True)) and min(found.sizes) >= 5
        for held, others in ((DEV, (TRAIN,)), (TEST, (TRAIN, DEV))):
            finder = LeakFinder([texts_of(found, path, held)])
            for other in others:
                columns = [column for column in sides[other].column_names if column != "score"]
                ids: dict[str, int] = {}
                rows = [[ids.setdefault(text, len(ids)) for text in sides[other][column].to_pylist()] for column in columns]
                (leaks,) = finder.find([list(ids)], np.array(rows))
                assert {leak.level for leak in leaks.items} <= ({"one"} if is_loose else set()), (path.name, SIDES[held], leaks.items[:1])


def test_a_split_depends_on_texts_and_seed_but_not_on_their_order(tmp_path: Path) -> None:
    rows = faq_rows()
    held: HeldOut = HeldOut(dev=0.1, test=0.1, seed=0, most=1000, near=0.8)

    def tested(rows: list[tuple[str, str]], held_out: HeldOut, given: set[tuple[str, str]] | None = None) -> set[tuple[str, str]]:
        """given: rows that the file itself calls dev."""
        splits = None if given is None else ["dev" if row in given else "train" for row in rows]
        of_rows = sides_of("own", rows, held_out=held_out, given=None, splits=splits).of_rows
        return {row for row, side in zip(rows, of_rows, strict=True) if side == TEST}

    shuffled = random.Random(1).sample(rows, len(rows))
    assert tested(rows, held) == tested(shuffled, held) != tested(rows, replace(held, seed=1))
    assert tested(rows, held, {*rows[::9]}) == tested(shuffled, held, {*rows[::9]})
    assert len(tested(rows, replace(held, most=6))) <= 6
    assert len(tested(rows, replace(held, test=0.3))) > 2 * len(tested(rows, held)) > len(tested(rows, replace(held, dev=0.3)))


def test_groups_follow_texts_names_and_likeness() -> None:
    rows = [("a b", "c"), ("A  b!", "d"), ("e", "d"), ("x", "y"), ("v", "w")]
    assert groups_of(rows).tolist() == [0, 0, 0, 1, 2]
    assert groups_of(rows, given=["", "", "one", "one", ""]).tolist() == [0, 0, 0, 0, 1]
    one = ("how can somebody reset the old printer in the kitchen", "press the red button for ten seconds until it beeps")
    like = ("how can somebody reset the new printer in the kitchen", "press the red button for nine seconds until it beeps")
    assert groups_of([one, like, ("x", "y")], near=0.8).tolist() == [0, 0, 1]
    assert groups_of([one, like, ("x", "y")]).tolist() == [0, 1, 2]


def test_the_file_s_own_splits_and_groups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"question {n},answer number {n},{'test' if n % 4 == 0 else 'train'},{n // 10}\n" for n in range(200)]
    rows[1:1] = [rows[0], ",without a question,train,5\n", rows[0]]
    path.write_text("question,answer,split,group\n" + "".join(rows) + "question 1,another answer,test,\n")
    found = seen(path, near=None)
    assert found.sizes[2] == 51 and found.sizes[1] > 0 and "(by column 'split')" in found.notes[1]
    assert found.notes[2].startswith("51 rows of its own dev and test splits share texts with training rows")
    numbers = {}
    for side in (TRAIN, DEV, TEST):
        texts = read_rows("own.csv", path, found.file, side, revision=found.revision)["sent0"].to_pylist()
        numbers[side] = [int(text.split()[1]) for text in texts]
        groups = read_groups("own.csv", path, found.file, side, revision=found.revision)
        assert all(group == str(number // 10) for number, group in zip(numbers[side], groups, strict=True) if group)
    assert {number % 4 == 0 for number in numbers[TRAIN] + numbers[DEV]} == {False} and 1 in numbers[TEST]
    assert not {number // 10 for number in numbers[DEV]} & {number // 10 for number in numbers[TRAIN]}


def test_a_file_that_changes_after_planning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(written([("question", "answer"), *faq_rows()], ";"))
    found = seen(path)
    path.write_text(written([("question", "answer"), *faq_rows()[:-1]], ";"))
    with pytest.raises(DataError, match="another content"):
        read_rows("faq.csv", path, found.file, TRAIN, revision=found.revision)


def test_a_text_is_a_query_or_a_document_but_never_both(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [row for n in range(30) for row in ((f"one text {n}", f"its other {n}"), (f"its other {n}", f"one text {n}"))]
    path.write_text(written([("anchor", "positive"), *rows]))
    found = seen(path, near=None)
    queries = read_queries("pairs.csv", path, found.file, TEST, revision=found.revision)
    assert len(queries.queries) == found.sizes[2] // 2 and not set(queries.queries) & set(queries.documents)
    assert all(len(relevant) == 1 for relevant in queries.qrels.values())


Rows = list[dict[str, object]]
NEAR = OwnFileOptions(near=None)


def some_rows(first: int, number: int = 20) -> Rows:
    return [{"question": f"how is {n}", "answer": f"it is so {n}"} for n in range(first, first + number)]


def write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".jsonl":
        path.write_text(lines)
    else:
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in [rows[0].keys(), *(row.values() for row in rows)]))


def of_side(folder: Path, found: RecognisedFile, side: int) -> list[str]:
    rows = read_rows(folder.name, folder, found.file, side, revision=found.revision).to_pylist()
    return [row.get("sent0") or row["sentence1"] for row in rows]


@pytest.mark.parametrize("suffix", [".snappy.parquet", ".csv", ".jsonl.gz"])
def test_the_parts_in_a_folder_are_one_table(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "faq"
    for number in (2, 0, 1):
        write(folder / f"part-0000{number}{suffix}", some_rows(20 * number))
    for name in ("_SUCCESS", ".part-00000.crc", "_metadata"):
        (folder / name).write_bytes(b"\x00")
    found = recognise("faq", folder, NEAR)
    assert found.file.shape == "faq" and sum(found.sizes) == 60
    assert f"3 files as one table, part-00000{suffix} to part-00002{suffix}" in found.notes[0] and "not read" not in found.notes[0]
    together = [text for side in (TRAIN, DEV, TEST) for text in of_side(folder, found, side)]
    assert sorted(together) == sorted(f"how is {n}" for n in range(60))
    assert of_side(folder, found, TRAIN) == sorted(of_side(folder, found, TRAIN), key=lambda text: int(text.split()[-1]))


def test_splits_in_the_names_of_files_are_splits(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    for name, first in (("train-00000-of-00002", 0), ("train-00001-of-00002", 20), ("validation-00000-of-00001", 40), ("test_v2", 60)):
        write(folder / f"{name}.parquet", some_rows(first))
    found = recognise("own", folder, NEAR)
    assert found.sizes == (40, 20, 20) and "splits by the names of the files" in found.notes[0]
    assert of_side(folder, found, TEST) == [f"how is {n}" for n in range(60, 80)]
    before = found.revision
    (folder / "test_v2.parquet").rename(folder / "trainer.parquet")
    with pytest.raises(DataError, match=r"which is a split by its name, beside trainer\.parquet"):
        recognise("own", folder, NEAR)
    (folder / "trainer.parquet").rename(folder / "train-3.parquet")
    assert recognise("own", folder, NEAR).revision != before


def test_parts_that_are_no_parts_of_one_table_are_reported(tmp_path: Path) -> None:
    """Files of other columns, of another kind, without a header, of other encodings or types, and none."""

    def said_of(name: str, **files: bytes) -> str:
        folder = tmp_path / name
        write(folder / "a.csv", some_rows(0))
        for file, content in files.items():
            (folder / file.replace("_", ".")).write_bytes(content)
        with pytest.raises(DataError) as refused:
            recognise("own", folder, NEAR)
        return f"{refused.value.where}: {refused.value.found}"

    assert said_of("columns", b_csv=b"question,reply\nx,y\n").startswith("own/b.csv: no column answer but a column reply")
    assert "several kinds, such as b.jsonl, a.csv" in said_of("kinds", b_jsonl=b"{}")
    assert "no column question, answer but a column how is it" in said_of("header", b_csv=b"how is it,it is so\nhow is that,so\n")
    umlauts = "question,answer\nGröße,so\n"
    assert "in cp1252" in said_of("encodings", b_csv=umlauts.encode(), c_csv=umlauts.encode("cp1252"))
    write(tmp_path / "types/a.parquet", some_rows(20))
    write(tmp_path / "types/b.parquet", [{"question": 1, "answer": "y"}])
    write(tmp_path / "none/data/a.parquet", some_rows(20))
    for name, found in (("types", "values of type int64"), ("none", "a folder without a table")):
        with pytest.raises(DataError, match=found):
            recognise("own", tmp_path / name, NEAR)


def test_a_collection_for_retrieval_is_no_table(tmp_path: Path) -> None:
    for name in ("corpus", "queries"):
        texts: Rows = [{"_id": str(n), "title": f"{name} {n}", "text": f"a text of {n} in {name}"} for n in range(60)]
        write(tmp_path / "beir" / f"{name}.jsonl", texts)
    (tmp_path / "beir/qrels").mkdir()
    with pytest.raises(DataError, match="queries, documents and judgements in separate files") as refused:
        recognise("beir", tmp_path / "beir", NEAR)
    assert f"corpus: {{source: beir, split: null}}, folds: {{num: 5}}, with --data {tmp_path}." in refused.value.remedy


@pytest.mark.parametrize("is_split", [False, True])
def test_what_datasets_has_saved_is_read_with_its_splits(tmp_path: Path, is_split: bool) -> None:
    datasets = pytest.importorskip("datasets")
    data, folder = datasets.Dataset.from_list(some_rows(0, 60)), tmp_path / "own"
    parts = {"train": data.select(range(40)), "validation": data.select(range(40, 50)), "test": data.select(range(50, 60))}
    (datasets.DatasetDict(parts) if is_split else data).save_to_disk(folder, **({} if is_split else {"num_shards": 2}))
    (folder / "cache-1.arrow").write_bytes(b"what map keeps")
    found = recognise("own", folder, NEAR)
    assert found.file.shape == "faq" and sum(found.sizes) == 60
    if is_split:
        assert found.sizes == (40, 10, 10) and of_side(folder, found, TEST) == [f"how is {n}" for n in range(50, 60)]
        assert "splits by the names of the folders" in found.notes[0]
    else:
        assert "2 files as one table, data-00000-of-00002.arrow to" in found.notes[0]
        data.save_to_disk(tmp_path / "whole")
        file = tmp_path / "whole/data-00000-of-00001.arrow"
        assert recognise(file.name, file, NEAR).sizes == found.sizes


def test_saved_folders_that_lack_something_are_refused(tmp_path: Path) -> None:
    for name, content, found in (
        ("state.json", '{"_data_files": [{"filename": "gone.arrow"}]}', "no such file"),
        ("state.json", '{"_data_files": [{"filename": "../other.arrow"}]}', "no names of files"),
        ("dataset_dict.json", '{"splits": ["../train"]}', "no names of splits"),
        ("dataset_dict.json", '{"splits": ["train"]}', "no such file"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=f"(?i){found}"):
            recognise("own", tmp_path, NEAR)


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
        ('{"data": [{"question": "how", "answer": "so"}]}', "a separate line"),
        ('{"q": {"text": "how"}, "a": {"text": "so"}}', "q.text"),
    ],
)
def test_lists_and_objects_in_rows_are_reported_as_what_they_are(row: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f"{row}\n")
    with pytest.raises(DataError) as refused:
        recognise("own.jsonl", path, OwnFileOptions())
    assert said in str(refused.value)
