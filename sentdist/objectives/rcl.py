"""Regularized contrastive learning, and its regulators alone; the equations stand in learning/objectives/rcl.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Needs, ObjectiveSpec, Rows, Temperature, Weight

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective

PAPER = Citation(
    key="rcl",
    kind="misc",
    authors=("Mingxi Tan", "Alexis Rolland", "Andong Tian"),
    title="Regularized Contrastive Learning of Semantic Search",
    where="arXiv 2209.13241",
    year=2022,
    url="https://arxiv.org/abs/2209.13241",
    role="the method: Eq. 1-3, Algorithm 1",
)


class Regularized(ObjectiveSpec):
    """Eq. 3: Eq. 1 plus two contrastive regulators for every entropy encoder in the bank."""

    title: ClassVar[str] = "regularized contrastive learning (RCL Eq. 3, arXiv 2209.13241)"
    about: ClassVar[str] = "an encoder held near the banks of N entropy encoders: RCL's Eq. 3"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused", bank=True)
    equation: ClassVar[str] = "sentdist/learning/objectives/rcl.py"

    name: Literal["rcl"] = "rcl"
    temperature: Temperature = 1.0
    hard_negatives: bool = True
    regulator_temperature: Temperature | None = None  # None: that of the main term, as printed
    regulator_weight: Weight = 1.0

    def settled(self, rows: Rows) -> Self:
        return self if self.regulator_temperature is not None else self.model_copy(update={"regulator_temperature": self.temperature})

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.rcl import RCL

        assert given.bank is not None, "the plan gives every rcl a bank"
        return RCL(
            bank=given.bank,
            temperature=self.temperature,
            regulator_temperature=self.regulator_temperature,
            regulator_weight=self.regulator_weight,
        )


class Regulators(ObjectiveSpec):
    """The regulators of Eq. 3 alone: a term that can stand beside any other objective."""

    title: ClassVar[str] = "contrastive regulators (of RCL Eq. 3, arXiv 2209.13241)"
    about: ClassVar[str] = "the regulators of RCL's Eq. 3 alone, to stand under any objective"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=None, labels="ignored", bank=True, alone=False)
    equation: ClassVar[str] = "sentdist/learning/objectives/rcl.py"

    name: Literal["regulators"] = "regulators"
    temperature: Temperature = 1.0

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.rcl import Regulators as Loss

        assert given.bank is not None, "the plan gives all regulators a bank"
        return Loss(bank=given.bank, temperature=self.temperature)
