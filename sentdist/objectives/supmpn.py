"""SupMPN: several positives and negatives an anchor; its equation stands in learning/objectives/supmpn.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Needs, ObjectiveSpec, Temperature

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective

PAPER = Citation(
    key="supmpn",
    kind="article",
    authors=("Somaiyeh Dehghan", "Mehmet Fatih Amasyali"),
    title="SupMPN: Supervised Multiple Positives and Negatives Contrastive Learning Model for Semantic Textual Similarity",
    where="Applied Sciences 12(19) 9659",
    year=2022,
    url="https://doi.org/10.3390/app12199659",
    role="several positives and negatives an anchor",
)


class SupMPN(ObjectiveSpec):
    """Several positives and negatives an anchor (Appl. Sci. 2022, 12(19) 9659, Eq. 4); with phi, an entropy encoder of this objective."""

    title: ClassVar[str] = "multiple positives and negatives (SupMPN, Appl. Sci. 2022, 12(19) 9659)"
    about: ClassVar[str] = "P positives and Q negatives an anchor"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=None, negatives=1, labels="refused")
    equation: ClassVar[str] = "sentdist/learning/objectives/supmpn.py"

    name: Literal["supmpn"] = "supmpn"
    temperature: Temperature = 0.05
    masked: Literal["excluded", "zero"] = "excluded"  # an anchor's other positives: left out as printed, or logits of 0 as released
    phi: float = 0.0

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.supmpn import SupMPN as Loss

        return Loss(temperature=self.temperature, masked=self.masked, phi=self.phi)
