"""What an encoder's relations are worth to a task: pairs and queries scored by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sentdist.evaluation.relational import relation_cosines, relation_weights, relational_queries, relational_similarities, weight_curve
from sentdist.evaluation.sts import score_similarities
from sentdist.learning.objective import Objective
from sentdist.learning.relation_file import Relations, has_relations, read_relations
from sentdist.plan.relational import RelationalScoring
from sentdist.plan.stage import Json


@dataclass(frozen=True, kw_only=True)
class RelationalScorer:
    """An encoder's relations, and how a view scores by them; scoring None: pairs and queries by their plain cosine."""

    relations: Relations
    scoring: RelationalScoring | None

    def similarities(self, first_SD: np.ndarray, second_SD: np.ndarray, *, where: str) -> np.ndarray:
        """(S,) relational similarities of pairs; `scoring` must be there."""
        assert self.scoring is not None, "asked only where a view scores by relations"
        weights_K = self._weights(where)
        return relational_similarities(
            first_SD, second_SD, self.relations.vectors, weights_K, directions=self.scoring.directions, where=where
        )

    def check(self, *, where: str) -> None:
        """DataError unless the encoder has the relations that are weighted."""
        self._weights(where)

    def queries(self, queries_QD: np.ndarray, *, where: str) -> np.ndarray:
        """(Q, D) vectors whose cosines with documents rank as the queries' relational scores do;
        the queries themselves without a scoring."""
        if self.scoring is None:
            return queries_QD
        return relational_queries(queries_QD, self.relations.vectors, self._weights(where), where=where)

    def curve(
        self, first_SD: np.ndarray, second_SD: np.ndarray, gold_S: np.ndarray, subsets: Sequence[str], *, where: str
    ) -> list[float | None]:
        """Spearman × 100 at each weight of the scoring's grid; `scoring.curve` must be there."""
        assert self.scoring is not None and self.scoring.curve is not None, "asked only where a view has a curve"
        found = weight_curve(
            first_SD,
            second_SD,
            self.relations.vectors,
            self.relations.names,
            self.scoring.by_name,
            relation=self.scoring.curve.relation,
            grid=self.scoring.curve.weights,
            score=lambda similarities: score_similarities(similarities, gold_S, subsets, where=where).spearman,
            directions=self.scoring.directions,
            where=where,
        )
        return list(found.scores)

    def facts(self) -> dict[str, Json]:
        """How alike the relations are, for the record; a table that did not learn (vectors of length 0) says nothing."""
        lengths_K = np.linalg.norm(self.relations.vectors, axis=1)
        if not lengths_K.all():
            return {}
        cosines = relation_cosines(self.relations.vectors).round(6).tolist()
        return {
            "relations": {"names": list(self.relations.names), "cosines": cosines, "lengths": [round(float(one), 6) for one in lengths_K]}
        }

    def _weights(self, where: str) -> np.ndarray:
        assert self.scoring is not None
        return relation_weights(self.scoring.by_name, self.relations.names, normalize=self.scoring.normalized, where=where)


def saved_scorer(folder: Path, scoring: RelationalScoring | None) -> RelationalScorer | None:
    """What an encoder's folder says of relations; None where it has none."""
    return RelationalScorer(relations=read_relations(folder), scoring=scoring) if has_relations(folder) else None


def live_scorer(objective: Objective, scoring: RelationalScoring | None) -> RelationalScorer | None:
    """What a training's objective knows of relations at this moment; None where pairs are not scored by them.
    Collective: ZeRO may share the table out."""
    if scoring is None:
        return None
    relations = objective.relations()
    assert relations is not None, "the plan scores by relations only what learns them"
    return RelationalScorer(relations=relations, scoring=scoring)
