"""Score pairs and queries by cosine, or by the relations of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentdist.evaluation.relational import relation_weights, relational_queries, relational_similarities, weight_curve
from sentdist.evaluation.sts import paired_cosines, spearman
from sentdist.learning.relation_file import Relations, has_relations, read_relations
from sentdist.recipe.specs import RelationalScoring

if TYPE_CHECKING:
    from sentdist.learning.objective import Objective

NO_RELATIONS = Relations(names=(), vectors=np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, kw_only=True)
class CosineScorer:
    """Score pairs and queries by cosine."""

    relations: Relations = NO_RELATIONS  # of the encoder; links are always ranked by them

    def similarities(self, first_SD: np.ndarray, second_SD: np.ndarray, *, where: str) -> np.ndarray:
        """Return (S,) cosines of pairs, in float64."""
        return paired_cosines(first_SD, second_SD, where=where)

    def queries(self, queries_QD: np.ndarray, *, where: str) -> np.ndarray:
        """Return the queries unchanged."""
        return queries_QD


COSINE = CosineScorer()  # of an encoder without relations


@dataclass(frozen=True, kw_only=True)
class RelationalScorer:
    """Score pairs and queries by an encoder's relations, weighted by a view."""

    relations: Relations
    scoring: RelationalScoring

    def similarities(self, first_SD: np.ndarray, second_SD: np.ndarray, *, where: str) -> np.ndarray:
        """Return (S,) relational similarities of pairs."""
        weights_K = self._weights(where)
        return relational_similarities(
            first_SD, second_SD, self.relations.vectors, weights_K, directions=self.scoring.directions, where=where
        )

    def check(self, *, where: str) -> None:
        """Raise DataError unless the encoder has the weighted relations."""
        self._weights(where)

    def queries(self, queries_QD: np.ndarray, *, where: str) -> np.ndarray:
        """Return (Q, D) vectors whose cosines with documents rank as the queries' relational scores do."""
        return relational_queries(queries_QD, self.relations.vectors, self._weights(where), where=where)

    def curve(self, first_SD: np.ndarray, second_SD: np.ndarray, gold_S: np.ndarray, *, where: str) -> list[float | None]:
        """Return Spearman × 100 at each weight of the scoring's grid; requires `scoring.curve`."""
        assert self.scoring.curve is not None, "asked only where a view has a curve"
        relation, names = self.scoring.curve.relation, self.relations.names
        points = [
            relation_weights({**self.scoring.by_name, relation: weight}, names, normalize=False, where=where)
            for weight in self.scoring.curve.weights
        ]
        return weight_curve(
            first_SD,
            second_SD,
            self.relations.vectors,
            points,
            score=lambda similarities: spearman(similarities, gold_S),
            directions=self.scoring.directions,
            where=where,
        )

    def _weights(self, where: str) -> np.ndarray:
        return relation_weights(self.scoring.by_name, self.relations.names, normalize=self.scoring.normalized, where=where)


Scorer = CosineScorer | RelationalScorer


def saved_scorer(folder: Path, scoring: RelationalScoring | None) -> Scorer:
    """Return the scorer of a saved encoder: by its relations if it has some and `scoring` weighs them, else by cosine."""
    if not has_relations(folder):
        return COSINE
    relations = read_relations(folder)
    return CosineScorer(relations=relations) if scoring is None else RelationalScorer(relations=relations, scoring=scoring)


def live_scorer(objective: Objective, scoring: RelationalScoring | None) -> Scorer:
    """Return the scorer of an encoder in training: by its objective's current relations, or by cosine. Collective: ZeRO may shard them."""
    if scoring is None:
        return COSINE
    relations = objective.relations()
    assert relations is not None, "the plan scores by relations only what learns them"
    return RelationalScorer(relations=relations, scoring=scoring)
