"""What is asked of stages is known of every kind, or refused: no kind is taken for another."""

from __future__ import annotations

import pytest

from sentdist.recipe.stages import STAGES
from tests.support.every_stage import one_of_each, plan_of_all_kinds

NOT_PLANNED = {"rung", "encoded", "overlap", "tokens"}


PLANNED = sorted(set(STAGES) - NOT_PLANNED)


UNKNOWN = "not implemented"


def test_forecasts_know_every_kind_that_a_plan_has() -> None:
    plan = plan_of_all_kinds()
    for kind in PLANNED:
        stage, computes = one_of_each()[kind], kind in ("train", "bank", "scores")
        assert (stage.num_sentences(plan.rows) > 0) == (kind == "targets" or computes), kind


def test_forecasts_refuse_what_no_plan_has() -> None:
    assert set(one_of_each()) == set(STAGES)
    for kind in NOT_PLANNED:
        stage = one_of_each()[kind]
        with pytest.raises(TypeError, match=UNKNOWN):
            stage.num_sentences(plan_of_all_kinds().rows)


def test_precision_is_that_of_every_kind_that_has_one() -> None:
    of_kind = {kind: stage.precision_used for kind, stage in one_of_each().items()}
    assert {kind for kind, precision in of_kind.items() if precision} == {"train", "rung", "bank", "scores", "encoded"}
