"""From an objective's values in a recipe to the loss that the loop calls."""

from __future__ import annotations

from sentdist.learning.objective import Objective
from sentdist.learning.projected import Projected
from sentdist.learning.weighted_sum import WeightedSum
from sentdist.objectives.objective_spec import LossInputs
from sentdist.plan import objectives as plan


def make_objective(objective: plan.AnyObjective, inputs: LossInputs) -> Objective:
    """The loss behind an objective's values; what it brings of parameters starts from torch's generator."""
    if isinstance(objective, plan.Sum):
        return WeightedSum([(term.weight, _term(term, inputs)) for term in objective.terms])
    return objective.make_loss(inputs)


def _term(term: plan.Term, inputs: LossInputs) -> Objective:
    objective = make_objective(term.objective, inputs)
    if not term.projected:
        return objective
    encoder = inputs.needed_encoder("sum")
    return Projected(objective, width=encoder.width, initializer_range=encoder.initializer_range)
