"""The recipes at the papers' size: what they unroll to is what the papers say, number by number."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sentdist.objectives.regression import Regression
from sentdist.plan.corpora.graded import GradedCorpus
from sentdist.plan.corpora.groups import GroupedCorpus
from sentdist.plan.corpora.relations import RelationalCorpus
from sentdist.plan.objectives import terms_of, value_of
from sentdist.plan.recipe import load_recipe
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from tests.support.paper_size import paper_plan, takes
from tests.support.planning import RECIPES

NAMES = sorted(path.name for path in (RECIPES / "papers").glob("*.yaml"))
SROBERTA, BERT, LARGE = "sentence-transformers/nli-roberta-base-v2", "google-bert/bert-base-uncased", "google-bert/bert-large-uncased"
NOMIC = "nomic-ai/nomic-embed-text-v1"
ROBERTA, ROBERTA_LARGE = "FacebookAI/roberta-base", "FacebookAI/roberta-large"
PHIS = [(0.01, 0.02, 0.03, 0.04, 0.05)[:number] for number in range(1, 6)]
FIVE = {0, 1, 2, 3, 4}
# (encoder, batch, rate, epochs) of the reported trainings; seeds; columns × rows of each corpus; temperatures.
RCL = {"runs": {(SROBERTA, 64, 2e-5, 1)}, "seeds": FIVE, "corpora": {(3, 275_601)}, "temperatures": {1.0}, "tasks": 7}
RSE_RUNS = {(BERT, 512, 5e-5, 3), (LARGE, 512, 3e-5, 3), (ROBERTA, 256, 5e-5, 3), (ROBERTA_LARGE, 256, 1e-5, 3)}
RSE = {"runs": RSE_RUNS, "seeds": FIVE, "corpora": {(3, 463_023), (3, 314_023)}, "temperatures": {0.05}, "tasks": 7}
SUPMPN = {
    "runs": {(BERT, 256, 5e-5, 3), (LARGE, 200, 1e-5, 3)}, "seeds": FIVE, "temperatures": {0.05}, "tasks": 7,
    "corpora": {(11, 471_034), (11, 94_206), (3, 471_034), (3, 94_206)},  # planning's upper bounds: half of the rows, a tenth
}  # fmt: skip
REGRESSION = {"seeds": FIVE, "temperatures": set(), "tasks": 7}
STAGE_1 = {(BERT, 16, 5e-5, 1), (BERT, 16, 2e-5, 1), (ROBERTA, 16, 2e-5, 1)}
FAQ = {"runs": {(SROBERTA, 64, 2e-5, 3)}, "seeds": FIVE, "temperatures": {1.0}, "tasks": 1}
PRINTED: dict[str, dict[str, Any]] = {
    "rcl_table1.yaml": RCL,
    "rcl_table2a.yaml": FAQ | {"corpora": {(2, 2_479)}},  # three folds of five of its FAQs
    "rcl_table2b.yaml": FAQ | {"corpora": {(2, 4_270)}},
    "rcl_table3.yaml": RCL | {"runs": {(SROBERTA, 32, 2e-5, 1), (SROBERTA, 64, 2e-5, 1)}},
    "rcl_table4.yaml": RCL,
    "rcl_table5.yaml": RCL,
    "auxiliary_table1.yaml": {
        "runs": {(ROBERTA, 512, 1e-5, 1)}, "seeds": FIVE, "corpora": {(2, 1_000_000)}, "temperatures": {0.05}, "tasks": 7,
    },
    "regression_table2.yaml": REGRESSION | {"runs": STAGE_1, "corpora": {(2, 942_069)}},
    "regression_table3.yaml": REGRESSION
    | {
        "runs": {(BERT, 16, 5e-5, 1), (ROBERTA, 16, 2e-5, 1), (BERT, 32, 5e-5, 4), (ROBERTA, 32, 5e-5, 4)},
        "corpora": {(2, 942_069), (2, 10_249)},
    },
    "regression_table4.yaml": REGRESSION
    | {"runs": {(BERT, 16, 5e-5, 1), (BERT, 16, 2e-5, 1), (BERT, 32, 5e-5, 4)}, "corpora": {(2, 942_069), (2, 10_249)}, "seeds": {0}},
    "regression_table4_roberta.yaml": REGRESSION
    | {"runs": {(ROBERTA, 16, 2e-5, 1), (ROBERTA, 32, 5e-5, 4)}, "corpora": {(2, 942_069), (2, 10_249)}, "seeds": {0}},
    "regression_table5.yaml": REGRESSION | {"runs": {(BERT, 16, 5e-5, 1), (ROBERTA, 16, 2e-5, 1)}, "corpora": {(2, 942_069)}},
    "regression_emnlp.yaml": REGRESSION | {"runs": {(NOMIC, 32, 5e-5, 4)}, "corpora": {(2, 10_249)}},
    "rse_table1.yaml": {
        "runs": {(BERT, 512, 5e-5, 3)}, "seeds": FIVE, "temperatures": {0.05}, "tasks": 7,
        # RSE's two, all five, and each: 314 K, 149 K, 330 K of ParaNMT, 318 K captions' pairs, QNLI, a million sentences
        "corpora": {(3, n) for n in (463_023, 1_215_596, 314_023, 149_000, 330_000, 317_830, 104_743, 1_000_000)},
    },
    "rse_table2.yaml": RSE,
    "rse_table3.yaml": RSE | {"tasks": 1},
    "rse_table4.yaml": RSE
    | {"runs": {(BERT, 512, 5e-5, 3)}, "seeds": {0}, "corpora": {(3, 463_023)}, "temperatures": {0.001, 0.01, 0.05, 0.1, 1.0}},
    "rse_table5.yaml": {
        "runs": {(BERT, 512, 5e-5, 3), *((name, 512, 1e-5, 3) for name in (BERT, LARGE, ROBERTA, ROBERTA_LARGE))}, "seeds": FIVE,
        # all of entailment (planning: 314,023), 149,000 duplicates, 104,743 of QNLI at most, 150,000 of each of the others
        "corpora": {(3, 314_023), (3, 314_023 + 149_000 + 3 * 150_000 + 104_743)}, "temperatures": {0.05}, "tasks": 8,
    },
    "rse_table6.yaml": RSE
    | {"runs": {(BERT, 128, 1e-5, 3), *((name, 256, 1e-5, 3) for name in (LARGE, ROBERTA, ROBERTA_LARGE))}, "corpora": {(3, 464_023)}},
    "supmpn_table2.yaml": SUPMPN,
    "supmpn_table3.yaml": SUPMPN,
    "supmpn_tablea1.yaml": SUPMPN | {"runs": {(BERT, 256, 5e-5, 3)}, "corpora": {(11, 471_034)}, "seeds": {0}},
}  # fmt: skip


def trainings(plan: Plan) -> list[Train]:
    """Of the rows that a report has."""
    return list(
        {trial.scores.encoder.key: trial.scores.encoder for trial in plan.trials if isinstance(trial.scores.encoder, Train)}.values()
    )


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: paper_plan(name) for name in NAMES}


def test_every_recipe_of_a_paper_is_compared() -> None:
    assert set(PRINTED) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_unrolls_to_the_papers_numbers(name: str, plans: dict[str, Plan]) -> None:
    plan, printed = plans[name], PRINTED[name]
    found = trainings(plan)
    runs = {(one.encoder.checkpoint, one.training.batch_size, one.training.learning_rate, one.training.epochs) for one in found}
    assert runs == printed["runs"]
    assert {one.seed for one in found} == printed["seeds"]
    assert {(one.corpus.num_columns, plan.rows[one.corpus.key]) for one in found} == printed["corpora"]
    temperatures = {value_of(term, "temperature") for one in found for term in terms_of(one.objective)} - {None}
    assert temperatures == printed["temperatures"]
    assert {len(trial.scores.tasks) for trial in plan.trials} == {printed["tasks"]}
    assert all(one.selection is not None for one in found if one.stopping is None)


@pytest.mark.parametrize("name", NAMES)
def test_the_header_tells_the_cost_and_sets_no_size(name: str, plans: dict[str, Plan]) -> None:
    header = (RECIPES / "papers" / name).read_text().partition("\nname:")[0]
    assert f"#   takes       {takes(plans[name])}" in header.splitlines()
    assert re.findall(r"--set (\S+?)=", header) in ([], ["encoder.revision"])
    pinned = [one.encoder for one in trainings(plans[name]) if one.encoder.checkpoint != SROBERTA]
    assert all(re.fullmatch("[0-9a-f]{40}", encoder.revision) for encoder in pinned)


def test_rcl_has_the_papers_grid(plans: dict[str, Plan]) -> None:
    for name in ("rcl_table3.yaml", "rcl_table4.yaml"):
        rcl = [one for one in trainings(plans[name]) if one.objective.name == "rcl"]
        sets = {(one.training.batch_size, tuple(bank.encoder.objective.phi for bank in one.banks)) for one in rcl}  # type: ignore[union-attr]
        assert sets == {(batch, phis) for batch in ((32, 64) if "3" in name else (64,)) for phis in PHIS}
    dropouts = {(one.regularizers.attention_dropout, one.regularizers.drophead) for one in trainings(plans["rcl_table1.yaml"])}
    assert dropouts == {(None, 0.0), *((p, 0.0) for p in (0.1, 0.2, 0.3)), *((None, p) for p in (0.1, 0.2, 0.3))}
    assert any(trial.method == "base" for trial in plans["rcl_table4.yaml"].trials), "row 0 of Table 4 is the checkpoint itself"


def test_the_faq_tables_have_the_grid_over_folds(plans: dict[str, Plan]) -> None:
    for name, source in (("rcl_table2a.yaml", "retrieval/faqir"), ("rcl_table2b.yaml", "retrieval/cough")):
        plan = plans[name]
        rcl = [one for one in trainings(plan) if one.objective.name == "rcl"]
        sets = {(one.training.batch_size, tuple(bank.encoder.objective.phi for bank in one.banks)) for one in rcl}  # type: ignore[union-attr]
        assert sets == {(64, phis) for phis in PHIS} and len(rcl) == len(sets) * 25
        assert all(one.start is None and bank.encoder.start is not None for one in rcl for bank in one.banks)
        assert {trial.fold for trial in plan.trials} == set(range(5))
        assert {(task.source, task.split, task.fold_role) for trial in plan.trials for task in trial.scores.tasks} == {
            (source, "questions", "test")
        }  # type: ignore[union-attr]


def test_useb_and_transfer_are_chosen_as_released(plans: dict[str, Plan]) -> None:
    selection = trainings(plans["rse_table5.yaml"])[-1].selection
    assert selection is not None and selection.parts == (1, 1, 2, 4) and [task.split for task in selection.tasks[:2]] == ["dev", "valid"]
    assert selection.view.relations is not None and selection.view.relations.combine == "best"
    transfer = {one.selection.name for one in trainings(plans["rse_table6.yaml"]) if one.selection is not None}
    assert transfer == {"mr-dev+cr-dev+subj-dev+mpqa-dev+sst2-dev+trec-dev+mrpc-dev"}
    assert {one.encoder.pooling for one in trainings(plans["rse_table6.yaml"])} == {"cls_last_five"}


def test_regression_has_the_papers_slopes_and_thresholds(plans: dict[str, Plan]) -> None:
    def values(name: str) -> set[tuple[object, ...]]:
        found = [one for one in trainings(plans[name]) if one.objective.slope is not None]  # type: ignore[union-attr]
        return {
            (one.encoder.checkpoint, one.objective.loss, one.objective.slope, one.objective.threshold, one.start is not None)  # type: ignore[union-attr]
            for one in found
        }

    assert values("regression_table2.yaml") == {
        (BERT, "translated_relu", 2.5, 0.25, False), (BERT, "smooth_k2", 2.0, 0.25, False), (ROBERTA, "translated_relu", 1.0, 0.25, False),
        (ROBERTA, "smooth_k2", 3.0, 0.25, False),
    }  # fmt: skip
    assert {one for one in values("regression_table3.yaml") if one[-1]} == {
        (BERT, "smooth_k2", 4.0, 0.25, True), (ROBERTA, "smooth_k2", 3.0, 0.25, True),
    }  # fmt: skip
    table4 = {(loss, k, x0, later) for _, loss, k, x0, later in values("regression_table4.yaml")}
    printed = {("translated_relu", k, 0.25, False) for k in (1.5, 2.0, 2.5)} | {("smooth_k2", k, 0.25, False) for k in (2.0, 2.5, 3.0)}
    printed |= {("smooth_k2", k, x0, True) for k, x0 in ((4.0, 0.2), (3.5, 0.25), (4.0, 0.3), (4.0, 0.25))}
    assert printed <= table4
    roberta = {(loss, k, x0, later) for _, loss, k, x0, later in values("regression_table4_roberta.yaml")}
    printed = {("translated_relu", k, 0.25, False) for k in (1.0, 1.5, 2.0)}
    printed |= {("smooth_k2", k, x0, False) for k, x0 in ((2.5, 0.25), (3.0, 0.2), (3.0, 0.25))}
    printed |= {("smooth_k2", k, x0, True) for k, x0 in ((4.0, 0.3), (3.5, 0.25), (3.5, 0.3), (3.0, 0.25))}
    assert printed <= roberta
    heads = {(one.encoder.checkpoint, value_of(one.objective, "features")) for one in trainings(plans["regression_table5.yaml"])}
    assert heads == {(encoder, features) for encoder in (BERT, ROBERTA) for features in ("uv_diff", "uv", "diff")}
    whole = {one.key for one in trainings(plans["regression_table2.yaml"])} & {
        one.key for one in trainings(plans["regression_table5.yaml"])
    }
    assert len(whole) == 2 * len(FIVE), "the full heads are Table 2's Smooth K2"
    clips = {one.training.clip_norm for one in trainings(plans["regression_table2.yaml"]) if value_of(one.objective, "slope") == 3.0}  # type: ignore[arg-type]
    assert clips == {2.0}
    for plan in (plans["regression_table2.yaml"], plans["regression_table4.yaml"]):
        assert {(one.training.max_length, one.training.layer_decay) for one in trainings(plan)} == {(256, 0.95)}


def test_the_repository_s_second_table_trains_the_head_first(plans: dict[str, Plan]) -> None:
    """As train-jina-nomic.py and tune-jina-nomic.py of the released code have it for Nomic."""
    plan = plans["regression_emnlp.yaml"]
    assert {trial.method for trial in plan.trials} == {"base", "ours"}
    for second in trainings(plan):
        first = second.start
        assert first is not None and first.start is None and first.selection is None and second.selection is not None
        assert first.encoder == second.encoder and first.encoder.pooling == "mean"
        assert (first.training.freeze_encoder, second.training.freeze_encoder) == (True, False)
        assert (first.training.epochs, first.training.batch_size, plan.rows[first.corpus.key]) == (1, 32, 942_069)
        for one, slope, threshold in ((first, 2.0, 0.25), (second, 3.0, 0.2)):
            objective = one.objective
            assert isinstance(objective, Regression)
            assert (objective.loss, objective.slope, objective.threshold, objective.boundary) == (
                "smooth_k2",
                slope,
                threshold,
                "left_mask",
            )
            training = one.training
            assert (training.clip_norm, training.warmup_fraction, training.schedule_stretch, training.max_length) == (10.0, 0.2, 2.0, 256)
        assert isinstance(second.objective, Regression) and second.objective.keep_head
        assert (first.training.layer_decay, second.training.layer_decay) == (1.0, 0.95)
        assert isinstance(second.corpus, GradedCorpus) and len(second.corpus.without) == 7


def test_corpora_are_those_of_the_papers(plans: dict[str, Plan]) -> None:
    table1 = {tuple(one.corpus.relation_names): one for one in trainings(plans["rse_table1.yaml"]) if one.objective.name == "info_nce"}
    assert all(isinstance(one.corpus, RelationalCorpus) for one in table1.values())
    five = ("entailment", "duplicate-question", "paraphrase", "same-caption", "qa-entailment")
    assert five in table1 and {names for names in table1 if len(names) == 1} == {(name,) for name in (*five, "same-sentence")}
    caps = {part.name: part.cap for one in table1.values() for part in one.corpus.relations}  # type: ignore[attr-defined]
    assert caps == {name: 330_000 for name in five} | {"same-sentence": 1_000_000}
    with_negatives = {one.corpus.relation_names for one in trainings(plans["rse_table1.yaml"]) if value_of(one.objective, "hard_negatives")}
    assert with_negatives == {("entailment",), ("entailment", "duplicate-question")}, "supervised SimCSE and RSE alone have hard negatives"
    weights = {
        tuple(trial.scores.view.relations.by_name.items()) for trial in plans["rse_table2.yaml"].trials if trial.scores.view.relations
    }
    assert weights == {(("duplicate-question", 0.5), ("entailment", 1.0))}
    groups = [one.corpus for one in trainings(plans["supmpn_table2.yaml"])]
    assert {(one.num_positives, one.num_negatives, one.at_least) for one in groups if isinstance(one, GroupedCorpus)} == {
        (5, 5, 1), (5, 5, 5), (1, 1, 1), (1, 1, 5),
    }  # fmt: skip
    graded = [one.corpus for one in trainings(plans["regression_table3.yaml"])]
    assert {len(one.without) for one in graded if isinstance(one, GradedCorpus)} == {0, 7}


def test_views_follow_the_objective(plans: dict[str, Plan]) -> None:
    views = {trial.method: trial.scores.view.channels for trial in plans["auxiliary_table1.yaml"].trials}
    assert (views["tag_channels"], views["word_channels"]) == ("tags", "words")
    channels = {value_of(term, "channels") for one in trainings(plans["auxiliary_table1.yaml"]) for term in terms_of(one.objective)} - {
        None
    }
    assert channels == {(128, 640)}


def test_a_change_of_the_corpus_changes_those_that_are_like_it() -> None:
    recipe = load_recipe(RECIPES / "papers/rse_table1.yaml", ["corpus.cap=1000"])
    assert {section.cap for section in (recipe.corpus, *recipe.corpora.values())} == {1000}  # type: ignore[attr-defined]
