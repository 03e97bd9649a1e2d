"""RSE: contrastive learning with a vector per relation that is added to the anchor (arXiv 2212.08802)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.objective_spec import LossInputs, Mismatch, Needs, ObjectiveSpec, Rate, Rows, Start, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.objective import Objective

PAPER = Citation(
    key="rse",
    kind="misc",
    authors=("Bin Wang", "Haizhou Li"),
    title="Relational Sentence Embedding for Flexible Semantic Matching",
    where="arXiv 2212.08802",
    year=2022,
    url="https://arxiv.org/abs/2212.08802",
    role="relations between sentences as vectors",
)


class RSE(ObjectiveSpec):
    """Relational sentence embeddings (RSE, arXiv 2212.08802, Eq. 1 and 2): the anchor is shifted by its relation's embedding."""

    later_fields: ClassVar[tuple[str, ...]] = ("keep_relations",)
    title: ClassVar[str] = "relational contrastive cross-entropy (RSE, arXiv 2212.08802)"
    about: ClassVar[str] = "the anchor is moved by its relation's embedding"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused", relations=True)

    name: Literal["rse"] = "rse"
    temperature: Temperature = 0.05  # cosines are divided by it
    hard_negatives: bool = True  # texts of the third column are candidates, too
    relation_learning_rate: Rate = 1e-2
    phi: float = 0.0
    keep_relations: bool = False  # continue with the relation vectors of the encoder that training starts from; false: new vectors

    def mismatch_of_start(self, start: Start | None, rows: Rows) -> Mismatch | None:
        before = () if start is None else start.relations
        if not self.keep_relations or set(before) & set(rows.relation_names):
            return None
        named = f"a start that knows {', '.join(before)}" if before else "a start without relations"
        return Mismatch(
            found="no start" if start is None else named,
            expected=f"a start, trained with rse, that knows one of {', '.join(rows.relation_names)}",
            remedy="Leave keep_relations out: training then starts with new vectors.",
            where="keep_relations",
        )

    def make_loss(self, inputs: LossInputs) -> Objective:
        from sentdist.objectives.learned.rse import Relational

        return Relational(
            partial(relational_info_nce, temperature=self.temperature, phi=self.phi),
            relations=inputs.rows.relation_names,
            width=inputs.needed_width(self.name),
            learning_rate=self.relation_learning_rate,
            keeps_relations=self.keep_relations,
            pooling=None if inputs.encoder is None else inputs.encoder.pooling,
        )


def relational_info_nce(
    heads_BD: Tensor, relations_BD: Tensor, candidates_MD: Tensor, *, first_row: int, temperature: float, phi: float = 0.0
) -> Tensor:
    """ℓ_i = −log e^{cos(h_i + r_i, t_i)/τ} / Σ_m e^{cos(h_i + r_i, t_m)/τ} + φ·H_i,   r_i the vector of the relation between h_i and t_i.

    Optimizes: shifted by its relation, a head points to its tail. The head's own relation shifts it against every candidate; tails and hard
        negatives are never shifted, and the relations of candidates play no part.
    Units and reduction: nats, mean over the B heads.
    Source: RSE, arXiv 2212.08802, Eq. 1 and 2; τ = 0.05. r = 0 is `info_nce`, hence supervised SimCSE.
    Args:
        phi: weight of H_i, the entropy of the other candidates' shares, as in Eq. 2 of RCL (arXiv 2209.13241), to train entropy encoders
            with this loss. φ = 0 is RSE.
    Shapes:
        Heads (B, D), rows `first_row` … `first_row + B − 1` of the global batch; relations (B, D), one vector a head;
        candidates (K·M, D) of all ranks: the M tails (Eq. 1), then the M hard negatives of all heads, if any (Eq. 2).
    """
    anchors_BD = heads_BD + relations_BD
    if phi == 0:
        return info_nce(anchors_BD, candidates_MD, first_row=first_row, temperature=temperature)
    return entropy_info_nce(anchors_BD, candidates_MD, first_row=first_row, temperature=temperature, phi=phi)
