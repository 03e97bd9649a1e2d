"""A person's own file: how it is written, what it holds, and which rows are held out, so that nothing of them is trained on."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.leaks import LeakFinder, TaskTexts
from sentdist.data.own.columns import KNOWN_NAMES
from sentdist.data.own.files import own_table
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_queries, read_rows
from sentdist.data.own.split import DEV, SIDES, TEST, TRAIN, HeldOut, groups_of, sides_of
from sentdist.data.sources.files import read_file
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError

THINGS = ("router", "printer", "phone", "tablet", "camera", "oven", "fridge", "lamp", "drone", "clock", "scale", "kettle")
DEEDS = ("reset", "clean", "charge", "update", "repair")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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
    ("encoding", "separator", "name", "reported"),
    [
        ("utf-8", ",", "faq.csv", None),
        ("utf-8-sig", ";", "faq.csv", "text in utf-8-sig; separated by semicolons"),
        ("cp1252", ";", "faq.csv", "text in cp1252; separated by semicolons"),
        ("utf-16", "\t", "faq.tsv", "text in utf-16"),
        ("utf-16-le", "\t", "faq.txt", "text in utf-16-le; separated by tabs"),
        ("utf-8", "|", "faq.csv", "separated by bars"),
    ],
)
def test_encoding_and_separator_are_recognised_and_said(
    tmp_path: Path, encoding: str, separator: str, name: str, reported: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(written([("Question", "Answer"), *faq_rows()], separator).encode(encoding))
    found = seen(path)
    assert found.notes[0] == f"{name}: faq in Question, Answer" + (f"; {reported}" if reported else "")
    rows = [row for side in (TRAIN, DEV, TEST) for row in read_rows(name, path, found.file, side, revision=found.revision).to_pylist()]
    assert {(row["sent0"], row["sent1"]) for row in rows} == {(question, answer.strip()) for question, answer in faq_rows()}


def test_a_file_without_a_header_keeps_its_first_row(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(written(faq_rows(), "\t"))
    found = seen(path)
    assert found.notes[0] == "pairs.tsv: pairs in 1, 2; no header: columns are called 1, 2, …"
    assert sum(found.sizes) == len(faq_rows())
    assert seen(path, has_header=True, columns=(faq_rows()[0][0], faq_rows()[0][1].strip())).file.has_header


@pytest.mark.parametrize(
    ("header", "row", "shape", "columns"),
    [
        ("anchor,positive", "a {n} b,c {n} d", "pairs", ("anchor", "positive")),
        ("id,Frage,Antwort,url", "{n},a {n} b,c {n} d,http", "faq", ("Frage", "Antwort")),
        ("sent0,sent1,hard_neg", "a {n} b,c {n} d,e {n} f", "triplets", ("sent0", "sent1", "hard_neg")),
        ("sent0,sent1,score,hard_neg", "a {n} b,c {n} d,{n},e {n} f", "triplets", ("sent0", "sent1", "hard_neg")),
        ("sentence1,sentence2,score", "a {n} b,c {n} d,{n}", "graded", ("sentence1", "sentence2", "score")),
        ("sentence1,sentence2,label", "a {n} b,c {n} d,1", "pairs", ("sentence1", "sentence2")),  # a label that is always 1 grades nothing
        ("links,rechts,note", "a {n} b,c {n} d,{n}.5", "graded", ("links", "rechts", "note")),
        ("eins,zwei,negativ", "a {n} b,c {n} d,e {n} f", "triplets", ("eins", "zwei", "negativ")),
        ("src,tgt,split", "a {n} b,c {n} d,train", "pairs", ("src", "tgt")),
        ("src,tgt,Group", "a {n} b,c {n} d,g {n}", "pairs", ("src", "tgt")),
        (",src,tgt", "{n},a {n} b,c {n} d", "pairs", ("src", "tgt")),
        ("Unnamed: 0,src,tgt", "{n},a {n} b,c {n} d", "pairs", ("src", "tgt")),
        ("__index_level_0__,src,tgt", "7{n},a {n} b,c {n} d", "pairs", ("src", "tgt")),
        ("row,src,tgt", "{n},a {n} b,c {n} d", "pairs", ("src", "tgt")),
        ("id,src,tgt", "7{n},a {n} b,c {n} d", "pairs", ("src", "tgt")),
        ("pair_id,src,tgt", "p{n},a {n} b,c {n} d", "pairs", ("src", "tgt")),
        ("id,src,tgt,val", "7{n},a {n} b,c {n} d,{n}.5", "graded", ("src", "tgt", "val")),
        ("src,tgt,,", "a {n} b,c {n} d,,", "pairs", ("src", "tgt")),
    ],
)
def test_columns_say_what_rows_are(tmp_path: Path, header: str, row: str, shape: str, columns: tuple[str, ...]) -> None:
    path = tmp_path / "own.csv"
    path.write_text(header + "\n" + "".join(row.format(n=number) + "\n" for number in range(40)))
    found = seen(path).file
    assert (found.shape, found.columns) == (shape, columns)


def test_one_column_of_numbers_is_the_score_of_graded_pairs(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"7{n},a {n} b,c {n} d,{n}.5,{n}.25\n" for n in range(40)]
    path.write_text("id,src,tgt,val\n" + "".join(row.rpartition(",")[0] + "\n" for row in rows))
    assert seen(path, shape="graded").file.columns == ("src", "tgt", "val")
    path.write_text("id,src,tgt,val,other\n" + "".join(rows))
    with pytest.raises(DataError, match="two and a score"):
        seen(path, shape="graded")
    assert seen(path, shape="graded", columns=("src", "tgt", "other")).file.columns == ("src", "tgt", "other")
    assert seen(path, columns=("src", "tgt", "id")).file.shape == "graded"


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json_is_read_with_and_without_a_mark(tmp_path: Path, suffix: str) -> None:
    rows = [{"question": question, "answer": answer} for question, answer in faq_rows()]
    path = tmp_path / f"faq.{suffix}"
    path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)), encoding="utf-8-sig")
    assert sum(seen(path).sizes) == len(rows)


@pytest.mark.parametrize(
    ("content", "asked", "said"),
    [
        ("", {}, "an empty file"),
        ("PK\x03\x04", {}, "Save it as CSV in your spreadsheet program"),
        ("one line\nand another\n", {}, "separated by one of commas, semicolons, tabs, bars"),
        ("a,b,c,d\nw x,x y,y z,z w\n", {}, "--set 'corpus.columns=["),
        ("question,answer\na b,c d\n", {"columns": ("questions", "answer")}, 'Did you mean "question"?'),
        ("question,answer\na b,c d\n", {}, "20 at least"),
        ("question,answer,score\na b,c d,x\n", {"shape": "graded", "columns": ("question", "answer", "score")}, "'x' in row 1"),
    ],
)
def test_what_cannot_be_understood_is_reported_in_a_sentence(tmp_path: Path, content: str, asked: dict[str, object], said: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(DataError) as refused:
        seen(path, **asked)
    assert said in str(refused.value)


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
    rows = [f"question {n},answer number {n},{'test' if n % 4 == 0 else 'train'},g{n // 10}\n" for n in range(200)]
    path.write_text("question,answer,split,group\n" + "".join(rows) + "question 1,another answer,test,\n")
    found = seen(path, near=None)
    assert found.sizes[2] == 51 and found.sizes[1] > 0 and "(by column 'split')" in found.notes[1]
    assert found.notes[2].startswith("51 rows of its own dev and test splits share texts with training rows")
    dev = read_rows("own.csv", path, found.file, DEV, revision=found.revision)["sent0"].to_pylist()
    groups = {int(question.split()[1]) // 10 for question in dev}
    train = read_rows("own.csv", path, found.file, TRAIN, revision=found.revision)["sent0"].to_pylist()
    assert not groups & {int(question.split()[1]) // 10 for question in train}


def test_rows_that_all_hang_together_are_refused_with_what_links_them(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        "question,answer\n" + "".join(f"question {n},Please call us.\n" for n in range(100)) + "".join(f"q {n},a {n}\n" for n in range(3))
    )
    with pytest.raises(DataError) as refused:
        seen(path)
    assert "100 rows of 103 linked" in str(refused.value) and "Most share 'Please call us.' (100 rows)" in str(refused.value)


def test_ten_rows_are_too_few_whatever_share_is_held_out(tmp_path: Path) -> None:
    """Dev and test took five each, and the message asked for a smaller share, which changes nothing."""
    path = tmp_path / "ten.csv"
    path.write_text("question,answer\n" + "".join(f"what is {word},it is a {word}\n" for word in "abcdefghij"))
    with pytest.raises(DataError, match=r"ten\.csv: found 10 different rows; expected 20 at least, to hold some out"):
        seen(path, near=None)


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


def test_scores_with_a_comma_come_to_one_scale(tmp_path: Path) -> None:
    path = tmp_path / "graded.csv"
    path.write_text(written([("Satz A", "Satz B", "Note"), *graded_rows()], ";"))
    found = seen(path, near=None)
    assert (found.file.shape, found.file.low, found.file.high) == ("graded", 0.0, 1.0)
    scores = read_rows("graded.csv", path, found.file, TRAIN, revision=found.revision)["score"].to_pylist()
    assert set(scores) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    from_one = [(one, other, str(1 + n % 5)) for n, (one, other, _) in enumerate(graded_rows())]
    path.write_text(written([("Satz A", "Satz B", "Note"), *from_one], ";"))
    found = seen(path, near=None)
    assert (found.file.low, found.file.high) == (1.0, 5.0)
    scores = read_rows("graded.csv", path, found.file, TRAIN, revision=found.revision)["score"].to_pylist()
    assert set(scores) == {0.0, 1.25, 2.5, 3.75, 5.0}


def test_a_column_that_the_first_object_of_a_list_lacks_is_one(tmp_path: Path) -> None:
    rows = [{"question": f"question {n}", "answer": f"answer {n}", **({"group": n // 2} if n else {})} for n in range(60)]
    (tmp_path / "faq.json").write_text(json.dumps(rows))
    assert seen(tmp_path / "faq.json").file.group == "group"


def test_0_is_a_group_like_any_other(tmp_path: Path) -> None:
    rows = [{"question": f"question {n}", "answer": f"answer {n}", "group": n // 3 if n < 60 else None} for n in range(66)]
    (tmp_path / "faq.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert "in 26 groups; the largest group has 3 rows" in seen(tmp_path / "faq.jsonl", near=None).notes[1]


def read_cells(path: Path) -> list[dict[str, object]]:
    """The rows of a file as one would see them before any of them is chosen."""
    return own_table(path.name, path, recognised(path.name, path, FileFormat(), sorted(KNOWN_NAMES))).to_pylist()


@pytest.mark.parametrize("separator", [",", "\t"])
def test_columns_without_a_name_are_distinguished_and_those_of_one_name_are_refused(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "own.csv"
    rows = [(f"question {n}", f"answer {n}", "", "") for n in range(30)]
    path.write_text(written([("question", "answer", "", ""), *rows], separator))
    assert read_cells(path)[0] == {"question": "question 0", "answer": "answer 0", "": "", "unnamed_2": ""}
    found = seen(path)
    assert found.file.columns == ("question", "answer") and "unnamed, unnamed_2 not read" in found.notes[0]
    path.write_text(written([("question", "question", "score"), *((*row[:2], "1") for row in rows)], separator))
    with pytest.raises(DataError) as caught:
        seen(path)
    assert "several columns named 'question'" in caught.value.found


@pytest.mark.parametrize("name", ["FAQ.CSV", "FAQ.Tsv", "FAQ.JSONL", "FAQ.Json", "FAQ.PARQUET", "FAQ.JSONL.GZ"])
def test_a_suffix_may_have_capitals(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [{"question": question, "answer": answer} for question, answer in faq_rows()]
    match path.suffix.lower():
        case ".csv" | ".tsv":
            path.write_text(written([("question", "answer"), *faq_rows()], "," if path.suffix == ".CSV" else "\t"))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        case ".gz":
            path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
        case suffix:
            path.write_text(json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
    assert seen(path).notes[0] == f"{name}: faq in question, answer"


@pytest.mark.parametrize("begin", ["\n", "\r\n\r\n"])
def test_empty_lines_before_the_names_are_no_rows(tmp_path: Path, begin: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"{begin}question,answer\na b,c d\n", newline="")
    assert read_cells(path) == [{"question": "a b", "answer": "c d"}]


def test_a_name_may_hold_a_line_break(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text('question,"answer\n(short)"\na b,c d\ne f,g h\n')
    assert read_cells(path) == [{"question": "a b", "answer\n(short)": "c d"}, {"question": "e f", "answer\n(short)": "g h"}]


def test_pairs_with_two_scores_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "graded.csv"
    rows = [("Satz A", "Satz B", "Note"), *graded_rows()]
    path.write_text(written(rows, ";"))
    assert not any("is another" in line for line in seen(path, near=None).notes)
    again = [(*rows[place][:2], f"{rows[place][2]}{digit}") for place, digit in ((1, "0"), (2, "1"), (3, "1"))]
    path.write_text(written([*rows, *again], ";"))
    reported = seen(path, near=None).notes
    assert "3 repeated rows left out" in reported[0]
    assert "The score of 2 repeated rows is another than in the first row of that pair, which is taken." in reported


@pytest.mark.parametrize("name", ["own.jsonl", "own.jsonl.gz"])
def test_a_line_of_json_may_be_long(tmp_path: Path, name: str) -> None:
    path, lines = tmp_path / name, [json.dumps({"question": f"question {n}", "answer": f"answer {n}"}) for n in range(3)]
    content = "\n".join([*lines, json.dumps({"question": "long", "answer": "word " * 500_000})]).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert len(read_cells(path)) == len(read_file("own", path)) == 4


def test_the_scale_of_scores_is_reported_with_what_lies_on_it(tmp_path: Path) -> None:
    path = tmp_path / "graded.csv"
    rows = [f"one {n},other {n},{45 if n == 7 else n % 6}\n" for n in range(60)]
    path.write_text("sentence1,sentence2,score\n" + "".join(rows))
    why = ", the narrowest usual one that holds them: rank correlations do not depend on it, losses that fit the scores do"
    assert f"; scores from 0 to 45, on a scale from 0 to 100{why}" in seen(path, near=None).notes[0]
    path.write_text("sentence1,sentence2,score\n" + "".join(rows[:7] + rows[8:]))
    assert "; scores from 0 to 5, on a scale from 0 to 5" in seen(path, near=None).notes[0] and why not in seen(path, near=None).notes[0]
    path.write_text("sentence1,sentence2\n" + "".join(row.rpartition(",")[0] + "\n" for row in rows))
    assert "scores" not in seen(path, near=None).notes[0]
