"""Methods and corpora of a recipe: combinations, frozen encoders, grouped corpora, corpora like others, and what keys say of them."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import GroupedCorpus
from sentdist.plan.memoized import memoized
from sentdist.plan.objectives import Sum
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.specs import View
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.view_checks import settled_view
from tests.support.groups_data import groups
from tests.support.planning import plan_of, small_recipe, small_values
from tests.support.relations_data import ENTAILMENT, TWIN

SMOOTH: Json = {"name": "regression", "slope": 2.0, "threshold": 0.25}
NLI: Json = {"kind": "graded", "parts": [{"source": "nli/snli", "columns": ["premise", "hypothesis", "label"], "scale": "nli"}]}
PAIRS: Json = {"source": "pairs/some", "columns": ["anchor", "positive"]}
RELATIONS: Json = {"kind": "relations", "relations": [ENTAILMENT, TWIN]}
MLM: Json = {"objective": {"name": "mlm"}}


def trained(objective: Json, corpus: Json, *, selection: Json = None, **method: Json) -> Train:
    """The training of a recipe with one method."""
    values = small_values(corpus=corpus, selection=selection, methods={"m": {"objective": objective, **method}})
    (stage,) = (one for one in plan_of(recipe_from_values(values, where="small.yaml")).stages if isinstance(one, Train))
    return stage


def test_entropy_encoders_of_a_sum_differ_in_phi_alone() -> None:
    inner: Json = {"name": "sum", "terms": [{"objective": {"name": "entropy", "phi": 0.5}}, MLM]}
    rcl: Json = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [-1.0, 1.0]}
    plan = plan_of(small_recipe(methods={"entropy": {"objective": inner, "reported": False}, "rcl": rcl}))
    (final,) = (trial.scores.encoder for trial in plan.trials)
    assert isinstance(final, Train)
    objectives = [bank.encoder.objective for bank in final.banks]
    assert [one.terms[0].objective.phi for one in objectives if isinstance(one, Sum)] == [-1.0, 1.0]  # type: ignore[attr-defined]


def test_auxiliary_tasks_read_what_is_evaluated() -> None:
    """Not a layer that is dropped at test: their adversaries would learn from other embeddings than the encoder evades."""
    terms: Json = [{"objective": {"name": "info_nce"}}, {"projected": True, "objective": {"name": "auxiliary"}}]
    with pytest.raises(ValueError, match="projected: true for auxiliary"):
        Sum.model_validate({"terms": terms})


def test_what_learns_something_of_its_own_may_be_trained_alone() -> None:
    projected: Json = {"name": "sum", "terms": [MLM, {"objective": {"name": "info_nce"}, "projected": True}]}
    learned: Json = {"name": "symmetric_info_nce", "learn_temperature": True}
    for objective, corpus in [(SMOOTH, NLI), ({"name": "rse"}, RELATIONS), (learned, PAIRS), (projected, PAIRS)]:
        assert trained(objective, corpus, training={"freeze_encoder": True}).training.freeze_encoder
    by_relation: Json = {"relations": {"weights": {"entailment": 1.0}}}
    chosen = trained({"name": "rse"}, RELATIONS, training={"freeze_encoder": True}, view=by_relation, selection={"task": "stsb-dev"})
    assert chosen.selection is not None, "scores by relation choose one, for relations are what is trained"


def test_a_key_names_a_frozen_encoder_only_where_it_is_said() -> None:
    settings: list[Json] = [{}, {"freeze_encoder": False}, {"freeze_encoder": True}]
    plain, said, frozen = (trained(SMOOTH, NLI, training=training) for training in settings)
    assert plain.key == said.key != frozen.key
    assert "freeze_encoder" not in str(plain.canonical()) and "freeze_encoder" in str(frozen.canonical())


def grouped(section: Json) -> tuple[Train, GroupedCorpus]:
    stage = trained({"name": "supmpn"}, section)
    assert isinstance(stage.corpus, GroupedCorpus)
    return stage, stage.corpus


def test_a_grouped_corpus_and_its_columns() -> None:
    stage, corpus = grouped(groups(5, 4))
    assert (corpus.num_positives, corpus.num_columns, corpus.label) == (5, 10, "nli-inference-p5-q4")
    assert stage.objective == SupMPN(temperature=0.05)
    plan = plan_of(small_recipe(corpus=groups(3, 3, at_least=5), methods={"m": {"objective": {"name": "supmpn"}}}))
    assert set(plan.rows.values()) == {1000}, "10,000 rows, of which a premise needs ten"
    plain = grouped(groups(3, 3))[1].key
    assert grouped(groups(3, 3, fill="own_then_copies", at_least=1, seed=0))[1].key == plain, "a default has one spelling"
    for settings in ({"fill": "copies"}, {"at_least": 5}, {"seed": 1}, {"limit": 640}, {"augmentation": {"name": "word_deletion"}}):
        assert grouped(groups(3, 3, **settings))[1].key != plain


def test_augmentations_take_the_papers_shares_and_are_pinned() -> None:
    for section, fraction, revision in [
        ({"name": "word_deletion"}, 0.1, None),
        ({"name": "synonyms"}, 0.2, "sha256:2222222222222222"),
        ({"name": "synonyms", "fraction": 0.5}, 0.5, "sha256:2222222222222222"),
        ({"name": "paraphrases", "checkpoint": "owner/parrot", "revision": "abc"}, 0.5, "abc"),
    ]:
        augmentation = grouped(groups(3, 3, augmentation=section))[1].augmentation
        assert augmentation is not None and (augmentation.fraction, augmentation.source_revision) == (fraction, revision)


def test_what_a_corpus_does_not_say_is_taken_from_the_other() -> None:
    corpora: Json = {"short": {"like": "corpus", "limit": 5}, "shorter": {"like": "short", "limit_seed": 3}}
    recipe = small_recipe(corpus={"source": "nli/triplets", "limit": 100, "add_reversed": True}, corpora=corpora)
    assert [(one.limit, one.limit_seed, one.add_reversed) for one in recipe.corpora.values()] == [(5, 0, True), (5, 3, True)]  # type: ignore[attr-defined]


def test_a_part_of_the_channels_follows_objective_and_width() -> None:
    own, default = Auxiliary(channels=(8, 24)), Auxiliary()
    assert settled_view(View(channels="tags"), own, width=32, where="v").channels == (0, 8)
    assert settled_view(View(channels="words"), default, width=768, where="v").channels == (128, 768)
    assert settled_view(View(channels="words"), default, width=None, where="v").channels == "words", "a width that is not known yet"
    assert settled_view(View(channels=(0, 5)), InfoNCE(), width=32, where="v").channels == (0, 5)
    for view, objective, said in [
        (View(channels="tags"), InfoNCE(), "no channels of their own"),
        (View(channels=(0, 64)), default, "found 0 to 64"),
    ]:
        with pytest.raises(RecipeError, match=said):
            settled_view(view, objective, width=768, where="methods.tags.view")


class Adder:
    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.asked: list[tuple[int, int]] = []

    @memoized
    def add(self, one: int, *, other: int = 0) -> int:
        self.asked.append((one, other))
        if one < 0:
            raise ValueError(one)
        return self.offset + one + other


def test_an_answer_is_worked_out_once_for_each_object_and_an_error_anew() -> None:
    first, second = Adder(1), Adder(2)
    assert [first.add(1), first.add(1), first.add(1, other=3), first.add(1, other=3)] == [2, 2, 5, 5]
    assert (second.add(1), second.asked, first.asked) == (3, [(1, 0)], [(1, 0), (1, 3)])
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            second.add(-1)
    assert second.asked[1:] == [(-1, 0), (-1, 0)]
