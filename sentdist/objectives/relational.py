"""Relational sentence embeddings (RSE); the equation stands in learning/objectives/relational.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.citation import Citation
from sentdist.objectives.objective import Given, Misfit, Needs, ObjectiveSpec, Rate, Rows, Start, Temperature

if TYPE_CHECKING:
    from sentdist.learning.objectives.objective import Objective

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


class Relational(ObjectiveSpec):
    """Relational sentence embeddings (RSE, arXiv 2212.08802, Eq. 1 and 2): the anchor is shifted by its relation's embedding."""

    later_fields: ClassVar[tuple[str, ...]] = ("keep_relations",)
    title: ClassVar[str] = "relational contrastive cross-entropy (RSE, arXiv 2212.08802)"
    about: ClassVar[str] = "the anchor is moved by its relation's embedding"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused", relations=True)
    equation: ClassVar[str] = "sentdist/learning/objectives/relational.py"

    name: Literal["rse"] = "rse"
    temperature: Temperature = 0.05
    hard_negatives: bool = True
    relation_learning_rate: Rate = 1e-2
    phi: float = 0.0
    keep_relations: bool = False  # go on with the vectors of the encoder that training starts from, relation by relation; False: new ones

    def misfit_of_start(self, start: Start | None, rows: Rows) -> Misfit | None:
        before = () if start is None else start.relations
        if not self.keep_relations or set(before) & set(rows.relation_names):
            return None
        named = f"a start that knows {', '.join(before)}" if before else "a start without relations"
        return Misfit(
            found="no start" if start is None else named,
            expected=f"a start, trained with rse, that knows one of {', '.join(rows.relation_names)}",
            remedy="Leave keep_relations out: training then starts with new vectors.",
            where="keep_relations",
        )

    def make_loss(self, given: Given) -> Objective:
        from sentdist.learning.objectives.relational import Relational as Loss

        return Loss(
            relations=given.rows.relation_names,
            width=given.encoder.width,
            temperature=self.temperature,
            phi=self.phi,
            learning_rate=self.relation_learning_rate,
            keeps_relations=self.keep_relations,
        )
