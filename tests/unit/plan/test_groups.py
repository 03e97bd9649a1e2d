"""Grouped corpora in recipes: what their values stand for, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import GroupedCorpus
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from tests.support.groups_data import groups
from tests.support.planning import plan_of, small_values

SUPMPN: Json = {"name": "supmpn"}


def values(corpus: Json, objective: Json = SUPMPN) -> dict[str, Json]:
    return small_values(corpus=corpus, methods={"supmpn": {"objective": objective}})


def planned(corpus: Json, objective: Json = SUPMPN) -> Plan:
    return plan_of(recipe_from_values(values(corpus, objective), where="small.yaml"))


def training(plan: Plan) -> Train:
    (trial,) = plan.trials
    assert isinstance(trial.scores.encoder, Train)
    return trial.scores.encoder


def corpus_of(section: Json) -> GroupedCorpus:
    corpus = training(planned(section)).corpus
    assert isinstance(corpus, GroupedCorpus)
    return corpus


def test_a_grouped_corpus_and_its_columns() -> None:
    corpus = corpus_of(groups(5, 4))
    assert (corpus.num_positives, corpus.num_columns, corpus.label) == (5, 10, "nli-inference-p5-q4")
    assert training(planned(groups(5, 4))).objective == SupMPN(temperature=0.05)


def test_every_value_counts_and_defaults_have_one_spelling() -> None:
    for settings, same in [
        ({"fill": "own_then_copies", "at_least": 1, "seed": 0}, True),
        ({"fill": "copies"}, False),
        ({"at_least": 5}, False),
        ({"seed": 1}, False),
        ({"limit": 640}, False),
        ({"augmentation": {"name": "word_deletion"}}, False),
    ]:
        assert (corpus_of(groups(3, 3, **settings)).key == corpus_of(groups(3, 3)).key) is same


def test_augmentations_take_the_papers_shares_and_are_pinned() -> None:
    for section, fraction, revision in [
        ({"name": "word_deletion"}, 0.1, None),
        ({"name": "synonyms"}, 0.2, "sha256:2222222222222222"),
        ({"name": "synonyms", "fraction": 0.5}, 0.5, "sha256:2222222222222222"),
        ({"name": "paraphrases", "checkpoint": "owner/parrot", "revision": "abc"}, 0.5, "abc"),
    ]:
        augmentation = corpus_of(groups(3, 3, augmentation=section)).augmentation
        assert augmentation is not None
        assert (augmentation.fraction, augmentation.source_revision) == (fraction, revision)


def test_training_rows_are_bounded_by_what_premises_can_be() -> None:
    plan = planned(groups(3, 3, at_least=5))
    assert set(plan.rows.values()) == {1000}  # 10,000 rows, of which a premise needs ten


def test_sections_that_are_refused() -> None:
    for section, says in [
        (groups(0, 3), "num_positives"),
        (groups(3, 3, augmentation={"name": "word_deletions"}), "word_deletion"),
        (groups(3, 3, augmentation={"name": "synonyms", "fractoin": 0.2}), 'did you mean "fraction"'),
        (groups(3, 3, augmentation={"name": "paraphrases"}), "checkpoint: found none; expected a sequence-to-sequence model"),
        (groups(3, 3, augmentation={"name": "synonyms", "checkpoint": "owner/parrot"}), "checkpoint: has no effect on synonyms"),
    ]:
        with pytest.raises(RecipeError, match=says):
            planned(section)
