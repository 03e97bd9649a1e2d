"""Triplet margin loss: the anchor is closer to its positive than to its negative (Schroff et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, assert_never

from pydantic import Field, model_validator

from sentdist.objectives.objective_spec import LossInputs, Mismatch, Needs, ObjectiveSpec, Rows
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch

Distance = Literal["euclidean", "manhattan", "cosine"]

FACENET = Citation(
    key="facenet",
    kind="inproceedings",
    authors=("Florian Schroff", "Dmitry Kalenichenko", "James Philbin"),
    title="FaceNet: A Unified Embedding for Face Recognition and Clustering",
    where="CVPR",
    year=2015,
    url="https://arxiv.org/abs/1503.03832",
    role="triplet loss",
)


class TripletMargin(ObjectiveSpec):
    """The anchor is closer to its positive than to its hard negative by a margin (Schroff et al. 2015; Sentence-BERT's third objective)."""

    title: ClassVar[str] = "triplet margin (Schroff et al. 2015)"
    about: ClassVar[str] = "an anchor nearer to its positive than to its hard negative, by a margin"
    citations: ClassVar[tuple[Citation, ...]] = (FACENET,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, negatives=1, labels="refused")

    name: Literal["triplet"] = "triplet"
    margin: Annotated[float, Field(gt=0.0)] = 1.0
    distance: Distance = "euclidean"

    @model_validator(mode="after")
    def _margins_can_be_reached(self) -> Self:
        if self.distance == "cosine" and self.margin > 2:
            raise ValueError(f"margin: found {self.margin:g}; cosine distances lie in 0 … 2, so no triplet reaches a margin above 2")
        return self

    def mismatch(self, rows: Rows) -> Mismatch | None:
        negatives = rows.num_columns - 1 - rows.num_positives
        if negatives == 1:
            return None
        return Mismatch(f"{negatives} hard negatives of an anchor", "1", "Set num_negatives: 1 for the corpus.")

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        from sentdist.learning.objective import at_least_float32, split_columns

        anchors_BD, positives_BD, negatives_BD = at_least_float32(split_columns(embeddings, batch))
        return triplet_margin(anchors_BD, positives_BD, negatives_BD, margin=self.margin, distance=self.distance)


def triplet_margin(anchors_BD: Tensor, positives_BD: Tensor, negatives_BD: Tensor, *, margin: float, distance: Distance) -> Tensor:
    """ℓ_i = max(0, d(a_i, p_i) − d(a_i, n_i) + m)

    Optimizes: the positive is nearer to the anchor than the anchor's own negative, by m; triplets that satisfy this have no gradient.
        Other rows play no part.
    Units and reduction: those of the distance, mean over the B rows. Range: at or above 0.
    Source: Schroff et al. 2015 (arXiv 1503.03832), Eq. 3, there with squared distances; with plain ones as Sentence-BERT (arXiv
    1908.10084), m = 1.
    Args:
        distance: d, the L2 norm ("euclidean") or L1 norm ("manhattan") of the difference, or 1 − cosine ("cosine").
    Shapes:
        (B, D) each.
    """
    from torch.nn import functional as F

    def measure(others_BD: Tensor) -> Tensor:
        match distance:
            case "cosine":
                return 1 - F.cosine_similarity(anchors_BD, others_BD)
            case "euclidean":
                return F.pairwise_distance(anchors_BD, others_BD, p=2)
            case "manhattan":
                return F.pairwise_distance(anchors_BD, others_BD, p=1)
        assert_never(distance)

    return F.relu(measure(positives_BD) - measure(negatives_BD) + margin).mean()
