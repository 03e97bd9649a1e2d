"""`sentdist evaluate` and `compare` on a file as `tune` reads it: the rows that are held out for test, however the file is written."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.errors import RecipeError

WHO, WHAT, WHERE = ("man", "woman", "child", "dog", "cat"), ("eats", "drinks", "plays", "sings", "reads"), ("house", "garden", "street")
ROWS = [(f"a {who} {what} in the {where}", f"the {who} in the {where} {what}") for who in WHO for what in WHAT for where in WHERE]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a FAQ of 75 rows; data lie elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENTDIST_STORE", raising=False)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("SENTDIST_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "faq.csv").write_bytes("".join(f"{one};{other}\n" for one, other in [("question", "answer"), *ROWS]).encode("utf-16"))
    return tmp_path


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


def queries(name: str) -> int:
    (path,) = Path(".sentdist/store/scores").glob(f"*/items/{name}.parquet")
    return pq.read_table(path).num_rows


def test_the_rows_that_tune_holds_out_for_test_are_scored(planted_encoder_dir: Path) -> None:
    found = call("evaluate", planted_encoder_dir, "--tasks", "own=faq.csv")
    assert found.exit_code == 0 and "retrieval-faq-csv-test" in found.output and "map" in found.output, found.output
    assert "75 rows: 42 train, 11 dev, 22 test" in found.output and queries("retrieval-faq-csv-test") == 22
    again = sentdist.evaluate(str(planted_encoder_dir), "own=faq.csv@test")
    assert again["retrieval-faq-csv-test"] == pytest.approx(100.0)


def test_a_task_of_which_no_value_is_better_is_not_compared(planted_encoder_dir: Path, tiny_encoder_dir: Path) -> None:
    found = call("compare", planted_encoder_dir, tiny_encoder_dir, "--tasks", "own=faq.csv,geometry-stsb")
    assert found.exit_code == 2 and found.output.startswith("sentdist compare: ") and "found geometry-stsb" in found.output, found.output
    with pytest.raises(RecipeError) as refused:
        sentdist.compare(str(planted_encoder_dir), str(tiny_encoder_dir), "geometry")
    assert refused.value.where == "compare: tasks" and refused.value.found.startswith("geometry-stsb")


LABELLED = "text,label,split\n" + "".join(f"{one},{place % 2},{'test' if place > 60 else 'train'}\n" for place, (one, _) in enumerate(ROWS))


ROWS_OF = [
    ("classification=rows.csv@train", LABELLED, "found split train"),
    ("classification=rows.csv@test", LABELLED.replace("train", "Train"), "found splits Train, test"),
    ("classification=rows.csv", LABELLED.replace(f"\n{ROWS[0][0]},", "\n,"), "found an empty text in row 1"),
    ("pairs=rows.csv", "sentence1,sentence2,label\na,b,1\nc,,0\n", "found an empty sentence2 in row 2"),
]


def test_rows_that_say_nothing_of_an_encoder_are_refused(planted_encoder_dir: Path, here: Path) -> None:
    for task, rows, said in ROWS_OF:
        (here / "rows.csv").write_text(rows)
        found = call("evaluate", planted_encoder_dir, "--tasks", task)
        assert found.exit_code == 2 and said in found.output, found.output


UNREADABLE = [
    ("own", "own=FILE"), ("own=faq.csv@dev", "expected test rows"), ("own=faq.csv,own=other.csv", "one file"), ("own=fag.csv", 'Did you mean "'),
    ("own=plain.yaml", "expected a recipe whose corpus is of kind own"), ("own=unknown.csv", "own=RECIPE.yaml"), ("retrieval=faq.csv", "as own=faq.csv"),
    ("sts=faq.csv,stsb", "Score it in a command of its own"), ("faq.csv", "is named with its kind: sts=faq.csv"),
    ("scifact.zip", "is named with its kind: retrieval=scifact.zip"), ("retrieval=shop_docs.csv", "Name all three as retrieval=shop."),
    ("retrieval=beir/corpus.jsonl", "Name the folder: retrieval=beir."),
]  # fmt: skip


def test_what_cannot_be_scored_is_reported_with_what_to_write(planted_encoder_dir: Path, here: Path) -> None:
    (here / "plain.yaml").write_text(
        "name: plain\ncorpus: {source: generated/nli}\nmethods: {base: {}}\nevaluation: {tasks: [scenes-sts]}\n"
    )
    (here / "shop_docs.csv").write_text("doc_id,text\nd,a house\n")
    (here / "beir").mkdir()
    (here / "beir/corpus.jsonl").write_text('{"_id": "d", "text": "a house"}\n')
    (here / "unknown.csv").write_text("a,b,c,d\n" + "".join(f"{one},{other},{one},{other}\n" for one, other in ROWS))
    for tasks, said in UNREADABLE:
        found = call("evaluate", planted_encoder_dir, "--tasks", tasks)
        assert found.exit_code == 2 and said in found.output, found.output


def test_scores_and_comparisons_are_json_for_other_programs(planted_encoder_dir: Path, tiny_encoder_dir: Path) -> None:
    """Nothing else on stdout; the numbers are those of the Python door."""
    asked = ("--tasks", "own=faq.csv", "--format", "json")
    scored = call("evaluate", planted_encoder_dir, *asked)
    values = json.loads(scored.stdout)
    (line,) = values["tasks"]
    expected = sentdist.evaluate(str(planted_encoder_dir), "own=faq.csv")
    assert line["task"] == "retrieval-faq-csv-test" and line["score"] == expected["retrieval-faq-csv-test"] and line["num_items"] == 22
    assert Path(values["folder"]).is_dir() and values["pooling"] == "mean" and "Encoding" in scored.stderr
    compared = json.loads(call("compare", planted_encoder_dir, tiny_encoder_dir, *asked).stdout)
    found = sentdist.compare(str(planted_encoder_dir), str(tiny_encoder_dir), "own=faq.csv")
    difference = compared["lines"][0]["difference"]
    assert difference["difference"] == found.lines[0].difference.difference and difference["p"] == found.lines[0].difference.p
    assert compared["first"] == str(planted_encoder_dir) and compared["second_opinion"] == []
