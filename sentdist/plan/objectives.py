"""What a recipe can ask an encoder to minimize: one value for each method, and their weighted sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.plan.stage import Frozen

Temperature = Annotated[float, Field(gt=0.0)]
Weight = Annotated[float, Field(ge=0.0)]


class InfoNCE(Frozen):
    """Eq. 1 of RCL (arXiv 2209.13241): cross-entropy over the positives (and hard negatives) of the whole batch."""

    name: Literal["info_nce"] = "info_nce"
    temperature: Temperature = 1.0
    hard_negatives: bool = True


class Entropy(Frozen):
    """Eq. 2: Eq. 1 plus phi times the entropy of the scores of all other candidates; phi of either sign."""

    name: Literal["entropy"] = "entropy"
    phi: float
    temperature: Temperature = 1.0
    hard_negatives: bool = True


class Regularized(Frozen):
    """Eq. 3: Eq. 1 plus two contrastive regulators for every entropy encoder in the bank."""

    name: Literal["rcl"] = "rcl"
    temperature: Temperature = 1.0
    hard_negatives: bool = True
    regulator_temperature: Temperature | None = None  # None: that of the main term, as printed
    regulator_weight: Weight = 1.0


class Regulators(Frozen):
    """The regulators of Eq. 3 alone: a term that can stand beside any other objective."""

    name: Literal["regulators"] = "regulators"
    temperature: Temperature = 1.0


class SupMPN(Frozen):
    """Several positives and negatives an anchor (Appl. Sci. 2022, 12(19) 9659, Eq. 4); with phi, an entropy encoder of this objective."""

    name: Literal["supmpn"] = "supmpn"
    temperature: Temperature = 0.05
    masked: Literal["excluded", "zero"] = "excluded"  # an anchor's other positives: left out as printed, or logits of 0 as released
    phi: float = 0.0


class Relational(Frozen):
    """Relational sentence embeddings (RSE, arXiv 2212.08802, Eq. 1 and 2): the anchor is shifted by its relation's embedding."""

    later_fields: ClassVar[tuple[str, ...]] = ("keep_relations",)

    name: Literal["rse"] = "rse"
    temperature: Temperature = 0.05
    hard_negatives: bool = True
    relation_learning_rate: Annotated[float, Field(gt=0.0)] = 1e-2
    phi: float = 0.0
    keep_relations: bool = False  # go on with the vectors of the encoder that training starts from, relation by relation; False: new ones


class Regression(Frozen):
    """STS as regression on graded pairs (arXiv 2406.05326): Translated ReLU, Smooth K2, and their baselines."""

    name: Literal["regression"] = "regression"
    loss: Literal["translated_relu", "smooth_k2", "l1", "mse", "cross_entropy"] = "smooth_k2"
    slope: Annotated[float, Field(gt=0.0)] | None = None  # k; of translated_relu and smooth_k2, which need both
    threshold: Annotated[float, Field(ge=0.0)] | None = None  # x0, at most half the spacing of the labels
    boundary: Literal["none", "left_mask", "clamp", "one_sided"] | None = None  # None: one_sided; cross_entropy has none
    features: Literal["uv", "diff", "uv_diff"] = "uv_diff"
    label_range: tuple[float, float] | None = None  # None: that of the corpus
    spacing: Annotated[float, Field(gt=0.0)] | None = None  # None: that of the corpus, which may have none
    head_learning_rate: Annotated[float, Field(gt=0.0)] | None = None  # None: the encoder's
    keep_head: bool = False  # go on with the head of the encoder that training starts from; False: a new one

    @property
    def has_buffer(self) -> bool:
        """Whether its loss has a slope and a zone without gradient."""
        return self.loss in ("translated_relu", "smooth_k2")

    @model_validator(mode="after")
    def _values_belong_to_the_loss(self) -> Regression:
        for field, value in (("slope", self.slope), ("threshold", self.threshold)):
            if self.has_buffer and value is None:
                raise ValueError(f"{field}: found nothing; {self.loss} needs one (Smooth K2 of the paper: slope 2, threshold 0.25)")
            if not self.has_buffer and value is not None:
                raise ValueError(f"{field}: has no effect with {self.loss}; leave it out")
        if self.loss == "cross_entropy" and self.boundary not in (None, "none"):
            raise ValueError(f"boundary: found {self.boundary}; cross_entropy predicts classes, which have none; leave it out")
        if self.label_range is not None and self.label_range[0] >= self.label_range[1]:
            raise ValueError(f"label_range: found {list(self.label_range)}; expected two numbers, the lower first")
        return self


