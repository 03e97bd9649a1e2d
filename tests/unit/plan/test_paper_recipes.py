"""The recipes at the papers' size: what they unroll to is what the papers say, number by number."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.plan.objectives import terms_of, value_of
from sentdist.plan.recipe import load_recipe
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from tests.support.paper_size import paper_plan
from tests.support.planning import RECIPES

NAMES = sorted(path.name for path in (RECIPES / "papers").glob("*.yaml"))
SROBERTA, BERT, LARGE = "sentence-transformers/nli-roberta-base-v2", "google-bert/bert-base-uncased", "google-bert/bert-large-uncased"
NOMIC = "nomic-ai/nomic-embed-text-v1"
ROBERTA, ROBERTA_LARGE = "FacebookAI/roberta-base", "FacebookAI/roberta-large"
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


def test_a_recipe_unrolls_to_the_papers_numbers(plans: dict[str, Plan]) -> None:
    for name in NAMES:
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


def test_a_change_of_the_corpus_changes_those_that_are_like_it() -> None:
    recipe = load_recipe(RECIPES / "papers/rse_table1.yaml", ["corpus.cap=1000"])
    assert {section.cap for section in (recipe.corpus, *recipe.corpora.values())} == {1000}  # type: ignore[attr-defined]
