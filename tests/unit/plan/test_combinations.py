"""Methods together: what is refused while planning and why, what is shared, and that the combinations train."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.objectives import Sum
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from tests.support.planning import plan_of, small_recipe

GRADED: Json = {"kind": "graded", "parts": [{"source": "sts/stsb", "scale": "zero_to_five"}]}
GROUPS: Json = {"kind": "groups", "parts": [{"source": "nli/snli"}], "num_positives": 2, "num_negatives": 2}
ENTROPY: Json = {"objective": {"name": "entropy", "phi": 0.01}, "select": False, "reported": False}


def _sum(*terms: Json) -> Json:
    return {"name": "sum", "terms": [{"objective": term} for term in terms]}


def test_an_objective_that_has_no_meaning_on_its_corpus_is_refused() -> None:
    for corpus, objective, message in [
        (GRADED, _sum({"name": "regression", "loss": "mse"}, {"name": "supmpn"}), "most are no positives"),
        (None, {"name": "regression", "loss": "mse"}, "rows without labels"),
        (GROUPS, {"name": "rse"}, "rows of no relation"),
        (GROUPS, {"name": "info_nce"}, "2 positives an anchor"),
        ({**GROUPS, "num_positives": 1}, {"name": "triplet"}, "2 hard negatives of an anchor; expected 1. Set num_negatives: 1"),
        ({"source": "nli/pairs", "columns": ["one", "two"]}, {"name": "supmpn"}, "no hard negatives"),
    ]:
        method: dict[str, Json] = {"objective": objective} | ({} if corpus is None else {"corpus": "other"})
        corpora: Json = {} if corpus is None else {"other": corpus}
        with pytest.raises(RecipeError, match=message):
            plan_of(small_recipe(corpora=corpora, methods={"base": {}, "new": method}))


def test_a_sum_that_makes_no_sense_is_refused() -> None:
    for method, message in [
        ({"objective": {"name": "regulators"}, "bank": "entropy"}, "regulators alone"),
        ({"objective": _sum({"name": "info_nce"}, {"name": "regulators"})}, "methods.new.bank: found nothing"),
        ({"objective": _sum({"name": "info_nce"})}, "at least 2"),
        ({"objective": _sum({"name": "info_nce"}, {"name": "info_nce"})}, "info_nce twice"),
        ({"objective": _sum({"name": "info_nce"}, {"name": "entropy", "phi": 0.1, "hard_negatives": False})}, "hard_negatives both"),
    ]:
        with pytest.raises(RecipeError, match=message.replace(".", r"\.")):
            small_recipe(corpora={"groups": GROUPS}, methods={"base": {}, "entropy": ENTROPY, "new": method})


def test_entropy_encoders_of_a_sum_differ_in_phi_alone() -> None:
    inner: Json = _sum({"name": "entropy", "phi": 0.5}, {"name": "mlm"})
    methods: Json = {
        "entropy": {"objective": inner, "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [-1.0, 1.0]},
    }
    plan = plan_of(small_recipe(methods=methods))
    (final,) = (trial.scores.encoder for trial in plan.trials)
    assert isinstance(final, Train)
    objectives = [bank.encoder.objective for bank in final.banks]
    assert all(isinstance(objective, Sum) for objective in objectives)
    assert [objective.terms[0].objective.phi for objective in objectives if isinstance(objective, Sum)] == [-1.0, 1.0]  # type: ignore[attr-defined]


def test_auxiliary_tasks_read_what_is_evaluated() -> None:
    """Not a layer that is dropped at test: their adversaries would learn from other embeddings than the encoder evades."""
    terms: Json = [{"objective": {"name": "info_nce"}}, {"projected": True, "objective": {"name": "auxiliary"}}]
    with pytest.raises(ValueError, match="found projected: true for auxiliary"):
        Sum.model_validate({"terms": terms})
