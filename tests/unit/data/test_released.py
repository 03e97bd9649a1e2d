"""Test sets as their authors released them: small files in the same shape become the tables that tasks expect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sentdist.data.checked_rows import read_candidates, read_labelled, read_pairs
from sentdist.data.sources.hub import inspect_source
from sentdist.errors import DataError


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_twitter_urls_votes_become_labels_and_three_is_left_out(tmp_path: Path) -> None:
    _write(
        tmp_path / "pairs/Twitter_URL_Corpus_test.txt",
        'one\tone "too\t(6, 6)\thttp://a\ntwo\tdeux\t(3, 6)\thttp://b\nthree\tother\t(0, 6)\thttp://c\n',
    )
    name = "pairs/Twitter_URL_Corpus_test.txt"
    rows = read_labelled(name, columns=("sentence1", "sentence2"), data_root=tmp_path)
    assert rows.labels == ("1", "0") and rows.texts == (("one", "three"), ('one "too', "other"))
    facts = inspect_source(name, data_root=tmp_path, columns=("sentence1", "label"))
    assert facts.num_rows == 2 and facts.revision.startswith("sha256:")


def test_pits_grades_become_labels(tmp_path: Path) -> None:
    lines = [f"7\ttopic\tfirst {grade}\tsecond\t{grade}\ttags\ttags" for grade in range(6)]
    _write(tmp_path / "pairs/test.data", "\n".join(lines) + "\n")
    rows = read_labelled("pairs/test.data", columns=("sentence1", "sentence2"), data_root=tmp_path)
    assert rows.labels == ("0", "0", "0", "1", "1") and "first 3" not in rows.texts[0]


def test_str2022_has_both_sentences_in_one_field(tmp_path: Path) -> None:
    _write(tmp_path / "sts/sem_text_rel_ranked.csv", 'PairID,Text,Score\nA-1,"It, rains.\nIt pours.",0.9\nA-2,"One\nTwo",0\n')
    pairs = read_pairs("sts/sem_text_rel_ranked.csv", data_root=tmp_path)
    assert pairs.sentence1 == ("It, rains.", "One") and pairs.sentence2 == ("It pours.", "Two") and pairs.score.tolist() == [0.9, 0.0]


def _askubuntu(folder: Path) -> None:
    _write(folder / "text_tokenized.txt", "".join(f"{n}\ttitle {n}\tbody {n}\n" for n in range(1, 7)))
    _write(folder / "dev.txt", "1\t2\t2 3\t0.5 0.7\n")
    _write(folder / "test.txt", "1\t4 5\t3 4 5\t1.0 9.0 2.0\n6\t\t2 3\t0.1 0.2\n")


def test_askubuntus_candidates_stand_in_bm25s_order(tmp_path: Path) -> None:
    _askubuntu(tmp_path / "reranking/askubuntu")
    found = read_candidates("reranking/askubuntu", split="test", data_root=tmp_path)
    assert found.document_ids == ("4", "5", "3") and found.relevance == (1, 1, 0)
    assert set(found.queries) == {"title 1"} and found.documents[0] == "title 4"
    assert inspect_source("reranking/askubuntu", split="test", data_root=tmp_path).num_rows == 3 and found.num_unanswerable == 0
    assert dict(inspect_source("reranking/askubuntu", split="dev", data_root=tmp_path).__dict__)["splits"] == ("dev", "test")


def test_scidocs_relations_are_splits_and_papers_without_title_are_left_out(tmp_path: Path) -> None:
    papers = {key: {"title": title} for key, title in (("p", "query paper"), ("q", "near"), ("r", "far"), ("s", None))}
    test = {"cite": {"p": {"q": 1, "r": 0, "s": 1}}, "coview": {"p": {"r": 1, "unknown": 0}, "s": {"q": 1}}}
    valid = {"cite": {"p": {"r": 1, "q": 0}}}
    _write(tmp_path / "reranking/scidocs/data.json", json.dumps({"corpus": papers, "valid": valid, "test": test}))
    assert read_candidates("reranking/scidocs", split="cite-valid", data_root=tmp_path).relevance == (1, 0)
    found = read_candidates("reranking/scidocs", split="cite", data_root=tmp_path)
    assert found.documents == ("near", "far") and found.relevance == (1, 0)
    assert read_candidates("reranking/scidocs", split="coview", data_root=tmp_path).documents == ("far",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pairs/test.data", "7\ttopic\tonly\n", "a line that cannot be read"),
        ("pairs/test.data", "7\ttopic\ta\tb\tseven\tx\ty\n", "a line that cannot be read"),
        ("pairs/Twitter_URL_Corpus_test.txt", "a\tb\t(3, 6)\tu\n", "no rows"),
        ("sts/sem_text_rel_ranked.csv", "PairID,Text,Score\n1,one sentence,0.5\n", "a line that cannot be read"),
    ],
)
def test_damaged_releases_are_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    _write(tmp_path / name, text)
    with pytest.raises(DataError, match=message):
        inspect_source(name, data_root=tmp_path)


def test_a_release_that_lacks_a_part_is_named(tmp_path: Path) -> None:
    _askubuntu(tmp_path / "askubuntu")
    (tmp_path / "askubuntu/dev.txt").unlink()
    with pytest.raises(DataError, match=r"no dev\.txt"):
        inspect_source("askubuntu", data_root=tmp_path)


ROW = {"query_id": "q", "query": "a", "document_id": "d", "document": "b", "relevance": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROW, ROW], "candidate d of query q twice"),
        ([{**ROW, "document": " "}], "no document in row 1"),
        ([{**ROW, "relevance": "half"}], "relevance half in row 1"),
        ([{**ROW, "relevance": 0}], "no query with a relevant candidate"),
        ([{"query_id": "q", "query": "a"}], "document_id, relevance, document missing"),
        ([ROW, {**ROW, "query": "other", "document_id": "e"}], "query q with another text in row 2"),
    ],
)
def test_bad_candidates_are_named(rows: list[dict[str, object]], message: str, tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match=message):
        read_candidates("mine", data_root=tmp_path)


def test_queries_without_a_relevant_candidate_are_left_out_and_counted(tmp_path: Path) -> None:
    judged = [("r", "d", 0), ("r", "e", 0), ("q", "d", 2), ("s", "e", 1), ("q", "e", 0)]
    rows = [
        {"query_id": query, "query": f"{query}?", "document_id": document, "document": f"{document}!", "relevance": grade}
        for query, document, grade in judged
    ]
    _write(tmp_path / "mine.jsonl", "\n".join(map(json.dumps, rows)))
    found = read_candidates("mine", data_root=tmp_path)
    assert list(zip(found.query_ids, found.document_ids, found.relevance, strict=True)) == judged[2:] and found.num_unanswerable == 1
    assert found.queries == tuple(f"{query}?" for query in found.query_ids), "each row keeps its own texts"
    assert found.documents == tuple(f"{document}!" for document in found.document_ids)
