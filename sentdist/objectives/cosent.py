"""CoSENT: rank graded pairs by their cosines (Su 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch

PAPER = Citation(
    key="cosent",
    kind="misc",
    authors=("Jianlin Su",),
    title="CoSENT: A More Efficient Sentence Vector Scheme than Sentence-BERT",
    where="kexue.fm, January 2022",
    year=2022,
    url="https://kexue.fm/archives/8847",
    role="ranking loss on graded pairs",
)


class CoSENT(ObjectiveSpec):
    """Rank graded pairs by their labels: the pair with the higher label should have the higher cosine (Su 2022)."""

    title: ClassVar[str] = "ranking of graded pairs by cosine (CoSENT, Su 2022)"
    about: ClassVar[str] = "graded pairs ranked by their cosines: CoSENT"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="needed")

    name: Literal["cosent"] = "cosent"
    temperature: Temperature = 0.05  # differences of cosines are divided by it

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """Return the loss over the pairs of all ranks: each rank computes all of it, with the gradient of its own pairs."""
        import torch

        return ranked_pairs(torch.cosine_similarity, embeddings, batch, temperature=self.temperature)


def ranked_pairs(similarity: Callable[[Tensor, Tensor], Tensor], embeddings: Tensor, batch: Batch, *, temperature: float) -> Tensor:
    """Return `cosent` over the graded pairs of all ranks for any similarity of two (B, D) tensors that returns (B,)."""
    from sentdist.learning.gather import gather_rows
    from sentdist.learning.objective import at_least_float32, split_columns

    first_BD, second_BD = at_least_float32(split_columns(embeddings, batch))
    assert batch.labels is not None, "the plan gives it graded pairs"
    similarities_M = gather_rows(similarity(first_BD, second_BD), of=batch.num_rows_of_all)
    labels_M = gather_rows(batch.labels.to(similarities_M.device), of=batch.num_rows_of_all)
    return cosent(similarities_M, labels_M, temperature=temperature)


def cosent(cosines_M: Tensor, labels_M: Tensor, *, temperature: float) -> Tensor:
    """ℓ = ln( 1 + Σ_{y_i < y_j} e^{(cos_i − cos_j)/τ} ),   cos_i the cosine of pair i, y_i its label.

    Optimizes: the order of the cosines is that of the labels, which is what Spearman's correlation measures;
        the distance between labels plays no part, and pairs of equal labels are not compared.
    Units and reduction: nats, one number for the batch: no mean, so a larger batch has a larger loss.
    Range: at or above 0; 0 where all labels are equal.
    Source: Su 2022 (kexue.fm/archives/8847), its last equation, λ = 1/τ = 20.
    Shapes:
        Cosines and labels (M,), of all pairs of the global batch. Memory: three (M, M) tensors, 64 MiB each at M = 4096 in float32.
    """
    import torch

    differences_MM = (cosines_M[:, None] - cosines_M[None, :]) / temperature
    compared_MM = differences_MM.masked_fill(labels_M[:, None] >= labels_M[None, :], -torch.inf)
    return torch.cat([cosines_M.new_zeros(1), compared_MM.flatten()]).logsumexp(dim=0)