class Auxiliary(Frozen):
    """Shares of tags and of words, each predicted from channels of its own, with an adversary on the other's channels (after ACL P19-1041).

    The weights are ratios, those of John et al.: a term of weight 0.01 gives them the size of SimCSE's masked language modelling.
    """

    name: Literal["auxiliary"] = "auxiliary"
    channels: tuple[int, int] | None = None  # of tags, of words; they add up to the encoder's width. None: 128 : 640 of it
    pos_weight: Weight = 10.0
    bow_weight: Weight = 3.0
    classifier_learning_rate: Annotated[float, Field(gt=0.0)] | None = None  # None: the encoder's
    adversary: Literal["none", "entropy", "reversal"] = "entropy"
    pos_adversary: Weight = 1.0
    bow_adversary: Weight = 0.03
    adversary_learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 0  # in which the adversaries' weights grow from 0

    @model_validator(mode="after")
    def _adversaries_are_used(self) -> Auxiliary:
        fields = type(self).model_fields
        own = ("pos_adversary", "bow_adversary", "adversary_learning_rate", "warmup_steps")
        changed = [name for name in own if getattr(self, name) != fields[name].default]
        if self.adversary == "none" and changed:
            raise ValueError(f"{changed[0]} has no effect when adversary is 'none'; leave it out")
        if self.adversary != "none" and self.pos_adversary == self.bow_adversary == 0:
            raise ValueError("found no weight for either adversary; expected one above 0, or adversary: none")
        return self


class MaskedLM(Frozen):
    """Masked language modelling (Devlin et al. 2019): a term of SimCSE, or pre-training on its own."""

    name: Literal["mlm"] = "mlm"
    mask_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15


Single = Annotated[
    InfoNCE | Entropy | Regularized | Regulators | SupMPN | Relational | Regression | Auxiliary | MaskedLM, Field(discriminator="name")
]


class Term(Frozen):
    """One summand."""

    weight: Weight = 1.0
    projected: bool = False  # this term sees tanh(W h + b), the others and the evaluation h: SimCSE's layer that is dropped at test
    objective: Single


class Sum(Frozen):
    """Objectives over one batch, added up with weights."""

    name: Literal["sum"] = "sum"
    terms: Annotated[tuple[Term, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _terms_differ(self) -> Sum:
        names = [term.objective.name for term in self.terms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"terms: found {', '.join(twice)} twice; expected each objective once, with one weight")
        choices = {
            objective.hard_negatives for objective in (term.objective for term in self.terms) if hasattr(objective, "hard_negatives")
        }
        if len(choices) > 1:
            raise ValueError("terms: found hard_negatives both true and false; expected one choice, for all terms see the same sentences")
        return self


Objective = Annotated[
    InfoNCE | Entropy | Regularized | Regulators | SupMPN | Relational | Regression | Auxiliary | MaskedLM | Sum,
    Field(discriminator="name"),
]

OBJECTIVE_NAMES = ("info_nce", "entropy", "rcl", "regulators", "supmpn", "rse", "regression", "auxiliary", "mlm", "sum")


def terms_of(objective: Objective) -> Iterator[Single]:
    """The summands of an objective; itself where it is no sum."""
    if isinstance(objective, Sum):
        yield from (term.objective for term in objective.terms)
    else:
        yield objective


def uses_bank(objective: Objective) -> bool:
    """Whether augmented embeddings enter."""
    return any(isinstance(term, Regularized | Regulators) for term in terms_of(objective))


def uses_targets(objective: Objective) -> bool:
    """Whether shares of tags and words enter."""
    return any(isinstance(term, Auxiliary) for term in terms_of(objective))


def uses_hard_negatives(objective: Objective) -> bool:
    """Whether a corpus's negative columns take part."""
    return any(getattr(term, "hard_negatives", isinstance(term, SupMPN)) for term in terms_of(objective))


def phi_of(objective: Objective) -> float | None:
    """The weight of the entropy term; None where an objective has none."""
    return next((term.phi for term in terms_of(objective) if isinstance(term, Entropy | SupMPN | Relational)), None)


def with_phi(objective: Objective, phi: float) -> Objective:
    """The same objective with another weight of its entropy term."""
    if isinstance(objective, Sum):
        terms = tuple(term.model_copy(update={"objective": with_phi(term.objective, phi)}) for term in objective.terms)
        return objective.model_copy(update={"terms": terms})
    return (
        objective.model_validate(objective.model_dump() | {"phi": phi})
        if isinstance(objective, Entropy | SupMPN | Relational)
        else objective
    )
