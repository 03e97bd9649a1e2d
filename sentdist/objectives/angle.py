"""AnglE: rank graded pairs by a similarity that does not saturate (Li & Li 2024)."""

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
    """Rank graded pairs by their labels, with a similarity that has a gradient where the cosine has none (Li & Li 2024).

    The authors add it to CoSENT and InfoNCE: use it in a `sum`; evaluation uses cosines.
    """

    title: ClassVar[str] = "ranking of graded pairs by angle (AnglE, Li & Li 2024)"
    about: ClassVar[str] = "graded pairs ranked by their angles in complex space: AnglE, a term beside `cosent`"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="needed")

    name: Literal["angle"] = "angle"
    temperature: Temperature = 0.05  # differences of similarities are divided by it

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """Return the loss over the pairs of all ranks, like CoSENT."""
        return ranked_pairs(angle_similarity, embeddings, batch, temperature=self.temperature)


def angle_similarity(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """s = | Re⟨z, w⟩ + Im⟨z, w⟩ |,   z, w the embeddings as complex vectors of length 1: the first half of D is real, the second imaginary
    (odd D: padded with a zero).

    Optimizes, as the similarity in `cosent`: the order of s is that of the labels. Re⟨z, w⟩ is the cosine; where it is ±1 and has no slope,
        Im⟨z, w⟩ has one.
    Range: 0 to √2; 1 for z = w. Not symmetric: s of (w, z) is | Re − Im |.
    Source: Li & Li 2024 (arXiv 2309.12871), as in sentence-transformers, which follows the authors' code and notes that Eq. 3 subtracts
        in the other order.
    Shapes:
        Both inputs (B, D); s (B,).
    """
    from torch.nn import functional as F

    odd = first_BD.shape[-1] % 2
    (a_BH, b_BH), (c_BH, d_BH) = (F.pad(F.normalize(side, dim=-1), (0, odd)).chunk(2, dim=-1) for side in (first_BD, second_BD))
    real_B, imaginary_B = (a_BH * c_BH + b_BH * d_BH).sum(dim=-1), (b_BH * c_BH - a_BH * d_BH).sum(dim=-1)
    return (real_B + imaginary_B).abs()
