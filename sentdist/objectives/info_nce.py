"""InfoNCE: the contrastive cross-entropy over the batch; its equation stands in learning/objectives/info_nce.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Needs, ObjectiveSpec, Temperature

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective

INFONCE = Citation(
    key="infonce",
    kind="misc",
    authors=("Aaron van den Oord", "Yazhe Li", "Oriol Vinyals"),
    title="Representation Learning with Contrastive Predictive Coding",
    where="arXiv 1807.03748",
    year=2018,
    url="https://arxiv.org/abs/1807.03748",
    role="contrastive loss",
)
SIMCSE = Citation(
    key="simcse",
    kind="inproceedings",
    authors=("Tianyu Gao", "Xingcheng Yao", "Danqi Chen"),
    title="SimCSE: Simple Contrastive Learning of Sentence Embeddings",
    where="EMNLP",
    year=2021,
    url="https://arxiv.org/abs/2104.08821",
    role="evaluation protocol of the STS tasks",
)


class InfoNCE(ObjectiveSpec):
    """Eq. 1 of RCL (arXiv 2209.13241): cross-entropy over the positives (and hard negatives) of the whole batch."""

    title: ClassVar[str] = "contrastive cross-entropy (RCL Eq. 1, arXiv 2209.13241)"
    about: ClassVar[str] = "contrastive cross-entropy: RCL's Eq. 1, SimCSE, multiple-negatives ranking"
    citations: ClassVar[tuple[Citation, ...]] = (INFONCE, SIMCSE)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused")
    equation: ClassVar[str] = "sentdist/learning/objectives/info_nce.py"

    name: Literal["info_nce"] = "info_nce"
    temperature: Temperature = 1.0
    hard_negatives: bool = True

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.info_nce import InfoNCE as Loss

        return Loss(temperature=self.temperature)
