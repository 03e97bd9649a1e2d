"""Corpora that are like another, and views that name a part of the channels."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.specs import View
from sentdist.plan.stage import Json
from sentdist.plan.view_checks import settled_view
from tests.support.planning import small_recipe


def test_what_a_corpus_does_not_say_is_taken_from_the_other() -> None:
    corpora: Json = {"short": {"like": "corpus", "limit": 5}, "shorter": {"like": "short", "limit_seed": 3}}
    recipe = small_recipe(corpus={"source": "nli/triplets", "limit": 100, "add_reversed": True}, corpora=corpora)
    assert [(one.limit, one.limit_seed, one.add_reversed) for one in recipe.corpora.values()] == [(5, 0, True), (5, 3, True)]  # type: ignore[attr-defined]


def test_a_corpus_like_nothing_is_refused() -> None:
    for corpora, message in [
        ({"short": {"like": "corpsu"}}, 'corpora.short.like: "corpsu" is not one of corpus, short. Did you mean "corpus"'),
        ({"one": {"like": "two"}, "two": {"like": "one"}}, "found one → two → one; expected no circle"),
        ({"one": {"like": "corpus", "relations": "entailment"}}, "corpora.one.relations: found 'entailment'; expected a list of relations"),
        ({"one": {"like": ["corpus"]}}, "corpora.one.like: .* is not one of corpus, one"),
    ]:
        with pytest.raises(RecipeError, match=message):
            small_recipe(corpora=corpora)


def test_a_sweep_over_what_others_are_like_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"sweep\.corpus\.limit: corpora that are like corpus would keep their values"):
        small_recipe(corpora={"short": {"like": "corpus"}}, sweep={"corpus.limit": [5, 6]})


def test_a_part_follows_objective_and_width() -> None:
    own, default = Auxiliary(channels=(8, 24)), Auxiliary()
    assert settled_view(View(channels="tags"), own, width=32, where="v").channels == (0, 8)
    assert settled_view(View(channels="words"), default, width=768, where="v").channels == (128, 768)
    assert settled_view(View(channels="words"), default, width=None, where="v").channels == "words", (
        "a hub encoder's width is not known yet"
    )
    assert settled_view(View(channels=(0, 5)), InfoNCE(), width=32, where="v").channels == (0, 5)


def test_other_channels_than_the_parts_are_refused() -> None:
    for view, objective, message in [
        (View(channels="tags"), InfoNCE(), "gives them no channels of their own"),
        (View(channels=(0, 64)), Auxiliary(), r"found 0 to 64; expected a part of this encoder: tags \(0 to 128\) or words \(128 to 768\)"),
    ]:
        with pytest.raises(RecipeError, match=message):
            settled_view(view, objective, width=768, where="methods.tags.view")
