"""FAQIR and COUGH as their authors released them: small files in the same shape become retrieval sources with two splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.hub import inspect_source
from sentdist.errors import DataError

FAQIR = """<?xml version="1.0" encoding="utf-8"?>
<IRSet>
  <queries>
    <Query><QueryGroupID>7</QueryGroupID><QueryID>q1</QueryID><QueryString>fix a leaking tap</QueryString><Original>temp</Original></Query>
    <Query><QueryGroupID>7</QueryGroupID><QueryID>q2</QueryID><QueryString>my faucet drips</QueryString></Query>
    <Query><QueryGroupID>8</QueryGroupID><QueryID>q3</QueryID><QueryString>paint a door</QueryString></Query>
  </queries>
  <KB><Pairs>
    <qaPair><Id>1</Id><Question>How do I stop a tap?</Question><Answer>Change the &amp; washer.</Answer></qaPair>
    <qaPair><Id>2</Id><Question>What paint for doors?</Question><Answer>Gloss.</Answer></qaPair>
    <qaPair><Id>3</Id><Question>Anything?</Question><Answer/></qaPair>
  </Pairs></KB>
  <relCandidates>
    <IRCandidateList><grpId>7</grpId><candidates>
      <IRCandidate><Id>1</Id><Annotations><Annotation><Val>2</Val></Annotation><Annotation><Val>1</Val></Annotation></Annotations></IRCandidate>
      <IRCandidate><Id>2</Id><Annotations><Annotation><Val>2</Val></Annotation></Annotations></IRCandidate>
      <IRCandidate><Id>1</Id><Annotations><Annotation><Val>2</Val></Annotation></Annotations></IRCandidate>
    </candidates></IRCandidateList>
    <IRCandidateList><grpId>8</grpId><candidates>
      <IRCandidate><Id>2</Id><Annotations><Annotation><Val>1</Val></Annotation></Annotations></IRCandidate>
    </candidates></IRCandidateList>
  </relCandidates>
</IRSet>
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


def test_a_query_of_faqir_has_what_some_annotator_calls_relevant(root: Path) -> None:
    found = read_retrieval("retrieval/faqir", split="queries", data_root=root)
    assert found.query_ids == ("q1", "q2", "q3") and found.queries[0] == "fix a leaking tap"
    assert found.qrels == {"q1": {"1": 1, "2": 0}, "q2": {"1": 1, "2": 0}, "q3": {"2": 1}}
    assert found.documents == ("Change the & washer.", "Gloss.") and found.empty_document_ids == ("3",)


def test_each_faq_s_own_question_has_its_answer(root: Path) -> None:
    found = read_retrieval("retrieval/faqir", split="questions", data_root=root)
    assert found.queries == ("How do I stop a tap?", "What paint for doors?")
    assert found.qrels == {"faq-1": {"1": 1}, "faq-2": {"2": 1}}
    assert read_retrieval("retrieval/cough", split="questions", data_root=root).queries == ("What, then?", "How long?")


def test_cough_s_judgements_without_a_query_are_left_out(root: Path) -> None:
    found = read_retrieval("retrieval/cough", split="queries", data_root=root)
    assert found.qrels == {"0": {"4": 1, "9": 0}, "3": {"9": 1}}
    assert found.documents == ("Long answer", "14 days", "no question")


def test_of_a_pair_of_cough_that_is_judged_twice_one_positive_is_enough(root: Path) -> None:
    again = "0,what now,4,x,2.0,negative\n0,what now,9,x,4.3,positive\n0,what now,99,x,1.0,negative\n"  # FAQ 99 is not in the bank
    (root / "retrieval/cough/Annotated_Relevance_Set.csv").write_text(COUGH["Annotated_Relevance_Set.csv"] + again)
    found = read_retrieval("retrieval/cough", split="queries", data_root=root)
    assert found.qrels == {"0": {"4": 1, "9": 1}, "3": {"9": 1}}


def test_planning_knows_their_splits_and_sizes(root: Path) -> None:
    facts = inspect_source("retrieval/faqir", split="questions", data_root=root)
    assert facts.splits == ("queries", "questions") and facts.num_rows == 2 and facts.revision.startswith("sha256:")
    assert inspect_source("retrieval/cough", split="queries", data_root=root).num_rows == 3
    before = facts.revision
    (root / "retrieval/faqir/FAQIRv1.0.xml").write_text(FAQIR.replace("Gloss", "Matt"))
    assert inspect_source("retrieval/faqir", data_root=root).revision != before


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("faqir", "FAQIRv1.0.xml", FAQIR[:300], "cannot be read"),
        ("faqir", "FAQIRv1.0.xml", FAQIR.replace("<Val>2</Val>", "<Val>two</Val>"), "cannot be read"),
        ("faqir", "FAQIRv1.0.xml", "<IRSet/>", "no FAQs"),
        ("cough", "Annotated_Relevance_Set.csv", "Query_index,FAQ_index\n0,4\n", "cannot be read"),
        ("cough", "User_Query_Bank.csv", "number,query\n0,a\n", "cannot be read"),
    ],
)
def test_damaged_releases_are_named(name: str, file: str, text: str, message: str, root: Path) -> None:
    (root / "retrieval" / name / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_retrieval(f"retrieval/{name}", data_root=root)


def test_a_release_that_lacks_a_file_is_named(root: Path) -> None:
    (root / "retrieval/cough/User_Query_Bank.csv").unlink()
    with pytest.raises(DataError, match=r"no User_Query_Bank\.csv"):
        inspect_source("retrieval/cough", data_root=root)
