"""The objective of RCL's entropy encoders; its equation stands in learning/objectives/entropy.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Needs, ObjectiveSpec, Temperature
from sentdist.objectives.rcl import PAPER

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective


class Entropy(ObjectiveSpec):
    """Eq. 2: Eq. 1 plus phi times the entropy of the scores of all other candidates; phi of either sign."""

    title: ClassVar[str] = "contrastive cross-entropy with an entropy term (RCL Eq. 2, arXiv 2209.13241)"
    about: ClassVar[str] = "InfoNCE, more certain or less by φ of either sign: RCL's entropy encoders, Eq. 2"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused")
    equation: ClassVar[str] = "sentdist/learning/objectives/entropy.py"

    name: Literal["entropy"] = "entropy"
    phi: float
    temperature: Temperature = 1.0
    hard_negatives: bool = True

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.entropy import EntropyInfoNCE

        return EntropyInfoNCE(phi=self.phi, temperature=self.temperature)
