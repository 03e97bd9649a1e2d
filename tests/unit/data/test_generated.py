"""Generated corpora: the same everywhere, no sentence in two splits, gold scores that mean what they say."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from sentdist.data.folds import faq_pairs
from sentdist.data.generated import corpora, scene_pairs, scenes
from sentdist.data.generated.scenes import Draw, Scene
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.files import GENERATED_SOURCES
from sentdist.data.sources.pinned import inspect_source, read_source
from sentdist.data.sts_pairs import read_pairs
from sentdist.errors import DataError
from tests.support.machine_speed import slower_than_reference

SENTENCES = {
    "generated/nli": ("sent0", "sent1", "hard_neg"),
    "generated/sts": ("sentence1", "sentence2"),
    "generated/faq": ("query", "question", "answer"),
}
# Whoever changes what is generated raises corpora.REVISION and writes the new digests here, in one commit.
DIGESTS = {"generated/nli": "8b42614e0dd33a06", "generated/sts": "6a2bc9a3d53990dc", "generated/faq": "127f8e3e1d050b13"}


def _digest(name: str) -> str:
    rows = "\n".join("\t".join(str(cell) for cell in row.values()) for row in corpora.read(name).to_pylist())
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def test_no_sentence_is_in_two_splits() -> None:
    """Of any two splits of any two generated sources; the FAQ, whose splits are folds over queries, counts as one of its own."""
    owners = defaultdict(set)
    for name, columns in SENTENCES.items():
        for row in corpora.read(name).to_pylist():
            for column in columns:
                owners[row[column]].add(row.get("split", "faq"))
    assert len(owners) > 25_000
    assert not [sentence for sentence, splits in owners.items() if len(splits) > 1]


@pytest.mark.parametrize("name", list(DIGESTS))
def test_a_revision_stands_for_one_content(name: str) -> None:
    assert (corpora.REVISION, _digest(name)) == ("scenes-2", DIGESTS[name])


@pytest.mark.parametrize("name", list(corpora.GENERATED))
def test_facts_are_those_of_the_rows(name: str) -> None:
    facts = inspect_source(name)
    table = read_source(name)
    assert (facts.num_rows, facts.columns, facts.revision) == (table.num_rows, tuple(table.column_names), corpora.REVISION)
    for split in facts.splits:
        assert inspect_source(name, split=split).num_rows == read_source(name, split=split).num_rows


def test_generating_is_quick() -> None:
    for function in (corpora._nli, corpora._sts, corpora.faq_tables):
        function.cache_clear()  # type: ignore[attr-defined]
    started = time.process_time()
    for name in corpora.GENERATED:
        corpora.read(name)
    assert time.process_time() - started < 4 * slower_than_reference()  # 1.5 s on the slowest machine at hand, doubled for a busy one


def test_vocabulary_is_varied_and_rows_are_distinct() -> None:
    words = {
        word.strip(".,").lower()
        for sentence in read_source("generated/nli", columns=("sent0",))["sent0"].to_pylist()
        for word in sentence.split()
    }
    assert len(words) > 700
    for name, columns in (("generated/nli", SENTENCES["generated/nli"]), ("generated/sts", SENTENCES["generated/sts"])):
        rows = [tuple(row.values()) for row in read_source(name, columns=columns).to_pylist()]
        assert len(set(rows)) == len(rows)
        assert all(len(set(row)) == len(row) for row in rows)


def test_sentences_look_like_sentences() -> None:
    for name in ("generated/nli", "generated/sts"):
        for column in SENTENCES[name]:
            for sentence in read_source(name, columns=(column,))[column].to_pylist():
                assert sentence[0].isupper() and sentence.endswith(".") and "  " not in sentence and "{" not in sentence
                assert len(sentence.split()) >= 3
                assert " a a" not in sentence and " a e" not in sentence and " an b" not in sentence


def test_scores_use_the_whole_range() -> None:
    for split in ("train", "dev", "test"):
        score = read_pairs("generated/sts", split=split).score
        shares = np.histogram(score, bins=[0, 1, 2, 3, 4, 5.01])[0] / len(score)
        assert shares.min() > 0.05


GUITAR = Scene(agent="woman", activity="play the guitar", place="park", time=(0, 0))


@pytest.mark.parametrize(
    ("other", "low", "high"),
    [
        (GUITAR, 5.0, 5.0),
        (Scene(agent="woman", activity="play the guitar", place="park"), 4.2, 4.9),
        (Scene(agent="woman", activity="play the guitar", place="outdoors", time=(0, 0)), 4.2, 4.9),
        (Scene(agent="person", activity="play the guitar", place="park", time=(0, 0)), 3.5, 4.5),
        (Scene(agent="woman", activity="play the guitar", place="home", time=(0, 0)), 3.0, 4.5),
        (Scene(agent="woman", activity="play the piano", place="park", time=(0, 0)), 1.5, 3.0),
        (Scene(agent="man", activity="play the guitar", place="park", time=(0, 0)), 1.0, 2.5),
        (Scene(agent="woman", activity="mow the lawn", place="park", time=(0, 0)), 0.4, 1.5),
        (Scene(agent="man", activity="mow the lawn", place="park", time=(0, 0)), 0.0, 0.0),
    ],
)
def test_likeness_falls_with_what_differs(other: Scene, low: float, high: float) -> None:
    assert low <= scene_pairs.likeness(GUITAR, other) <= high
    assert scene_pairs.likeness(GUITAR, other) == scene_pairs.likeness(other, GUITAR)


def test_what_follows_contradicts_nothing_and_what_contradicts_differs() -> None:
    draw = Draw("test")
    for _ in range(500):
        scene = scenes.draw_scene(draw, "train", detail=0.8)
        weaker = scene_pairs.weakened(scene, draw, "train")
        for slot in ("look", "garment", "time", "manner"):
            assert getattr(weaker, slot) in (None, getattr(scene, slot))
        assert weaker.count == scene.count
        against, negated = scene_pairs.contradicted(scene, draw, "train")
        reported = [getattr(against, slot) != getattr(scene, slot) and getattr(against, slot) is not None for slot in vars(scene)]
        assert negated or any(reported)


@pytest.mark.parametrize(
    ("phrase", "gerund", "third"),
    [
        ("ride a bike", "riding a bike", "rides a bike"),
        ("run", "running", "runs"),
        ("lie in the sun", "lying in the sun", "lies in the sun"),
        ("carry boxes", "carrying boxes", "carries boxes"),
        ("wash the dishes", "washing the dishes", "washes the dishes"),
        ("play chess", "playing chess", "plays chess"),
        ("have a seat", "having a seat", "has a seat"),
        ("stir soup", "stirring soup", "stirs soup"),
    ],
)
def test_inflection(phrase: str, gerund: str, third: str) -> None:
    assert (scenes.gerund(phrase), scenes.third_person(phrase)) == (gerund, third)


def test_the_faq_has_two_grades_and_folds() -> None:
    collection = read_retrieval("generated/faq")
    assert len(set(collection.documents)) == len(collection.documents) and len(set(collection.queries)) == len(collection.queries)
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


def test_the_name_that_generated_sources_once_had_is_answered_with_theirs(tmp_path: Path) -> None:
    assert tuple(corpora.GENERATED) == GENERATED_SOURCES
    for root in (None, tmp_path):
        with pytest.raises(DataError, match=r"Did you mean generated/sts\?"):
            inspect_source("embedded/sts", split="dev", data_root=root)
