"""Generated corpora: the same everywhere, no sentence in two splits, gold scores that mean what they say."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np
import pytest

from sentdist.data.folds import faq_pairs
from sentdist.data.generated import corpora, helpdesk
from sentdist.data.generated.helpdesk import Draw
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.files import GENERATED_SOURCES
from sentdist.data.sources.pinned import inspect_source, read_source
from sentdist.data.sts_pairs import read_pairs
from sentdist.errors import DataError

SENTENCES = {
    "generated/nli": ("sent0", "sent1", "hard_neg"),
    "generated/sts": ("sentence1", "sentence2"),
    "generated/faq": ("query", "question", "answer"),
}
# Whoever changes what is generated raises corpora.REVISION and writes the new digests here, in one commit.
DIGESTS = {"generated/nli": "d90de154b9cadb8f", "generated/sts": "36eff3d87df0ee6c", "generated/faq": "33d5aaaa749e71ad"}


def _digest(name: str) -> str:
    rows = "\n".join("\t".join(str(cell) for cell in row.values()) for row in corpora.read(name).to_pylist())
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def test_no_sentence_is_in_two_splits() -> None:
    """Of any two generated sources; the FAQ, whose splits are folds over queries, is of test."""
    owners = defaultdict(set)
    for name, columns in SENTENCES.items():
        for row in corpora.read(name).to_pylist():
            for column in columns:
                owners[row[column]].add(row.get("split", "test"))
    assert len(owners) > 5_000
    assert not [sentence for sentence, splits in owners.items() if len(splits) > 1]


def test_a_revision_stands_for_one_content() -> None:
    assert (corpora.REVISION, {name: _digest(name) for name in DIGESTS}) == ("helpdesk-1", DIGESTS)
    assert tuple(corpora.GENERATED) == GENERATED_SOURCES


@pytest.mark.parametrize("name", list(corpora.GENERATED))
def test_facts_are_those_of_the_rows(name: str) -> None:
    facts = inspect_source(name)
    table = read_source(name)
    assert (facts.num_rows, facts.columns, facts.revision) == (table.num_rows, tuple(table.column_names), corpora.REVISION)
    for split in facts.splits:
        assert inspect_source(name, split=split).num_rows == read_source(name, split=split).num_rows


def test_scores_use_the_whole_range() -> None:
    for split in ("train", "dev", "test"):
        score = read_pairs("generated/sts", split=split).score
        shares = np.histogram(score, bins=[0, 1, 2, 3, 4, 5.01])[0] / len(score)
        assert shares.min() > 0.05


def test_a_case_changes_as_asked_and_is_as_alike_as_what_it_keeps() -> None:
    draw = Draw("test")
    for fields, likeness in (((), 5), (("cause",), 4), (("fault",), 3), (("machine", "cause"), 2), (("machine", "fault"), 1)):
        for case in helpdesk.cases("dev"):
            other = helpdesk.changed(case, fields, draw, "dev")
            assert [name for name in helpdesk.WEIGHTS if getattr(case, name) != getattr(other, name)] == list(fields)
            assert helpdesk.likeness(case, other) == helpdesk.likeness(other, case) == likeness


def test_the_faq_has_two_grades_and_folds() -> None:
    collection = read_retrieval("generated/faq")
    assert len(set(collection.documents)) == len(collection.documents) > 150 and len(set(collection.queries)) == len(collection.queries)
    assert all(sorted(grades.values()) == [1, 2] for grades in collection.qrels.values())
    asked = [set(faq_pairs(collection, fold=fold, num_folds=5, seed=0, role="test")["anchor"].to_pylist()) for fold in range(5)]
    assert sum(map(len, asked)) == len(set().union(*asked)) == len(collection.queries)


def test_unknown_names_splits_and_columns() -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match='Did you mean "generated/nli"'):
            look("generated/nly")
        with pytest.raises(DataError, match="expected one of train, dev, test"):
            look("generated/nli", split="valid")
        with pytest.raises(DataError, match="sentence1 missing"):
            look("generated/nli", columns=("sentence1",))
    with pytest.raises(DataError, match="no split"):
        read_retrieval("generated/faq", split="train")
