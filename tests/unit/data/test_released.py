"""Test sets as their authors released them: small files in the same shape become the tables that tasks expect."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.candidates import read_candidates
from sentdist.data.labels import read_labelled
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.pinned import inspect_source
from sentdist.data.sts_pairs import read_pairs
from sentdist.errors import DataError


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_votes_and_grades_become_labels_and_two_sentences_may_share_a_field(tmp_path: Path) -> None:
    name, columns = "pairs/Twitter_URL_Corpus_test.txt", ("sentence1", "sentence2")
    _write(tmp_path / name, 'one\tone "too\t(6, 6)\thttp://a\ntwo\tdeux\t(3, 6)\thttp://b\nthree\tother\t(0, 6)\thttp://c\n')
    rows = read_labelled(name, columns=columns, data_root=tmp_path)
    assert rows.labels == ("1", "0") and rows.texts == (("one", "three"), ('one "too', "other"))
    assert inspect_source(name, data_root=tmp_path, columns=("sentence1", "label")).num_rows == 2
    lines = [f"7\ttopic\tfirst {grade}\tsecond\t{grade}\ttags\ttags" for grade in range(6)]
    _write(tmp_path / "pairs/test.data", "\n".join(lines) + "\n")
    rows = read_labelled("pairs/test.data", columns=columns, data_root=tmp_path)
    assert rows.labels == ("0", "0", "0", "1", "1") and "first 3" not in rows.texts[0]
    _write(tmp_path / "sts/sem_text_rel_ranked.csv", 'PairID,Text,Score\nA-1,"It, rains.\nIt pours.",0.9\nA-2,"One\nTwo",0\n')
    pairs = read_pairs("sts/sem_text_rel_ranked.csv", data_root=tmp_path)
    assert (pairs.sentence1, pairs.sentence2, pairs.score.tolist()) == (("It, rains.", "One"), ("It pours.", "Two"), [0.9, 0.0])


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


LISTS: list[dict[str, object]] = [
    {"query": "who asks?", "positive": ["he asks", "she asks"], "negative": ["nobody"], "split": "test"},
    {"query": "who sleeps?", "positive": ["a cat"], "negative": [], "split": "test"},
    {"query": "who sings?", "positive": [], "negative": ["a bird"], "split": "test"},
]


def test_mteb_s_lists_of_candidates_are_rows_of_candidates(tmp_path: Path) -> None:
    (tmp_path / "few.json").write_text(json.dumps(LISTS))
    pq.write_table(pa.Table.from_pylist(LISTS), tmp_path / "same.parquet")
    for name in ("few", "same"):
        found = read_candidates(name, split="test", data_root=tmp_path)
        assert found.queries == ("who asks?",) * 3 + ("who sleeps?",) and found.num_unanswerable == 1
        assert found.documents == ("nobody", "he asks", "she asks", "a cat") and found.relevance == (0, 1, 1, 1)
        assert len(set(zip(found.query_ids, found.document_ids, strict=True))) == 4 and len(set(found.query_ids)) == 2
    (tmp_path / "alone.csv").write_text("query,positive,negative\nwho asks?,they ask,a cat\nwho sleeps?,a cat,\n")
    assert read_candidates("alone", data_root=tmp_path).documents == ("a cat", "they ask", "a cat")
    (tmp_path / "no.json").write_text(json.dumps([{"query": "a", "positive": ["b"], "negative": [{"text": "c"}]}]))
    with pytest.raises(DataError, match="row 1.*negative"):
        read_candidates("no", data_root=tmp_path)


FAQIR = """<?xml version="1.0" encoding="utf-8"?>
<IRSet><queries>
<Query><QueryGroupID>7</QueryGroupID><QueryID>q1</QueryID><QueryString>fix a leaking tap</QueryString><Original>temp</Original></Query>
<Query><QueryGroupID>7</QueryGroupID><QueryID>q2</QueryID><QueryString>my faucet drips</QueryString></Query>
<Query><QueryGroupID>8</QueryGroupID><QueryID>q3</QueryID><QueryString>paint a door</QueryString></Query></queries><KB><Pairs>
<qaPair><Id>1</Id><Question>How do I stop a tap?</Question><Answer>Change the &amp; washer.</Answer></qaPair>
<qaPair><Id>2</Id><Question>What paint for doors?</Question><Answer>Gloss.</Answer></qaPair>
<qaPair><Id>3</Id><Question>Anything?</Question><Answer/></qaPair></Pairs></KB>
<relCandidates><IRCandidateList><grpId>7</grpId><candidates>
<IRCandidate><Id>1</Id><Annotations><Annotation><Val>2</Val></Annotation><Annotation><Val>1</Val></Annotation></Annotations></IRCandidate>
<IRCandidate><Id>2</Id><Annotations><Annotation><Val>2</Val></Annotation></Annotations></IRCandidate>
<IRCandidate><Id>1</Id><Annotations><Annotation><Val>2</Val></Annotation></Annotations></IRCandidate></candidates></IRCandidateList>
<IRCandidateList><grpId>8</grpId><candidates>
<IRCandidate><Id>2</Id><Annotations><Annotation><Val>1</Val></Annotation></Annotations></IRCandidate></candidates></IRCandidateList>
</relCandidates></IRSet>
"""
COUGH = {
    "FAQ_Bank_eval.csv": 'index,source,question,answer,language\n4,CDC,"What, then?","Long\nanswer",en\n9,WHO,How long?,14 days,en\n11,WHO,,no question,en\n',
    "User_Query_Bank.csv": "index,query\n0,what now\n3,for how many days\n",
    "Annotated_Relevance_Set.csv": (
        "Query_index,Query,FAQ_index,FAQ,average,Label (mean score > 3 as positive)\n"
        "0,what now,4,x,3.7,positive\n0,what now,9,x,1.0,negative\n3,for how many days,9,x,4.0,positive\n2,gone,4,x,1.0,negative\n"
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, texts in {"faqir": {"FAQIRv1.0.xml": FAQIR}, "cough": COUGH}.items():
        folder = tmp_path / "retrieval" / name
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text)
    return tmp_path


def test_faqs_become_retrieval_sources_of_two_splits(root: Path) -> None:
    """A query of FAQIR has what some annotator calls relevant; COUGH's judgements without a query are left out."""
    found = read_retrieval("retrieval/faqir", split="queries", data_root=root)
    assert found.query_ids == ("q1", "q2", "q3") and found.queries[0] == "fix a leaking tap"
    assert found.qrels == {"q1": {"1": 1, "2": 0}, "q2": {"1": 1, "2": 0}, "q3": {"2": 1}}
    assert found.documents == ("Change the & washer.", "Gloss.") and found.empty_document_ids == ("3",)
    found = read_retrieval("retrieval/faqir", split="questions", data_root=root)
    assert found.queries == ("How do I stop a tap?", "What paint for doors?") and found.qrels == {"faq-1": {"1": 1}, "faq-2": {"2": 1}}
    found = read_retrieval("retrieval/cough", split="queries", data_root=root)
    assert found.qrels == {"0": {"4": 1, "9": 0}, "3": {"9": 1}} and found.documents == ("Long answer", "14 days", "no question")
    facts = inspect_source("retrieval/faqir", split="questions", data_root=root)
    assert (facts.splits, facts.num_rows) == (("queries", "questions"), 2) and facts.revision.startswith("sha256:")
    assert inspect_source("retrieval/cough", split="queries", data_root=root).num_rows == 3


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("faqir", "FAQIRv1.0.xml", FAQIR[:300], "cannot be read"),
        ("faqir", "FAQIRv1.0.xml", "<IRSet/>", "no FAQs"),
        ("cough", "Annotated_Relevance_Set.csv", "Query_index,FAQ_index\n0,4\n", "cannot be read"),
    ],
)
def test_damaged_releases_of_faqs_are_named(name: str, file: str, text: str, message: str, root: Path) -> None:
    (root / "retrieval" / name / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_retrieval(f"retrieval/{name}", data_root=root)
