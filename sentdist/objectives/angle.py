"""AnglE: graded pairs ranked by a similarity that does not saturate (Li & Li 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.objectives.cosent import ranked_pairs
from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch

PAPER = Citation(
    key="angle",
    kind="inproceedings",
    authors=("Xianming Li", "Jing Li"),
    title="AoE: Angle-optimized Embeddings for Semantic Textual Similarity",
    where="ACL",
    year=2024,
    url="https://arxiv.org/abs/2309.12871",
    role="ranking loss on graded pairs",
)


class AnglE(ObjectiveSpec):
    """Graded pairs in the order of their labels, by a similarity with a slope where the cosine has none (Li & Li 2024).

    Its authors add it to CoSENT and to InfoNCE: a `sum`, with cosines at test.
    """

    title: ClassVar[str] = "ranking of graded pairs by angle (AnglE, Li & Li 2024)"
    about: ClassVar[str] = "graded pairs ranked by their angles in complex space: AnglE, a term beside `cosent`"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="needed")

    name: Literal["angle"] = "angle"
    temperature: Temperature = 0.05  # differences of similarities are divided by it

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """The loss, from the pairs of all ranks, as CoSENT's."""
        return ranked_pairs(angle_similarity, embeddings, batch, temperature=self.temperature)


def angle_similarity(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """s = | Re⟨z, w⟩ + Im⟨z, w⟩ |,   z, w the embeddings as complex vectors of length 1, their first half the real parts
    (a zero behind an odd number).

    Optimizes, by `cosent` with s for the cosine: the order of s is that of the labels. Re⟨z, w⟩ is the cosine; where that is 1 or −1 and
        has no slope, Im⟨z, w⟩ has one.
    Shapes: two of (B, D); s (B,).
    Range: 0 to √2; 1 for z = w. It is not symmetric: s of (w, z) is | Re − Im |.
    Source: Li & Li 2024 (arXiv 2309.12871), as sentence-transformers reads its authors' code, and notes that Eq. 3 subtracts
        in the other order.
    """
    from torch.nn import functional as F

    odd = first_BD.shape[-1] % 2
    (a_BH, b_BH), (c_BH, d_BH) = (F.pad(F.normalize(side, dim=-1), (0, odd)).chunk(2, dim=-1) for side in (first_BD, second_BD))
    real_B, imaginary_B = (a_BH * c_BH + b_BH * d_BH).sum(dim=-1), (b_BH * c_BH - a_BH * d_BH).sum(dim=-1)
    return (real_B + imaginary_B).abs()
