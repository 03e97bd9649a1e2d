"""What each side of a person's own file holds: rows with their own scores, groups and splits, and the documents that queries look among."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sentdist.data.own.rows import read_groups, read_queries, read_rows
from sentdist.data.own.split import DEV, SIDES, TEST, TRAIN
from sentdist.plan.corpora.own import own_section
from sentdist.plan.stage import Json
from sentdist.stages.planning.resolve import FileResolver
from tests.unit.data.test_own_rows import faq_rows, seen, written


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_rows_that_are_left_out_move_no_split_group_or_score_to_another_row(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"question {n},answer number {n},{'test' if n % 4 == 0 else 'train'},g{n // 10}\n" for n in range(200)]
    rows[1:1] = [rows[0], ",without a question,train,g5\n", rows[0]]
    path.write_text("question,answer,split,group\n" + "".join(rows))
    found = seen(path, near=None)
    for side in (TRAIN, DEV, TEST):
        numbers = [
            int(text.split()[1]) for text in read_rows("own.csv", path, found.file, side, revision=found.revision)["sent0"].to_pylist()
        ]
        assert {number % 4 == 0 for number in numbers} == {side == TEST}
        assert read_groups("own.csv", path, found.file, side, revision=found.revision) == tuple(f"g{number // 10}" for number in numbers)
    graded = [f"one {n},other {n},{n % 6}\n" for n in range(60)]
    path.write_text("sentence1,sentence2,score\n" + "".join([graded[0], ",without a text,5\n", *graded]))
    found = seen(path, near=None)
    for side in (TRAIN, DEV, TEST):
        table = read_rows("own.csv", path, found.file, side, revision=found.revision).to_pylist()
        assert all(row["score"] == int(row["sentence1"].split()[1]) % 6 for row in table)


def test_sides_that_were_noted_for_a_file_are_not_those_of_its_next_version(tmp_path: Path) -> None:
    path, rows, tested = tmp_path / "faq.csv", faq_rows(), []
    for given in (rows, random.Random(1).sample(rows, len(rows))):
        path.write_text(written([("question", "answer"), *given], ";"))
        found = seen(path)
        tested.append({*read_rows("faq.csv", path, found.file, TEST, revision=found.revision)["sent0"].to_pylist()})
    assert tested[0] == tested[1]


def test_sides_that_were_noted_for_a_seed_are_not_those_of_another(tmp_path: Path) -> None:
    path, tested = tmp_path / "faq.csv", []
    path.write_text(written([("question", "answer"), *faq_rows()], ";"))
    for seed in (0, 1, 0):
        found = seen(path, seed=seed)
        tested.append({*read_rows("faq.csv", path, found.file, TEST, revision=found.revision)["sent0"].to_pylist()})
    assert tested[0] == tested[2] != tested[1]


def test_a_row_of_one_text_twice_asks_nothing_and_keeps_its_text_a_query(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [row for n in range(60) for row in ((f"text {n}", f"text {n}"), (f"text {n}", f"word {n}"))]
    path.write_text(written([("anchor", "positive"), *rows]))
    found = seen(path, near=None)
    queries = read_queries("pairs.csv", path, found.file, TEST, revision=found.revision)
    assert len(queries.queries) == found.sizes[2] // 2 and all(text.startswith("text") for text in queries.queries)


def test_the_seed_draws_which_documents_stand_beside_those_of_a_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.csv"
    rows = [f"question {n},answer {n},{SIDES[n % 10] if n % 10 < 3 else 'train'}\n" for n in range(200)]
    path.write_text("question,answer,split\n" + "".join(rows))
    monkeypatch.setattr("sentdist.data.own.rows.MOST_DOCUMENTS", {TEST: 40})
    drawn = []
    for seed in (0, 0, 1):
        found = seen(path, near=None, seed=seed)
        drawn.append({*read_queries("own.csv", path, found.file, TEST, revision=found.revision).documents})
    assert drawn[0] == drawn[1] != drawn[2] and {len(one) for one in drawn} == {40} and len(drawn[0] & drawn[2]) >= 20


def test_dev_looks_among_no_document_of_test(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(written([("question", "answer"), *faq_rows()], ";"))
    found = seen(path)
    documents = {side: {*read_queries("faq.csv", path, found.file, side, revision=found.revision).documents} for side in (DEV, TEST)}
    positives = {
        side: {*read_rows("faq.csv", path, found.file, side, revision=found.revision)["sent1"].to_pylist()} for side in (TRAIN, DEV, TEST)
    }
    assert documents[DEV] == positives[TRAIN] | positives[DEV]
    assert documents[TEST] == documents[DEV] | positives[TEST] != documents[DEV]


def test_what_a_section_says_of_a_file_is_how_it_is_read(tmp_path: Path) -> None:
    lines = [f"{n % 7};text {n};other {n};thread {n // 4}\n" for n in range(400)]
    (tmp_path / "own.csv").write_text("".join(lines), encoding="utf-16")
    held_out: Json = {"dev": 0.2, "test": 0.3, "seed": 7, "most": 50, "near": 0.9}
    said: dict[str, Json] = {
        "encoding": "utf-16",
        "separator": ";",
        "header": False,
        "columns": ["2", "3", "1"],
        "shape": "graded",
        "group": "4",
    }
    section = own_section({"kind": "own", "file": "own.csv", **said, "held_out": held_out}, where="corpus")
    rows = section.pinned(FileResolver(data_root=tmp_path), where="corpus").rows
    assert (rows.encoding, rows.separator, rows.has_header, rows.columns, rows.group) == ("utf-16", ";", False, ("2", "3", "1"), "4")
    assert {name: getattr(rows, name) for name in ("dev", "test", "seed", "most", "near")} == held_out


def test_negatives_of_a_side_stand_among_its_documents(tmp_path: Path) -> None:
    path = tmp_path / "triplets.csv"
    path.write_text(written([("anchor", "positive", "negative"), *((f"anchor {n}", f"positive {n}", f"negative {n}") for n in range(80))]))
    found = seen(path, near=None)
    for side in (DEV, TEST):
        negatives = {*read_rows("triplets.csv", path, found.file, side, revision=found.revision)["hard_neg"].to_pylist()}
        documents = {*read_queries("triplets.csv", path, found.file, side, revision=found.revision).documents}
        assert negatives == {text for text in documents if text.startswith("negative")}


def test_a_negative_that_asks_elsewhere_is_no_document(tmp_path: Path) -> None:
    """Mined negatives are often other questions: a query would find itself."""
    path = tmp_path / "triplets.csv"
    path.write_text(
        written([("anchor", "positive", "negative"), *((f"anchor {n}", f"positive {n}", f"anchor {n ^ 1}") for n in range(80))])
    )
    found = seen(path, near=None)
    for side in (DEV, TEST):
        queries = read_queries("triplets.csv", path, found.file, side, revision=found.revision)
        assert len(queries.queries) > 4 and all(text.startswith("positive") for text in queries.documents)
