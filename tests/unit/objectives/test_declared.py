"""What is known of an objective is declared with it: no other part of the package asks which one it is."""

from __future__ import annotations

from typing import ClassVar, Literal

from sentdist.objectives.mlm import MaskedLM
from sentdist.objectives.rcl import RCL
from sentdist.objectives.regulators import Regulators
from sentdist.plan.objectives import Sum, Term
from sentdist.plan.stages import Train
from sentdist.report.cell_facts import CellFacts
from tests.support.planning import plan_of, small_recipe


def test_a_report_counts_what_an_objective_declares_whatever_its_name() -> None:
    class Held(RCL):
        name: Literal["held"] = "held"  # type: ignore[assignment]
        regulators_per_bank: ClassVar[int] = 3

    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train) and len(stage.banks) == 2)
    facts = CellFacts(train=train.model_copy(update={"objective": Held()}))
    assert (facts.num_regulators, facts.without_bank) == (6, "info_nce")
    summed = Sum(terms=(Term(objective=MaskedLM()), Term(objective=Regulators())))
    assert CellFacts(train=train.model_copy(update={"objective": summed})).num_regulators == 4
    plain = CellFacts(train=train.model_copy(update={"objective": MaskedLM()}))
    assert (plain.num_regulators, plain.without_bank) == (0, None)
