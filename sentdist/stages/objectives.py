"""From an objective's values in a recipe to the loss that the loop calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from torch import nn

from sentdist.learning.bank import Bank
from sentdist.learning.encoder import SentenceEncoder
from sentdist.learning.objectives.auxiliary import Auxiliary, AuxiliaryWeights
from sentdist.learning.objectives.channels import Channels
from sentdist.learning.objectives.entropy import EntropyInfoNCE
from sentdist.learning.objectives.info_nce import InfoNCE
from sentdist.learning.objectives.masked_lm import MaskedLM
from sentdist.learning.objectives.objective import Objective
from sentdist.learning.objectives.opponents import Opponents
from sentdist.learning.objectives.projected import Projected
from sentdist.learning.objectives.rcl import RCL, Regulators
from sentdist.learning.objectives.regression import LabelGrid, Regression
from sentdist.learning.objectives.relational import Relational
from sentdist.learning.objectives.supmpn import SupMPN
from sentdist.learning.objectives.weighted_sum import WeightedSum
from sentdist.learning.targets import Targets
from sentdist.plan import objectives as plan
from sentdist.plan.corpora import AnyCorpus, RelationalCorpus
from sentdist.plan.objectives import uses_hard_negatives
from sentdist.plan.stages import Train


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What an objective may be made with, beside its values: the encoder it trains, the rows, the bank, the targets.

    precision, micro_batch: for an objective that encodes by itself.
    """

    encoder: SentenceEncoder
    corpus: AnyCorpus
    bank: Bank | None
    targets: Targets | None = None
    precision: str = "fp32"
    micro_batch: int | None = None


def make_objective(objective: plan.Objective, given: Ingredients) -> Objective:
    """The loss behind an objective's values; what it brings of parameters starts from torch's generator."""
    match objective:
        case plan.InfoNCE():
            return InfoNCE(temperature=objective.temperature)
        case plan.Entropy():
            return EntropyInfoNCE(phi=objective.phi, temperature=objective.temperature)
        case plan.Regularized():
            assert given.bank is not None, "the plan gives every rcl a bank"
            return RCL(
                bank=given.bank,
                temperature=objective.temperature,
                regulator_temperature=objective.regulator_temperature,
                regulator_weight=objective.regulator_weight,
            )
        case plan.Regulators():
            assert given.bank is not None, "the plan gives all regulators a bank"
            return Regulators(bank=given.bank, temperature=objective.temperature)
        case plan.Regression():
            return _regression(objective, given)
        case plan.SupMPN():
            return SupMPN(temperature=objective.temperature, masked=objective.masked, phi=objective.phi)
        case plan.Auxiliary():
            return _auxiliary(objective, given)
        case plan.MaskedLM():
            return MaskedLM(given.encoder, fraction=objective.mask_fraction, precision=given.precision, micro_batch=given.micro_batch)
        case plan.Relational():
            assert isinstance(given.corpus, RelationalCorpus), "the plan gives rse a corpus with relations"
            return Relational(
                num_relations=len(given.corpus.relation_names),
                width=given.encoder.width,
                temperature=objective.temperature,
                phi=objective.phi,
                learning_rate=objective.relation_learning_rate,
            )
        case plan.Sum():
            return WeightedSum([(term.weight, _term(term, given)) for term in objective.terms])
    assert_never(objective)


def _regression(objective: plan.Regression, given: Ingredients) -> Regression:
    assert objective.label_range is not None and objective.boundary is not None, "the plan settles them"
    low, high = objective.label_range
    return Regression(
        width=given.encoder.width,
        labels=LabelGrid(low=low, high=high, spacing=objective.spacing),
        loss=objective.loss,
        slope=objective.slope,
        threshold=objective.threshold,
        boundary=objective.boundary,
        features=objective.features,
        learning_rate=objective.head_learning_rate,
    )


def _auxiliary(objective: plan.Auxiliary, given: Ingredients) -> Auxiliary:
    assert given.targets is not None, "the plan gives every auxiliary its targets"
    channels = Channels.of(given.encoder.width, objective.channels)
    opponents = (
        None
        if objective.adversary == "none"
        else Opponents(channels=channels, targets=given.targets, learning_rate=objective.adversary_learning_rate)
    )
    return Auxiliary(
        channels=channels,
        targets=given.targets,
        weights=AuxiliaryWeights(
            pos=objective.pos_weight,
            bow=objective.bow_weight,
            adversary_pos=objective.pos_adversary,
            adversary_bow=objective.bow_adversary,
        ),
        opponents=opponents,
        form="entropy" if objective.adversary == "none" else objective.adversary,
        warmup_steps=objective.warmup_steps,
        learning_rate=objective.classifier_learning_rate,
    )


def _term(term: plan.Term, given: Ingredients) -> Objective:
    objective = make_objective(term.objective, given)
    if not term.projected:
        return objective
    return Projected(objective, width=given.encoder.width, initializer_range=given.encoder.model.config.initializer_range)


def opponents_of(objective: Objective) -> Opponents | None:
    """The adversaries that an objective, or a term of it, plays against; None where there are none."""
    modules = objective.modules() if isinstance(objective, nn.Module) else ()
    return next((module.opponents for module in modules if isinstance(module, Auxiliary)), None)


def num_columns(stage: Train) -> int:
    """Columns that take part: hard negatives can be left out of a corpus that has them."""
    corpus = stage.corpus
    return corpus.num_columns if uses_hard_negatives(stage.objective) else min(corpus.num_columns, 1 + corpus.num_positives)
